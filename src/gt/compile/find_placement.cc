#include "gt/compile/find_placement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <future>
#include <ranges>
#include <thread>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/job/config.h"
#include "gt/placement/hand_layouts.h"
#include "gt/placement/joined_axes.h"
#include "gt/placement/solver/deadline.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/link_model.h"
#include "gt/sim/node_cost.h"

namespace gt {
namespace {

using placement::AxisUse;
using placement::DeviceMesh;
using placement::Pin;
using placement::PlaceProblem;
using placement::Pricing;
using placement::SearchOptions;
using Clock = std::chrono::steady_clock;

// Of the work on a plan.
constexpr double kShareForHandWritten = 0.1, kShareForStart = 0.05, kShareForJudging = 0.2,
                 kShareForWaiting = 0.05, kShareForOrder = 0.02;
// Of the best hand-written layout: a mesh on which the quick search finds nothing below it comes last.
constexpr double kHopeless = 2;
// Plans to begin with need not be proven: they are improved on.
constexpr double kGapOfStart = 0.03;
// Predictions are not good enough to tell plans apart that differ by less.
constexpr double kNoticeable = 0.995;
// Of hand-written layouts, to be judged with finely sharded parameters as well.
constexpr size_t kMostFinest = 2;
// Plans that searches met are judged as well if they take so many times as long as the best one at the
// most. Predicted steps are spread as widely.
constexpr double kWorthJudging = 1.05;
// How many nodes the steps of all plans that are judged may have together, before passes.
constexpr int64_t kJudgedNodes = 100'000;
constexpr size_t kLeastJudged = 4;
// A hand-written layout that takes so many times as long as another plan is not judged.
constexpr double kTooLong = 1.25;
// At least, to find out why there is no placement.
constexpr double kSecondsToRefuse = 5;
// Than the least memory.
constexpr double kLittleMore = 1.03;

// How many of the first axes are for data parallelism, by the degrees of parallelism.*; -1: they do not say.
int DataAxesOf(const Config& config, const DeviceMesh& mesh);

class Finder {
 public:
  explicit Finder(const PlacementRequest& request)
      : request_(request),
        links_(request.cluster != nullptr ? *request.cluster
                                          : ReadCluster(ClusterPath(request.config.comm.cluster))),
        step_(std::make_shared<placement::FoldedStep>(
            placement::FoldStep(request.step, request.fold))),
        start_(Clock::now()) {}

  FoundPlacement Run() {
    TryHandWritten();
    if (request_.for_judging) AddFinestByHand();
    double bound = placement::kForbidden;
    for (const DeviceMesh& mesh : MeshesInOrder()) {
      if (result_.best != nullptr && SecondsLeft() <= 0) {
        ++result_.meshes_not_tried;
        continue;
      }
      result_.meshes.push_back(mesh);
      const std::shared_ptr<PlacedProblem> found = Try(mesh, {});
      bound = std::min(bound, last_bound_);
      if (found != nullptr) searched_.push_back(found);
      if (IsBetter(found)) result_.best = found;
    }
    if (!request_.for_judging) CompareWithOtherMeshes();
    if (result_.best == nullptr) {
      TakeSmallest();
      if (!result_.fits) return RunWithEnough();
      searched_.push_back(result_.best);
    }
    placement::Placement& best = result_.best->placement;
    // Meshes that were not tried may have better ones.
    best.bound_us = result_.meshes_not_tried > 0 ? 0 : std::min(bound, best.total_us());
    if (request_.for_judging) ChooseCandidates();
    return std::move(result_);
  }

 private:
  // The most promising first, by a quick search on each, so that a search which its time limit ends has seen
  // them. A mesh of more axes counts like the meshes of two that it is finer than. A judge wants plans of
  // several meshes and so the order in which each is a little better than the ones before.
  std::vector<DeviceMesh> MeshesInOrder() {
    std::vector<DeviceMesh> meshes = request_.meshes;
    if (request_.for_judging || meshes.size() < 2) return meshes;
    struct Priced {
      bool is_deep;  // searches on it take many times as long
      double price;
      DeviceMesh mesh;
    };
    std::vector<Priced> priced;
    for (const DeviceMesh& mesh : meshes) {
      const bool is_deep = mesh.axes() > 2;
      double price = is_deep ? placement::kForbidden : QuickPrice(mesh);
      for (int split = 1; is_deep && split < mesh.axes(); ++split) {
        price = std::min(price, QuickPrice(placement::JoinAxes(mesh, split)));
      }
      priced.push_back({is_deep, price, mesh});
    }
    std::ranges::stable_sort(priced, {},
                             [](const Priced& one) { return std::pair(one.is_deep, one.price); });
    for (size_t i = 0; i < meshes.size(); ++i) meshes[i] = priced[i].mesh;
    return meshes;
  }

  double QuickPrice(const DeviceMesh& mesh) {
    for (const auto& [known, price] : quick_) {
      if (known == mesh) return price;
    }
    const std::shared_ptr<PlacedProblem> found = ProblemOn(mesh, {});
    SearchOptions search = Options();
    search.work_limit *= kShareForOrder;
    search.relative_gap = kGapOfStart;
    if (result_.best != nullptr) search.give_up_at = kHopeless * PriceOf(result_.best);
    SearchOn(*found, search);
    const bool is_feasible = found->placement.feasible;
    quick_.emplace_back(mesh, is_feasible ? PriceOf(found) : placement::kForbidden);
    return quick_.back().second;
  }

  bool IsAllowed(const placement::HandLayout& layout) const {
    return std::ranges::find(request_.meshes, layout.mesh) != request_.meshes.end();
  }

  // Layouts on the job's meshes: they are candidates, and searches end early where they are not beaten.
  void TryHandWritten() {
    for (const placement::HandLayout& layout : HandWritten()) {
      FoundPlacement::Rival rival{layout.name, nullptr};
      if (IsAllowed(layout)) {
        rival.found = Try(layout.mesh, layout.axes);
        if (rival.found != nullptr) allowed_.emplace_back(layout, rival.found);
        if (IsBetter(rival.found)) result_.best = rival.found;
      } else if (request_.for_judging) {
        continue;
      }
      result_.rivals.push_back(std::move(rival));
    }
  }

  // Layouts on other meshes, to be shown beside the plan. They come last: the plan is what was asked for.
  void CompareWithOtherMeshes() {
    const std::vector<placement::HandLayout> layouts = HandWritten();
    for (size_t i = 0; i < layouts.size() && SecondsLeft() > 0; ++i) {
      if (!IsAllowed(layouts[i])) {
        result_.rivals[i].found = Try(layouts[i].mesh, layouts[i].axes);
      }
    }
  }

  // The best of them also with parameters sharded as finely as gt train shards them.
  void AddFinestByHand() {
    std::ranges::stable_sort(allowed_, {}, [](const auto& one) { return PriceOf(one.second); });
    for (size_t i = 0; i < allowed_.size(); ++i) {
      const auto& [layout, found] = allowed_[i];
      by_hand_.push_back({found, layout.name});
      if (i >= kMostFinest) continue;
      const std::shared_ptr<PlacedProblem> finest = Try(layout.mesh, layout.axes, /*finest=*/true);
      if (finest != nullptr && PriceOf(finest) != PriceOf(found)) {
        by_hand_.push_back({finest, layout.name});
      }
    }
  }

  using Candidate = FoundPlacement::Candidate;
  using Candidates = std::vector<Candidate>;

  // What is predicted of a step is between two extremes: moves of parameters and gradients hide as well as
  // they ever could, which is how plans are searched, and none hides at all. Plans that are good at either
  // end are judged, in turn, with those by hand.
  void ChooseCandidates() {
    const double worthwhile = kWorthJudging * PriceOf(result_.best);
    Candidates hiding;
    for (const std::shared_ptr<PlacedProblem>& found : searched_) {
      if (PriceOf(found) <= worthwhile) hiding.push_back({found, ""});
      AddMet(*found, found->placement.met, request_.overlap, worthwhile, hiding);
    }
    std::ranges::stable_sort(hiding, {}, [](const Candidate& one) { return PriceOf(one.plan); });
    const Candidates waiting = request_.overlap ? PlansThatHideNothing(worthwhile) : Candidates();
    const size_t most =
        std::max(kLeastJudged, static_cast<size_t>(kJudgedNodes / request_.step.node_count()));
    const std::array<const Candidates*, 3> lists = {&hiding, &by_hand_, &waiting};
    const size_t longest = std::ranges::max(lists | std::views::transform(&Candidates::size));
    for (size_t i = 0; i < longest; ++i) {
      for (const Candidates* list : lists) {
        if (i < list->size() && result_.candidates.size() < most) {
          AddTo(result_.candidates, (*list)[i]);
        }
      }
    }
  }

  // On the meshes of plans that are nearly the best, those that take least first.
  Candidates PlansThatHideNothing(double worthwhile) {
    std::vector<DeviceMesh> meshes;
    const auto add = [&](const std::shared_ptr<PlacedProblem>& found) {
      const DeviceMesh& mesh = found->pricing->mesh();
      const bool known = std::ranges::find(meshes, mesh) != meshes.end();
      if (!known && PriceOf(found) <= worthwhile) meshes.push_back(mesh);
    };
    for (const std::shared_ptr<PlacedProblem>& found : searched_) add(found);
    for (const Candidate& layout : by_hand_) add(layout.plan);
    Candidates plans;
    for (const DeviceMesh& mesh : meshes) {
      if (SecondsLeft() <= 0) break;
      const std::shared_ptr<PlacedProblem> found = ProblemFor(mesh);
      SearchOptions search = Options();
      search.overlap = false;
      search.work_limit *= kShareForWaiting;
      search.relative_gap = 1 - kNoticeable;
      SearchOn(*found, search);
      if (!found->placement.feasible) continue;
      const placement::Placement best = found->placement;
      AddMet(*found, {best.labels}, /*overlap=*/false, placement::kForbidden, plans);
      AddMet(*found, best.met, /*overlap=*/false, kWorthJudging * best.step_us, plans);
    }
    const auto serial = [](const Candidate& one) {
      return one.plan->placement.cost.step_us(/*overlap=*/false);
    };
    std::ranges::stable_sort(plans, {}, serial);
    return plans;
  }

  // A copy of the problem that was searched on the mesh, or the same again.
  std::shared_ptr<PlacedProblem> ProblemFor(const DeviceMesh& mesh) const {
    for (const std::shared_ptr<PlacedProblem>& found : searched_) {
      if (found->pricing->mesh() == mesh) return std::make_shared<PlacedProblem>(*found);
    }
    return ProblemOn(mesh, {});
  }

  // Placements of a problem that fit and, with or without overlap, take so long at the most.
  void AddMet(const PlacedProblem& found, const std::vector<std::vector<int32_t>>& met,
              bool overlap, double longest, Candidates& to) const {
    for (const std::vector<int32_t>& labels : met) {
      if (CostOf(*found.problem, labels).step_us(overlap) > longest) continue;
      auto other = std::make_shared<PlacedProblem>(PlacedProblem{
          found.pricing, found.problem, PlacementOf(*found.problem, Options(), labels)});
      other->placement.bound_us = result_.best->placement.bound_us;
      if (other->placement.feasible) AddTo(to, {std::move(other), ""});
    }
  }

  static void AddTo(Candidates& all, Candidate candidate) {
    const bool known = std::ranges::any_of(all, [&](const Candidate& other) {
      return other.plan->problem == candidate.plan->problem &&
             other.plan->placement.labels == candidate.plan->placement.labels;
    });
    if (!known) all.push_back(std::move(candidate));
  }

  static double PriceOf(const std::shared_ptr<PlacedProblem>& found) {
    return found->placement.total_us();
  }

  bool IsBetter(const std::shared_ptr<PlacedProblem>& found) const {
    return found != nullptr && (result_.best == nullptr ||
                                found->placement.total_us() < result_.best->placement.total_us());
  }

  std::vector<placement::HandLayout> HandWritten() const {
    if (request_.batch == 0) return {};
    std::vector<placement::HandLayout> layouts = placement::HandLayouts(
        {.ranks = request_.meshes.front().ranks(),
         .batch = request_.batch,
         .gpus_per_node = links_.cluster().gpus_per_node,
         .experts = !request_.step.modules().With(ModuleRole::kExperts).empty(),
         .meshes = request_.meshes});
    std::erase_if(layouts, [this](const placement::HandLayout& layout) {
      const auto is_model = [](AxisUse use) { return use == AxisUse::kModel; };
      if (request_.split_batch && std::ranges::all_of(layout.axes, is_model)) return true;
      return request_.only_experts &&
             std::ranges::find(layout.axes, AxisUse::kExperts) == layout.axes.end();
    });
    return layouts;
  }

  // The caller's pins, and that ranks have parts of the batch.
  std::vector<Pin> DemandsOn(const DeviceMesh& mesh, const std::vector<AxisUse>& axes) const {
    std::vector<Pin> pins;
    if (request_.pins) pins = request_.pins(mesh);
    if (request_.split_batch) AddBatchPins(mesh, axes, pins);
    return pins;
  }

  void AddBatchPins(const DeviceMesh& mesh, const std::vector<AxisUse>& axes,
                    std::vector<Pin>& pins) const {
    const size_t given = pins.size();
    for (const auto& input : request_.step.inputs()) {
      const TensorType& type = input->value.type();
      if (input->role != InputRole::kInput || type.rank() < 2) continue;
      const auto names_it = [&](const Pin& pin) { return MatchesFqn(pin.pattern, input->name); };
      if (std::any_of(pins.begin(), pins.begin() + static_cast<ptrdiff_t>(given), names_it))
        continue;
      const std::string layout = BatchLayout(mesh, axes, type.sizes[0].as_const().value_or(0));
      if (!layout.empty()) pins.push_back({input->name, layout});
    }
  }

  // A hand-written layout says which axes are for data, and so do the degrees of parallelism.*; of another mesh
  // it is the first axis that can cut the batch. Empty: none can.
  std::string BatchLayout(const DeviceMesh& mesh, const std::vector<AxisUse>& axes,
                          int64_t batch) const {
    const int data_axes = DataAxesOf(request_.config, mesh);
    std::string layout;
    int64_t ways = 1;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      const bool is_wanted = !axes.empty()    ? axes[static_cast<size_t>(axis)] != AxisUse::kModel
                             : data_axes >= 0 ? axis < data_axes
                                              : ways == 1;
      const bool cuts = is_wanted && mesh.size(axis) > 1 && ways * mesh.size(axis) <= batch;
      layout += cuts ? "S(0)" : "?";
      if (cuts) ways *= mesh.size(axis);
    }
    return ways > 1 ? layout : "";
  }

  // Placements are of interest that take so many times as long as the best one so far, or less.
  double Worthwhile(const std::vector<AxisUse>& axes) const {
    if (!request_.for_judging) return 1;
    return axes.empty() ? kNoticeable : kTooLong;
  }

  double SecondsLeft() const {
    if (placement::Deadline::interrupted()) return 0;
    return request_.time_limit_s - std::chrono::duration<double>(Clock::now() - start_).count();
  }
  SearchOptions Options() const { return SearchOptionsFor(request_, SecondsLeft()); }

  Pricing PricingOn(const DeviceMesh& mesh) const {
    Pricing pricing(mesh, links_, SpeedOf(links_.cluster()), request_.costs);
    pricing.set_expert_skew(request_.expert_skew);
    if (!request_.config.comm.contention) pricing.set_share_taken(0);
    if (request_.config.compile.fsdp_bucketing) pricing.set_packed(ParametersPerCollective());
    return pricing;
  }

  // Collectives of parameters are packed by block. Only links that were measured say what a single
  // collective costs beside its bytes; between ranks on CPUs that is most of it.
  double ParametersPerCollective() const {
    if (!std::holds_alternative<MeasuredLinks>(links_.cluster().links)) return 1;
    const auto parameters = std::ranges::count_if(request_.step.inputs(), [](const auto& input) {
      return input->role == InputRole::kParameter;
    });
    constexpr size_t kOutsideOfBlocks = 2;  // embedding and head
    const size_t buckets =
        request_.step.modules().With(ModuleRole::kBlock).size() + kOutsideOfBlocks;
    return std::max(1.0, static_cast<double>(parameters) / static_cast<double>(buckets));
  }

  std::shared_ptr<PlacedProblem> ProblemOn(const DeviceMesh& mesh, const std::vector<AxisUse>& axes,
                                           bool finest = false) const {
    auto found = std::make_shared<PlacedProblem>();
    found->pricing = std::make_shared<Pricing>(PricingOn(mesh));
    placement::ProblemOptions problem;
    problem.axes = axes;
    problem.fold = request_.fold;
    problem.finest_parameters = request_.finest_parameters || finest;
    problem.reshard_after_forward =
        request_.config.parallelism.fsdp_reshard_after_forward != ReshardAfterForward::kNever;
    problem.pins = DemandsOn(mesh, axes);
    found->problem = std::make_shared<PlaceProblem>(request_.step, *found->pricing, problem, step_);
    return found;
  }

  void SearchOn(PlacedProblem& found, SearchOptions search) {
    if (request_.progress) {
      const std::string mesh = found.pricing->mesh().ToString();
      if (result_.best != nullptr) request_.progress(mesh, PriceOf(result_.best), 0);
      search.progress = [this, mesh](double step_us, double bound_us) {
        request_.progress(mesh, step_us, bound_us);
      };
    }
    found.placement = Search(*found.problem, search);
    log::Debug("placed on mesh {} after {:.2f} s: {:.2f} ms, at least {:.2f} ms",
               found.pricing->mesh().ToString(), request_.time_limit_s - SecondsLeft(),
               found.placement.step_us / 1e3, found.placement.bound_us / 1e3);
  }

  std::shared_ptr<PlacedProblem> Try(const DeviceMesh& mesh, const std::vector<AxisUse>& axes,
                                     bool finest = false) {
    SearchOptions search = Options();
    if (request_.for_judging) search.work_limit *= kShareForJudging;
    // A hand-written layout is shown, not claimed to be the best of its kind.
    if (!axes.empty()) search.work_limit *= kShareForHandWritten;
    std::future<std::vector<JoinedPlans>> joined;
    if (mesh.axes() > 2 && result_.best == nullptr) {
      const auto when = search.threads > 1 ? std::launch::async : std::launch::deferred;
      joined = std::async(when, [&] { return PlansOnJoinedAxes(mesh); });
    }
    const std::shared_ptr<PlacedProblem> found = ProblemOn(mesh, axes, finest);
    if (joined.valid()) {
      search.starts = [&] { return OnFinerMesh(joined.get(), *found); };
    }
    const bool is_shown = !axes.empty() && !request_.for_judging;
    const bool competes = !is_shown && (axes.empty() || !request_.only_experts);
    if (result_.best != nullptr && competes) {
      search.give_up_at = Worthwhile(axes) * PriceOf(result_.best);
    }
    SearchOn(*found, search);
    last_bound_ = found->placement.bound_us;
    return found->placement.feasible ? found : nullptr;
  }

  // Plans on a mesh that joins the axes before `split`, and those after it.
  struct JoinedPlans {
    int split;
    std::shared_ptr<PlacedProblem> joined;
  };

  // Those on meshes of two axes that this one is finer than. Pins name axes, so that they mean nothing
  // there.
  std::vector<JoinedPlans> PlansOnJoinedAxes(const DeviceMesh& mesh) {
    std::vector<JoinedPlans> plans;
    if (request_.pins && !request_.pins(mesh).empty()) return plans;
    for (int split = 1; split < mesh.axes(); ++split) {
      const std::shared_ptr<PlacedProblem> joined = ProblemOn(placement::JoinAxes(mesh, split), {});
      SearchOptions search = Options();
      search.work_limit *= kShareForStart;
      search.relative_gap = kGapOfStart;
      if (result_.best != nullptr) search.give_up_at = result_.best->placement.total_us();
      SearchOn(*joined, search);
      if (joined->placement.feasible) plans.push_back({split, joined});
    }
    return plans;
  }

  // Their labels on the finer mesh.
  static std::vector<std::vector<int32_t>> OnFinerMesh(const std::vector<JoinedPlans>& plans,
                                                       const PlacedProblem& finer) {
    std::vector<std::vector<int32_t>> all;
    for (const JoinedPlans& plan : plans) {
      std::vector<std::vector<int32_t>> met = plan.joined->placement.met;
      met.push_back(plan.joined->placement.labels);
      for (const std::vector<int32_t>& coarse : met) {
        std::vector<int32_t> labels =
            LabelsOnFinerMesh(*plan.joined->problem, coarse, plan.split, *finer.problem);
        if (!labels.empty()) all.push_back(std::move(labels));
      }
    }
    return all;
  }

  // Prices led to nothing that fits. What needs least may fit all the same.
  void TakeSmallest() {
    result_.best = Smallest();
    const int64_t limit = request_.memory_bytes;
    if (result_.best == nullptr) Refuse();
    result_.fits = limit <= 0 || result_.best->placement.peak_bytes <= limit;
    if (!result_.fits && !request_.for_judging) Refuse();
  }

  // Whoever judges may count less. The plan that needs least takes very long, and its step more memory than is
  // counted, since it moves whatever it can. A little more is enough for plans that make sense.
  FoundPlacement RunWithEnough() const {
    PlacementRequest more = request_;
    more.memory_bytes =
        std::llround(kLittleMore * static_cast<double>(result_.best->placement.peak_bytes));
    more.time_limit_s = std::max(SecondsLeft(), kSecondsToRefuse);
    FoundPlacement found = Finder(more).Run();
    found.fits = false;
    return found;
  }

  // Of all meshes; null: there is none, or none was found in time.
  std::shared_ptr<PlacedProblem> Smallest() const {
    std::shared_ptr<PlacedProblem> smallest;
    for (const DeviceMesh& mesh : request_.meshes) {
      const std::shared_ptr<PlacedProblem> found = ProblemOn(mesh, {});
      found->placement = SmallestPlacement(*found->problem, OptionsToRefuse());
      if (!found->placement.feasible) continue;
      if (smallest == nullptr || found->placement.peak_bytes < smallest->placement.peak_bytes) {
        smallest = found;
      }
    }
    return smallest;
  }

  // A refusal says why, however long the search took that led to it.
  SearchOptions OptionsToRefuse() const {
    SearchOptions search = SearchOptionsFor(request_, std::max(SecondsLeft(), kSecondsToRefuse));
    search.overlap = false;
    search.memory_price = 0;
    return search;
  }

  [[noreturn]] void Refuse() const {
    std::string where;
    for (const DeviceMesh& mesh : request_.meshes) {
      where += (where.empty() ? "mesh " : ", ") + mesh.ToString();
    }
    const std::vector<Pin> pins = ContradictingPins();
    std::string demands;
    for (const Pin& pin : pins) {
      demands += fmt::format("{}--pin {}={}", demands.empty() ? "" : ", ", pin.pattern, pin.layout);
    }
    if (!pins.empty() && !IsFeasible(pins, /*with_memory=*/false)) {
      Fail(ErrorCode::kNoPlacement, "{}: these demands contradict each other: {}", where, demands);
    }
    if (result_.best == nullptr && placement::Deadline::interrupted()) {
      Fail(ErrorCode::kNoPlacement, "{}: stopped by Ctrl-C before a placement was found", where);
    }
    if (result_.best == nullptr) {
      Fail(ErrorCode::kNoPlacement,
           "{}: no placement was found within {:.0f} s; allow more (--time_limit, "
           "--compile.autoparallel_time_limit)",
           where, request_.time_limit_s);
    }
    Fail(ErrorCode::kNoPlacement,
         "{}: no placement fits into {} GiB of memory on each rank{}{}; with {} GiB "
         "(--memory_gb, --training.memory_limit_gb) there is one. More ranks, a smaller batch or "
         "--compile.memory_policy need less",
         where, EnoughGibibytes(request_.memory_bytes), demands.empty() ? "" : " together with ",
         demands, EnoughGibibytes(result_.best->placement.peak_bytes));
  }

  // The demands without any of which there is a placement, on one of the meshes.
  std::vector<Pin> ContradictingPins() const {
    std::vector<Pin> pins;
    if (request_.pins) pins = request_.pins(request_.meshes.front());
    for (size_t i = pins.size(); i-- > 0;) {
      std::vector<Pin> fewer = pins;
      fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
      if (!IsFeasible(fewer, /*with_memory=*/true)) pins = fewer;
    }
    return pins;
  }

  bool IsFeasible(const std::vector<Pin>& pins, bool with_memory) const {
    SearchOptions search = OptionsToRefuse();
    if (!with_memory) {
      search.memory = {.limit = 0};
      search.question_limit = 1;  // whatever there is will do
    }
    placement::ProblemOptions options;
    options.fold = request_.fold;
    options.pins = pins;
    return std::ranges::any_of(request_.meshes, [&](const DeviceMesh& mesh) {
      const Pricing pricing = PricingOn(mesh);
      return Search(PlaceProblem(request_.step, pricing, options, step_), search).feasible;
    });
  }

  const PlacementRequest& request_;
  const LinkModel links_;
  const std::shared_ptr<const placement::FoldedStep> step_;
  const Clock::time_point start_;
  FoundPlacement result_;
  std::vector<std::pair<DeviceMesh, double>> quick_;      // prices of quick searches
  std::vector<std::shared_ptr<PlacedProblem>> searched_;  // the best of each mesh
  // Hand-written layouts on the job's meshes, and those of them that are judged.
  std::vector<std::pair<placement::HandLayout, std::shared_ptr<PlacedProblem>>> allowed_;
  Candidates by_hand_;
  double last_bound_ = 0;
};

// With up to two axes all; with three those of which some axes fill a node.
std::vector<DeviceMesh> AllMeshes(const Config& config, int64_t ranks) {
  std::vector<DeviceMesh> meshes = placement::MeshesOf(ranks, 2);
  constexpr size_t kMostWithThree = 4;
  const size_t most = meshes.size() + kMostWithThree;
  const int64_t node = ReadCluster(ClusterPath(config.comm.cluster)).gpus_per_node;
  for (const DeviceMesh& mesh : placement::MeshesOf(ranks, 3)) {
    if (mesh.axes() != 3 || meshes.size() == most) continue;
    if (mesh.size(2) == node || mesh.size(1) * mesh.size(2) == node) meshes.push_back(mesh);
  }
  return meshes;
}

}  // namespace

DeviceMesh RequireRanks(DeviceMesh mesh, int64_t ranks) {
  if (mesh.ranks() != ranks) {
    Fail(ErrorCode::kBadMesh, "mesh {} has {} ranks, but the job has {} (--ranks)", mesh.ToString(),
         mesh.ranks(), ranks);
  }
  return mesh;
}

namespace {

// Degrees as axes, the last one with consecutive ranks; empty: none was given.
std::vector<int64_t> AxesOf(const ParallelismSection& degrees, int64_t ranks) {
  const int64_t inner = degrees.context_parallel_degree * degrees.tensor_parallel_degree;
  int64_t shards = degrees.data_parallel_shard_degree;
  const int64_t experts = degrees.expert_parallel_degree;
  const bool given = degrees.data_parallel_replicate_degree > 1 || inner > 1 || experts > 1;
  if (shards < 0) {
    const int64_t others = degrees.data_parallel_replicate_degree * inner;
    shards = given && ranks % others == 0 ? ranks / others : 1;
  }
  // Experts are spread over the last ranks of those that shard, unless the axes after these are as many.
  const int64_t within = experts % inner == 0 ? experts / inner : 1;
  const auto axes_with = [&](int64_t outside, int64_t inside) {
    std::vector<int64_t> sizes = {degrees.data_parallel_replicate_degree, outside, inside,
                                  degrees.context_parallel_degree, degrees.tensor_parallel_degree};
    std::erase(sizes, 1);
    return sizes;
  };
  if (within > 1 && shards % within == 0) {
    std::vector<int64_t> sizes = axes_with(shards / within, within);
    if (sizes.size() <= placement::kMaxAxes) return sizes;
  }
  return axes_with(shards, 1);
}

int DataAxesOf(const Config& config, const DeviceMesh& mesh) {
  if (config.mesh != "auto") return -1;
  std::vector<int64_t> sizes = AxesOf(config.parallelism, mesh.ranks());
  if (sizes.empty()) return -1;
  const ParallelismSection& degrees = config.parallelism;
  const auto for_model = [](int64_t degree) { return degree > 1 ? 1 : 0; };
  return mesh.axes() - for_model(degrees.tensor_parallel_degree) -
         for_model(degrees.context_parallel_degree);
}

}  // namespace

std::vector<DeviceMesh> MeshesOf(const Config& config, int64_t ranks) {
  if (config.mesh != "auto") return {RequireRanks(DeviceMesh::Parse(config.mesh), ranks)};
  const std::vector<int64_t> sizes = AxesOf(config.parallelism, ranks);
  if (!sizes.empty()) return {RequireRanks(DeviceMesh(sizes), ranks)};
  return AllMeshes(config, ranks);
}

SearchOptions SearchOptionsFor(const PlacementRequest& request, double time_limit_s) {
  SearchOptions search;
  search.overlap = request.overlap && request.costs == placement::CostFormulas::kSimulated;
  search.memory.limit = request.memory_bytes;
  search.memory.accumulates_gradients = request.accumulates_gradients;
  search.memory_price = request.memory_price;
  // Results do not depend on it; a region of the search has two halves.
  constexpr int64_t kUseful = 2;
  const int64_t threads = request.config.threads;
  search.threads = static_cast<int>(
      threads > 0 ? threads : std::min<int64_t>(kUseful, std::thread::hardware_concurrency()));
  search.time_limit_s = std::max(time_limit_s, 0.1);
  return search;
}

FoundPlacement FindPlacement(const PlacementRequest& request) { return Finder(request).Run(); }

placement::Plan ReadPlanFile(const std::string& path) {
  try {
    return placement::PlanFromJson(ReadWholeFile(path), path);
  } catch (const UnreadableFile& error) {
    Fail(ErrorCode::kBadPlan, "{}: {}", path, error.what());
  }
}

}  // namespace gt
