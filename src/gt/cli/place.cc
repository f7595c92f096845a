// gt place: finds where every value of a train step is laid out on a mesh of ranks, at the least
// predicted time within a memory budget. Nothing runs and nothing is allocated.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/cli/commands.h"
#include "gt/cli/configured_step.h"
#include "gt/cli/graph_files.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/compile/global_step.h"
#include "gt/compile/job_cluster.h"
#include "gt/compile/job_summary.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/placed_step.h"
#include "gt/compile/single_device_step.h"
#include "gt/config/command_line.h"
#include "gt/job/config.h"
#include "gt/placement/hand_layouts.h"
#include "gt/placement/joined_axes.h"
#include "gt/placement/plan.h"
#include "gt/placement/solver/deadline.h"
#include "gt/placement/solver/iopddl.h"
#include "gt/report/placement_report.h"
#include "gt/report/placement_svg.h"
#include "gt/sim/node_cost.h"
#include "gt/storage/file_writer.h"
#include "gt/torch_bridge/device.h"

namespace gt::cli {
namespace {

using placement::DeviceMesh;
using placement::Placement;
using placement::PlaceProblem;
using placement::Plan;
using placement::Pricing;
using Clock = std::chrono::steady_clock;

struct PlaceFlags {
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
  int64_t tokens = 0;
  std::string graph, output, svg, plan, explain, diff, other, iopddl;
};

int ShowDifferences(const PlaceFlags& flags) {
  if (flags.other.empty()) {
    Fail(ErrorCode::kBadOptionValue, "--diff compares two plans: gt place --diff a.json b.json");
  }
  const std::vector<std::string> lines =
      Differences(ReadPlanFile(flags.diff), ReadPlanFile(flags.other));
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

// The best so far: on one line of a terminal, and every few seconds as a line of a log.
class SearchProgress {
 public:
  void Show(const std::string& mesh, double step_us, double bound_us) {
    const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
    if (Clock::now() - last_ < pause) return;
    last_ = Clock::now();
    const double seconds = std::chrono::duration<double>(last_ - start_).count();
    std::string line =
        fmt::format("{:.0f} s, mesh {:<10} best {:.2f} ms", seconds, mesh, step_us / 1e3);
    if (bound_us > 0) line += fmt::format(", at least {:.2f} ms", bound_us / 1e3);
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r" : "", line, terminal_ ? " \033[K" : "\n");
    shown_ = terminal_;
  }
  void Clear() {
    if (shown_) fmt::print(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = Clock::now();
};

// Ctrl-C ends the search with the best so far; a second one ends the program.
class InterruptibleSearch {
 public:
  InterruptibleSearch() {
    struct sigaction action = {};
    action.sa_handler = [](int) { placement::Deadline::Interrupt(); };
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptibleSearch() { sigaction(SIGINT, &before_, nullptr); }
  InterruptibleSearch(const InterruptibleSearch&) = delete;
  InterruptibleSearch& operator=(const InterruptibleSearch&) = delete;

 private:
  struct sigaction before_ = {};
};

class Placer {
 public:
  Placer(const Config& config, const PlaceFlags& flags, JobCluster cluster)
      : config_(config),
        flags_(flags),
        cluster_(std::move(cluster)),
        ranks_(std::max<int64_t>(1, config.ranks)),
        start_(Clock::now()) {
    if (flags.graph.empty()) {
      step_.emplace(config, ranks_);
    } else {
      read_ = ReadGraph(flags.graph);
    }
    captured_ = Clock::now();
  }

  // Returns the exit status.
  int Run() {
    const PlacementRequest request = Request();
    {
      const InterruptibleSearch interruptible;
      found_ = Find(request);
    }
    progress_.Clear();
    Print(found_, request);
    return Summarize(*found_.best, request) ? 0 : kDoesNotFitStatus;
  }

 private:
  Graph& graph() { return step_ ? step_->graph() : *read_; }

  FoundPlacement Find(const PlacementRequest& request) {
    const auto require_verified = [this] {
      if (step_) step_->RequireVerified();
    };
    try {
      FoundPlacement found = FindPlacement(request);
      require_verified();
      return found;
    } catch (...) {
      require_verified();  // what a broken step leads to is not worth telling
      throw;
    }
  }

  PlacementRequest Request() {
    const double spent = std::chrono::duration<double>(captured_ - start_).count();
    PlacementRequest request{
        .config = config_, .step = graph(), .meshes = Meshes(), .memory_bytes = MemoryBytes()};
    request.cluster = cluster_.cluster;
    request.time_limit_s = flags_.time_limit - spent;
    request.pins = [this](const DeviceMesh& mesh) { return Pins(mesh); };
    const bool competes =
        flags_.compare && flags_.graph.empty() && flags_.pins.empty() && flags_.plan.empty();
    request.batch = competes ? GlobalBatch(config_, ranks_) : 0;
    request.costs = flags_.costs;
    request.overlap = flags_.overlap;
    request.fold = flags_.fold;
    request.finest_parameters = flags_.finest;
    request.expert_skew = flags_.expert_skew;
    request.memory_price = 1e3 * flags_.memory_price;
    request.split_batch = config_.compile.autoparallel_split_batch && flags_.graph.empty() &&
                          flags_.plan.empty() &&
                          flags_.costs == placement::CostFormulas::kSimulated;
    request.progress = [this](const std::string& mesh, double step_us, double bound_us) {
      progress_.Show(mesh, step_us, bound_us);
    };
    return request;
  }

  std::vector<DeviceMesh> Meshes() const {
    if (config_.mesh == "auto" && !flags_.plan.empty()) {
      return {RequireRanks(DeviceMesh(ReadPlanFile(flags_.plan).mesh), ranks_)};
    }
    return MeshesOf(config_, ranks_);
  }

  std::vector<placement::Pin> Pins(const DeviceMesh& mesh) {
    std::vector<placement::Pin> pins;
    if (!flags_.plan.empty()) pins = PinsOf(ReadPlanFile(flags_.plan), mesh, graph());
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

  int64_t MemoryBytes() const {
    constexpr double kGibi = 1024.0 * 1024 * 1024;
    if (flags_.memory_gb > 0) return static_cast<int64_t>(flags_.memory_gb * kGibi);
    return MemoryCapacity(config_, nullptr, DeviceOf(config_));
  }

  void Print(const FoundPlacement& found, const PlacementRequest& request) {
    const PlacedProblem& best = *found.best;
    const double captured = std::chrono::duration<double>(captured_ - start_).count();
    const double searched = std::chrono::duration<double>(Clock::now() - captured_).count();
    const std::string title =
        flags_.graph.empty() ? fmt::format("{}: {} x {} tokens", ModelTitle(config_),
                                           GlobalBatch(config_, ranks_), config_.training.seq_len)
                             : flags_.graph;
    const Cluster& cluster = *cluster_.cluster;
    fmt::print(
        "{} on {} ranks, mesh {}\ncosts {}, device {}, links of {}{}; captured in {:.2f} s, "
        "placed in {:.2f} s\n",
        title, ranks_, best.pricing->mesh().ToString(), EnumName(flags_.costs),
        SpeedOf(cluster).name, cluster.name, PolicyText(), captured, searched);
    if (placement::Deadline::interrupted()) {
      fmt::print("stopped by Ctrl-C: the best that was found so far; {} mesh{} not tried\n",
                 found.meshes_not_tried, found.meshes_not_tried == 1 ? " was" : "es were");
    } else if (found.meshes_not_tried > 0) {
      fmt::print("{} other mesh{} not tried within {:.0f} s (--time_limit)\n",
                 found.meshes_not_tried, found.meshes_not_tried == 1 ? " was" : "es were",
                 flags_.time_limit);
    }
    const placement::SearchOptions search =
        SearchOptionsFor(request, flags_.time_limit - captured - searched);
    fmt::print("{}", PlacementTable(*best.problem, best.placement, search.overlap));
    if (!flags_.explain.empty()) {
      fmt::print("\n{}", ExplainPlacement(*best.problem, best.placement, flags_.explain, search));
    }
    Compare(found);
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

  // How much of the forward the placed step keeps; a step from a file says so itself.
  std::string PolicyText() const {
    if (!step_) return "";
    const MemoryPolicy policy = config_.compile.memory_policy;
    return fmt::format(", memory policy {}{}", EnumName(policy),
                       policy == MemoryPolicy::kNone || AppliesPolicyFirst(config_)
                           ? ""
                           : " (not counted here: it is applied to the placed step)");
  }

  // By placement's own account of time and memory. Whether the plan fits.
  bool Summarize(const PlacedProblem& best, const PlacementRequest& request) const {
    if (!step_) return true;
    const ModelPtr model = BuildConfiguredModel(config_);
    const Mesh mesh(config_.parallelism, ranks_, 0);
    JobSummary summary = SummaryOfJob(config_, mesh, DeviceOf(config_), model.get(), cluster_);
    if (flags_.memory_gb > 0) {
      summary.available = request.memory_bytes;
      summary.available_source = "--memory_gb";
    }
    const Placement& placed = best.placement;
    summary.peak = placed.peak_bytes;
    const double kernels = placed.cost.forward_kernels + placed.cost.backward_kernels;
    if (cluster_.is_known) {
      summary.time = {.step_us = placed.step_us,
                      .exposed_us = std::max(0.0, placed.step_us - kernels)};
    }
    summary.tokens = flags_.tokens;
    fmt::print("\n{}", SummaryText(summary));
    fmt::print(
        "  memory and time are those of the search; gt simulate --compile.enable_autoparallel "
        "also\n"
        "  counts communicators, packed collectives, CUDA graphs and the update\n");
    return summary.fits() || flags_.memory_price > 0;  // a soft budget may be exceeded
  }

  static void Compare(const FoundPlacement& found) {
    if (found.rivals.empty()) return;
    fmt::print("\nthe best placements of hand-written layouts, by the same costs\n");
    for (const FoundPlacement::Rival& rival : found.rivals) {
      if (rival.found == nullptr) {
        fmt::print("  {:<20} does not fit, or takes longer\n", rival.name);
        continue;
      }
      const Placement& placed = rival.found->placement;
      fmt::print("  {:<20} {:>10.2f} ms  {:>8.2f} GiB  {:.3f} x the plan\n", rival.name,
                 placed.step_us / 1e3, static_cast<double>(placed.peak_bytes) / (1 << 30),
                 placed.step_us / found.best->placement.step_us);
    }
  }

  const Config& config_;
  const PlaceFlags& flags_;
  const JobCluster cluster_;
  const int64_t ranks_;
  const Clock::time_point start_;
  Clock::time_point captured_;
  std::optional<SingleDeviceGraph> step_;
  std::unique_ptr<Graph> read_;  // where a file says what the step is
  FoundPlacement found_;
  SearchProgress progress_;
};

}  // namespace

int RunPlace(Arguments args) {
  Config config;
  PlaceFlags flags;
  CommandLine line("gt place",
                   "finds how every parameter and value of a train step is laid out on a mesh of "
                   "ranks: at the least predicted time, within a rank's memory");
  line.Flag("pin", &flags.pins,
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
      .Flag("tokens", &flags.tokens, AtLeast(0), kTokensHelp)
      .OptionalPositional("PLAN", &flags.other, "the second plan of --diff")
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}\n{}Ctrl-C ends the search with the best so far.\n", line.Help(), kPlanningHelp);
    return 0;
  }
  if (!flags.diff.empty()) return ShowDifferences(flags);
  if (!flags.iopddl.empty()) {
    return SolveIopddl(flags, static_cast<int>(std::max<int64_t>(1, config.threads)));
  }
  PlanForCluster(&config);
  JobCluster cluster = ClusterOfPlan(config);
  SetDeterministic(config.training.deterministic);
  auto placer = std::make_unique<Placer>(config, flags, std::move(cluster));
  const int status = placer->Run();
  // The end of the process takes apart what is left faster than its destructors.
  [[maybe_unused]] static const Placer* const left = placer.release();
  return status;
}

}  // namespace gt::cli
