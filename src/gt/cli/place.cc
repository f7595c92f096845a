// gt place: finds where every value of a train step is laid out on a mesh of ranks, at the least
// predicted time within a memory budget. Nothing runs and nothing is allocated.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/cli/commands.h"
#include "gt/cli/graph_files.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/global_step.h"
#include "gt/compile/memory_capacity.h"
#include "gt/config/command_line.h"
#include "gt/job/config.h"
#include "gt/placement/hand_layouts.h"
#include "gt/placement/iopddl.h"
#include "gt/placement/joined_axes.h"
#include "gt/placement/plan.h"
#include "gt/report/placement_report.h"
#include "gt/report/placement_svg.h"
#include "gt/sim/cluster_path.h"
#include "gt/storage/file_writer.h"

namespace gt::cli {
namespace {

using placement::DeviceMesh;
using placement::Placement;
using placement::PlaceProblem;
using placement::Plan;
using placement::Pricing;
using Clock = std::chrono::steady_clock;

struct PlaceFlags {
  std::string mesh = "auto";
  StringList pins;
  double memory_gb = 0;
  placement::CostFormulas costs = placement::CostFormulas::kSimulated;
  bool overlap = true;
  bool fold = true;
  bool finest = false;
  bool compare = true;
  double memory_price = 0;
  double time_limit = 60;
  double expert_skew = 1;
  std::string graph, output, svg, plan, explain, diff, other, iopddl;
};

Plan ReadPlan(const std::string& path) {
  try {
    return placement::PlanFromJson(ReadWholeFile(path), path);
  } catch (const UnreadableFile& error) {
    Fail(ErrorCode::kBadPlan, "{}: {}", path, error.what());
  }
}

int ShowDifferences(const PlaceFlags& flags) {
  if (flags.other.empty()) {
    Fail(ErrorCode::kBadOptionValue, "--diff compares two plans: gt place --diff a.json b.json");
  }
  const std::vector<std::string> lines = Differences(ReadPlan(flags.diff), ReadPlan(flags.other));
  for (const std::string& line : lines) fmt::print("{}\n", line);
  fmt::print("{} differences\n", lines.size());
  return 0;
}

int SolveIopddl(const PlaceFlags& flags, int threads) {
  const Clock::time_point start = Clock::now();
  const placement::LabelProblem problem = placement::ReadIopddl(flags.iopddl);
  placement::SolverOptions options;
  options.threads = threads;
  options.time_limit_s =
      flags.time_limit - std::chrono::duration<double>(Clock::now() - start).count();
  const placement::LabelSolution solution = Solve(problem, options);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!solution.feasible) {
    Fail(ErrorCode::kNoPlacement, "{}: no placement was found within {:.0f} s", flags.iopddl,
         flags.time_limit);
  }
  fmt::print("cost {:.0f}, at least {:.0f} (gap {:.3f} %), {:.1f} s\n", solution.cost,
             solution.lower_bound, 100 * solution.gap(), seconds);
  if (!flags.output.empty()) {
    WriteFile(flags.output, fmt::format("[{}]\n", fmt::join(solution.labels, ",")));
  }
  return 0;
}

// The best so far, on one line of the terminal; nothing where output is a file.
class SearchProgress {
 public:
  void Show(const std::string& what, double step_us, double bound_us) {
    if (!terminal_ || Clock::now() - last_ < std::chrono::milliseconds(100)) return;
    last_ = Clock::now();
    fmt::print(stderr, "\r{:<20} step {:.2f} ms, at least {:.2f} ms \033[K", what, step_us / 1e3,
               bound_us / 1e3);
    shown_ = true;
  }
  void Clear() {
    if (shown_) fmt::print(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  Clock::time_point last_;
};

class Placer {
  // Of the work on a plan.
  static constexpr double kShareForHandWritten = 0.1, kShareForStart = 0.2;

 public:
  Placer(const Config& config, const PlaceFlags& flags)
      : config_(config),
        flags_(flags),
        ranks_(std::max<int64_t>(1, config.ranks)),
        links_(ReadCluster(ClusterPath(config.comm.cluster))),
        start_(Clock::now()) {
    graph_ = flags.graph.empty() ? CaptureGlobalStep(config, ranks_) : ReadGraph(flags.graph);
    captured_ = Clock::now();
  }

  // Hand-written layouts are candidates like any other, so that no plan is worse than they are.
  void Run() {
    const std::vector<DeviceMesh> meshes = Meshes();
    for (const placement::HandLayout& layout : HandWritten()) {
      Rival rival{layout.name, Try(layout.mesh, layout.axes)};
      const bool allowed = std::find(meshes.begin(), meshes.end(), layout.mesh) != meshes.end();
      if (allowed && IsBetter(rival.found)) best_ = rival.found;
      rivals_.push_back(std::move(rival));
    }
    double bound = placement::kForbidden;
    for (const DeviceMesh& mesh : meshes) {
      if (best_ != nullptr && SecondsLeft() <= 0) {
        ++not_tried_;
        continue;
      }
      const std::shared_ptr<Found> found = Try(mesh, {});
      bound = std::min(bound, last_bound_);
      if (IsBetter(found)) best_ = found;
    }
    progress_.Clear();
    if (best_ == nullptr) Refuse(meshes);
    best_->placement.bound_us = std::min(bound, best_->placement.total_us());
    Print(*best_);
  }

 private:
  struct Found {
    std::unique_ptr<Pricing> pricing;
    std::unique_ptr<PlaceProblem> problem;
    Placement placement;
  };
  struct Rival {
    std::string name;
    std::shared_ptr<Found> found;  // null: it does not fit
  };

  bool IsBetter(const std::shared_ptr<Found>& found) const {
    return found != nullptr &&
           (best_ == nullptr || found->placement.total_us() < best_->placement.total_us());
  }

  std::vector<placement::HandLayout> HandWritten() const {
    if (!flags_.compare || !flags_.graph.empty() || !flags_.pins.empty() || !flags_.plan.empty()) {
      return {};
    }
    return placement::HandLayouts(
        {.ranks = ranks_,
         .batch = GlobalBatch(config_, ranks_),
         .gpus_per_node = links_.cluster().gpus_per_node,
         .experts = !graph_->modules().With(ModuleRole::kExperts).empty()});
  }

  double SecondsLeft() const {
    return flags_.time_limit - std::chrono::duration<double>(Clock::now() - start_).count();
  }

  std::vector<DeviceMesh> Meshes() const {
    if (flags_.mesh != "auto") return {Checked(DeviceMesh::Parse(flags_.mesh))};
    if (!flags_.plan.empty()) return {Checked(DeviceMesh(ReadPlan(flags_.plan).mesh))};
    const ParallelismSection& degrees = config_.parallelism;
    std::vector<int64_t> sizes;
    for (int64_t size : {degrees.data_parallel_replicate_degree, degrees.data_parallel_shard_degree,
                         degrees.context_parallel_degree, degrees.tensor_parallel_degree}) {
      if (size > 1) sizes.push_back(size);
    }
    if (!sizes.empty() && degrees.data_parallel_shard_degree < 0) {
      int64_t others = 1;
      for (int64_t size : sizes) others *= size;
      if (others < ranks_ && ranks_ % others == 0) sizes.insert(sizes.begin(), ranks_ / others);
    }
    if (!sizes.empty()) return {Checked(DeviceMesh(sizes))};
    return AllMeshes();
  }

  // With up to two axes all; with three those of which some axes fill a node.
  std::vector<DeviceMesh> AllMeshes() const {
    std::vector<DeviceMesh> meshes = placement::MeshesOf(ranks_, 2);
    constexpr size_t kMostWithThree = 4;
    const size_t most = meshes.size() + kMostWithThree;
    for (const DeviceMesh& mesh : placement::MeshesOf(ranks_, 3)) {
      if (mesh.axes() != 3 || meshes.size() == most) continue;
      const int64_t node = links_.cluster().gpus_per_node;
      if (mesh.size(2) == node || mesh.size(1) * mesh.size(2) == node) meshes.push_back(mesh);
    }
    return meshes;
  }

  const DeviceMesh Checked(DeviceMesh mesh) const {
    if (mesh.ranks() != ranks_) {
      Fail(ErrorCode::kBadMesh, "mesh {} has {} ranks, but the job has {} (--ranks)",
           mesh.ToString(), mesh.ranks(), ranks_);
    }
    return mesh;
  }

  std::vector<placement::Pin> Pins(const DeviceMesh& mesh) const {
    std::vector<placement::Pin> pins;
    if (!flags_.plan.empty()) pins = PinsOf(ReadPlan(flags_.plan), mesh, *graph_);
    for (const std::string& pin : flags_.pins) {
      const size_t equals = pin.find('=');
      if (equals == std::string::npos) {
        Fail(ErrorCode::kBadPin, "--pin {}: write PATTERN=PLACEMENT, such as output.weight=S(0)R",
             pin);
      }
      pins.push_back({pin.substr(0, equals), pin.substr(equals + 1)});
    }
    return pins;
  }

  placement::MemoryModel Memory() const {
    placement::MemoryModel memory;
    const c10::Device device =
        config_.device == DeviceChoice::kCuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
    constexpr double kGibi = 1024.0 * 1024 * 1024;
    memory.limit = flags_.memory_gb > 0 ? static_cast<int64_t>(flags_.memory_gb * kGibi)
                                        : MemoryCapacity(config_, nullptr, device);
    return memory;
  }

  std::shared_ptr<Found> Try(const DeviceMesh& mesh, const std::vector<placement::AxisUse>& axes) {
    std::shared_ptr<Found> found = ProblemOn(mesh, axes);
    placement::SearchOptions search = SearchFlags();
    // A hand-written layout is shown, not claimed to be the best of its kind.
    if (!axes.empty()) search.work_limit *= kShareForHandWritten;
    if (mesh.axes() > 2 && best_ == nullptr) search.start = PlanOnJoinedAxes(*found);
    SearchOn(*found, search);
    last_bound_ = found->placement.bound_us;
    return found->placement.feasible ? found : nullptr;
  }

  std::shared_ptr<Found> ProblemOn(const DeviceMesh& mesh,
                                   const std::vector<placement::AxisUse>& axes) const {
    auto found = std::make_shared<Found>();
    found->pricing =
        std::make_unique<Pricing>(mesh, links_, SpeedOf(links_.cluster().generation), flags_.costs);
    found->pricing->set_expert_skew(flags_.expert_skew);
    placement::ProblemOptions problem;
    problem.axes = axes;
    problem.fold = flags_.fold;
    problem.finest_parameters = flags_.finest;
    problem.reshard_after_forward =
        config_.parallelism.fsdp_reshard_after_forward != ReshardAfterForward::kNever;
    problem.pins = Pins(mesh);
    found->problem = std::make_unique<PlaceProblem>(*graph_, *found->pricing, problem);
    return found;
  }

  void SearchOn(Found& found, placement::SearchOptions search) {
    if (best_ != nullptr) search.give_up_at = best_->placement.total_us();
    const std::string what = "mesh " + found.pricing->mesh().ToString();
    search.progress = [&](double step_us, double bound_us) {
      progress_.Show(what, step_us, bound_us);
    };
    found.placement = Search(*found.problem, search);
  }

  // The labels of the best plan on a mesh of two axes that this one is finer than; empty: none. Pins name
  // axes, so that they mean nothing there.
  std::vector<int32_t> PlanOnJoinedAxes(const Found& finer) {
    std::vector<int32_t> best;
    double least = placement::kForbidden;
    const DeviceMesh& mesh = finer.pricing->mesh();
    for (int split = 1; flags_.pins.empty() && flags_.plan.empty() && split < mesh.axes();
         ++split) {
      const std::shared_ptr<Found> joined = ProblemOn(placement::JoinAxes(mesh, split), {});
      placement::SearchOptions search = SearchFlags();
      search.work_limit *= kShareForStart;
      SearchOn(*joined, search);
      if (!joined->placement.feasible || joined->placement.total_us() >= least) continue;
      std::vector<int32_t> labels =
          LabelsOnFinerMesh(*joined->problem, joined->placement.labels, split, *finer.problem);
      if (labels.empty()) continue;
      least = joined->placement.total_us();
      best = std::move(labels);
    }
    return best;
  }

  placement::SearchOptions SearchFlags() const {
    placement::SearchOptions search;
    search.overlap = Overlaps();
    search.memory = Memory();
    search.memory_price = 1e3 * flags_.memory_price;
    search.threads = Threads();
    search.time_limit_s = std::max(SecondsLeft(), 0.1);
    return search;
  }
  // Results do not depend on it; a region of the search has two halves.
  int Threads() const {
    constexpr int64_t kUseful = 2;
    if (config_.threads > 0) return static_cast<int>(config_.threads);
    return static_cast<int>(std::min<int64_t>(kUseful, std::thread::hardware_concurrency()));
  }

  bool Overlaps() const {
    return flags_.overlap && flags_.costs == placement::CostFormulas::kSimulated;
  }

  // Names the demands that contradict each other: those without any of which there is a placement, on
  // one of the meshes.
  [[noreturn]] void Refuse(const std::vector<DeviceMesh>& meshes) {
    placement::SearchOptions search = SearchFlags();
    search.overlap = false;
    search.memory_price = 0;
    std::vector<Pricing> pricings;
    pricings.reserve(meshes.size());
    for (const DeviceMesh& mesh : meshes) {
      pricings.emplace_back(mesh, links_, SpeedOf(links_.cluster().generation), flags_.costs);
    }
    const auto problem_with = [&](const Pricing& pricing, const std::vector<placement::Pin>& pins) {
      placement::ProblemOptions options;
      options.fold = flags_.fold;
      options.pins = pins;
      return PlaceProblem(*graph_, pricing, options);
    };
    const auto feasible = [&](const std::vector<placement::Pin>& pins, bool with_memory) {
      placement::SearchOptions asked = search;
      if (!with_memory) asked.memory = {.limit = 0};
      return std::ranges::any_of(pricings, [&](const Pricing& pricing) {
        return Search(problem_with(pricing, pins), asked).feasible;
      });
    };
    std::vector<placement::Pin> pins = Pins(meshes.front());
    for (size_t i = pins.size(); i-- > 0;) {
      std::vector<placement::Pin> fewer = pins;
      fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
      if (!feasible(fewer, true)) pins = fewer;
    }
    std::string demands, where;
    for (const placement::Pin& pin : pins) {
      demands += fmt::format("{}--pin {}={}", demands.empty() ? "" : ", ", pin.pattern, pin.layout);
    }
    for (const DeviceMesh& mesh : meshes) {
      where += (where.empty() ? "mesh " : ", ") + mesh.ToString();
    }
    if (!feasible(pins, false)) {
      Fail(ErrorCode::kNoPlacement, "{}: these demands contradict each other: {}", where, demands);
    }
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Pricing& pricing : pricings) {
      least = std::min(least, SmallestMemory(problem_with(pricing, pins), search));
    }
    constexpr double kGibi = 1024.0 * 1024 * 1024;
    Fail(ErrorCode::kNoPlacement,
         "{}: no placement fits into {:.4f} GiB of memory on each rank{}{}; with {:.4f} GiB "
         "(--memory_gb) there is one",
         where, static_cast<double>(search.memory.limit) / kGibi,
         demands.empty() ? "" : " together with ", demands,
         std::ceil(static_cast<double>(least) / kGibi * 1e4) / 1e4);
  }

  void Print(const Found& best) {
    const double captured = std::chrono::duration<double>(captured_ - start_).count();
    const double searched = std::chrono::duration<double>(Clock::now() - captured_).count();
    const std::string title =
        flags_.graph.empty() ? fmt::format("{}: {} x {} tokens", ModelTitle(config_),
                                           GlobalBatch(config_, ranks_), config_.training.seq_len)
                             : flags_.graph;
    fmt::print(
        "{} on {} ranks, mesh {}\ncosts {}, device {}, links of {}; captured in {:.2f} s, "
        "placed in {:.2f} s\n",
        title, ranks_, best.pricing->mesh().ToString(), EnumName(flags_.costs),
        SpeedOf(links_.cluster().generation).name, links_.cluster().name, captured, searched);
    if (not_tried_ > 0) {
      fmt::print("{} other meshes were not tried within {:.0f} s (--time_limit)\n", not_tried_,
                 flags_.time_limit);
    }
    fmt::print("{}", PlacementTable(*best.problem, best.placement, Overlaps()));
    if (!flags_.explain.empty()) {
      fmt::print("\n{}",
                 ExplainPlacement(*best.problem, best.placement, flags_.explain, SearchFlags()));
    }
    Compare(best.placement);
    if (!flags_.svg.empty()) {
      WriteFile(flags_.svg, PlacementSvg(*best.problem, best.placement,
                                         fmt::format("{} on {} ranks", title, ranks_)));
      fmt::print("drawn in {}\n", flags_.svg);
    }
    if (!flags_.output.empty()) {
      WriteFile(flags_.output, ToJson(MakePlan(*best.problem, best.placement, title)));
      fmt::print("written to {}\n", flags_.output);
    }
  }

  void Compare(const Placement& best) const {
    if (rivals_.empty()) return;
    fmt::print("\nthe best placements of hand-written layouts, by the same costs\n");
    for (const Rival& rival : rivals_) {
      if (rival.found == nullptr) {
        fmt::print("  {:<20} does not fit, or takes longer\n", rival.name);
        continue;
      }
      fmt::print("  {:<20} {:>10.2f} ms  {:>8.2f} GiB  {:.3f} x the plan\n", rival.name,
                 rival.found->placement.step_us / 1e3,
                 static_cast<double>(rival.found->placement.peak_bytes) / (1 << 30),
                 rival.found->placement.step_us / best.step_us);
    }
  }

  const Config& config_;
  const PlaceFlags& flags_;
  const int64_t ranks_;
  const LinkModel links_;
  const Clock::time_point start_;
  Clock::time_point captured_;
  std::unique_ptr<Graph> graph_;
  SearchProgress progress_;
  std::vector<Rival> rivals_;
  std::shared_ptr<Found> best_;
  double last_bound_ = 0;
  int not_tried_ = 0;  // meshes, for want of time
};

}  // namespace

int RunPlace(Arguments args) {
  Config config;
  PlaceFlags flags;
  CommandLine line("gt place",
                   "finds how every parameter and value of a train step is laid out on a mesh of "
                   "ranks: at the least predicted time, within a rank's memory");
  line.Flag("mesh", &flags.mesh,
            "sizes of the mesh's axes, such as 8x8; auto: those of --parallelism.*, else every "
            "factorization of --ranks into two, and some into three")
      .Flag("pin", &flags.pins,
            "PATTERN=PLACEMENT: lay out the parameters, inputs or values of that name like this, "
            "such as output.weight=S(0)R; may be repeated")
      .Flag("memory_gb", &flags.memory_gb, AtLeast(0),
            "GiB that a rank may fill; 0: as --training.memory_limit_gb, else 92 % of a GPU of the "
            "cluster")
      .Flag("memory_price", &flags.memory_price, AtLeast(0),
            "milliseconds that a plan is charged for each GiB above --memory_gb; 0: none may be "
            "above "
            "it")
      .Flag("costs", &flags.costs,
            "simulated: gt's own; autoparallel: AutoParallel's formulas, serial, for comparison")
      .Flag("overlap", &flags.overlap,
            "moves of parameters and gradients run beside kernels; false: all are waited for")
      .Flag("finest", &flags.finest,
            "cut every parameter as finely as the mesh allows, as AutoParallel's default does")
      .Flag("fold", &flags.fold, "place layers that are alike in the same way")
      .Flag("compare", &flags.compare, "show hand-written layouts beside the plan")
      .Flag("expert_skew", &flags.expert_skew, Within(1, 1024),
            "rows that the busiest rank's experts get, as a multiple of an even share")
      .Flag("time_limit", &flags.time_limit, AtLeast(0.1), "seconds after which the search ends")
      .Flag("explain", &flags.explain,
            "show what the step would take with each other way of placing this node or parameter")
      .Flag("graph", &flags.graph, "place this graph, as .gtir, in place of the configured model's")
      .Flag("plan", &flags.plan, "price the parameter placements of this plan (JSON)")
      .Flag("output", &flags.output, "write the plan to this file, as JSON")
      .Flag("svg", &flags.svg, "draw the plan into this file")
      .Flag("diff", &flags.diff, "compare this plan with the one given as argument")
      .Flag("iopddl", &flags.iopddl,
            "solve this problem in the format of the IOPDDL contest; --output gets the labels")
      .OptionalPositional("PLAN", &flags.other, "the second plan of --diff")
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  if (!flags.diff.empty()) return ShowDifferences(flags);
  if (!flags.iopddl.empty()) {
    return SolveIopddl(flags, static_cast<int>(std::max<int64_t>(1, config.threads)));
  }
  config.comm.backend = CommBackend::kFake;
  Placer(config, flags).Run();
  return 0;
}

}  // namespace gt::cli
