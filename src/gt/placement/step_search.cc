#include "gt/placement/step_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "gt/placement/step_bound.h"
#include "gt/placement/step_reduction.h"

namespace gt::placement {
namespace {

constexpr int kRootAsks = 40, kAsks = 10;
constexpr int kRootRounds = 4;  // of these asks, with a recombination after each
// Of the work that one recombination may take, and questions.
constexpr double kRecombinationShare = 0.1;
constexpr int kRecombinationQuestions = 200;
constexpr size_t kNewPlans = 3;    // that must be known for another one, at least
constexpr double kAskShare = 0.1;  // of all work that one question may take
// That many sweeps over a large problem are enough for a question; the next one goes on from there.
constexpr double kAskWork = 2e8;
// Entries that making a question's graph smaller looks at, for each of the problem's, about.
constexpr double kReductionWork = 6;
constexpr double kQuestionWork = 2e5;  // whatever the size of the problem

double EntriesOf(const StepProblem& problem) {
  double entries = 0;
  for (const StepEdge& edge : problem.edges) {
    const CostMatrix& matrix = problem.matrices[static_cast<size_t>(edge.matrix)];
    entries += static_cast<double>(matrix.rows) * matrix.columns;
  }
  return entries;
}

StepSolution SearchReduced(const StepProblem& problem, const StepOptions& options, bool recombines);

class RegionSearch {
 public:
  RegionSearch(const StepProblem& problem, const StepOptions& options, bool recombines)
      : problem_(problem),
        recombines_(recombines),
        options_(options),
        deadline_(options.time_limit_s),
        moments_(problem),
        setup_work_(kQuestionWork + kReductionWork * EntriesOf(problem)) {
    const BoundSettings settings{.over_price = options.over_price,
                                 .relative_gap = options.relative_gap,
                                 .ask_work = std::min(kAskWork, kAskShare * options.work_limit),
                                 .exact_ask_work = kAskShare * options.work_limit};
    for (std::unique_ptr<StepBounder>& bounder : bounders_) {
      bounder = std::make_unique<StepBounder>(problem, moments_, settings);
    }
  }

  // A labelling to begin with.
  void Offer(std::vector<int32_t> labels) { Keep(bounders_[0]->PlanOf(std::move(labels))); }

  // Of all labellings. Better plans are looked for on the way, since they decide which labels are left.
  void Begin() {
    StepRegion all;
    for (int round = 0; round < kRootRounds; ++round) {
      const int asks = std::min(kRootAsks / kRootRounds, options_.question_limit - questions_);
      const bool was_known = best_ != nullptr;
      const double before = BestCost();
      Add(BoundOf(std::move(all), *bounders_[0], asks));
      if (open_.empty() || Finished()) return;
      Recombine();
      const bool better = best_ != nullptr && (!was_known || BestCost() < before);
      if (round + 1 == kRootRounds || (!better && round > 0)) return;
      all = std::move(open_.back());
      open_.pop_back();
      all.split.reset();
    }
  }

  void Run() {
    while (!open_.empty() && !Finished()) {
      const auto least = std::ranges::min_element(open_, {}, &StepRegion::bound);
      if (least->bound >= Target()) break;
      StepRegion region = std::move(*least);
      open_.erase(least);
      Divide(std::move(region));
      if (!open_.empty() && !Finished()) Recombine();
      if (options_.progress && best_ != nullptr) options_.progress(best_->cost, Bound());
    }
  }

  double work() const { return work_; }
  bool feasible() const { return best_ != nullptr; }
  const StepPlan& best() const { return *best_; }
  // No labelling takes less.
  double Bound() const {
    double bound = std::min(closed_, options_.cutoff);
    for (const StepRegion& region : open_) bound = std::min(bound, region.bound);
    return best_ != nullptr ? std::min(bound, best_->cost) : bound;
  }

 private:
  bool Finished() const {
    return work_ >= options_.work_limit || questions_ >= options_.question_limit ||
           deadline_.passed();
  }
  double BestCost() const { return best_ != nullptr ? best_->cost : kForbidden; }
  double Target() const {
    return std::min(BestCost() * (1 - options_.relative_gap), options_.cutoff);
  }

  StepBounder::Outcome BoundOf(StepRegion region, StepBounder& bounder, int asks) const {
    return bounder.Bound(std::move(region), known_, BestCost(), Target(), asks, deadline_);
  }

  void Add(StepBounder::Outcome outcome) {
    work_ += outcome.work + setup_work_ * static_cast<double>(outcome.found.size());
    questions_ += static_cast<int>(outcome.found.size());
    for (StepPlanPtr& plan : outcome.found) {
      Keep(plan);
      const bool is_new = std::ranges::none_of(
          known_, [&](const StepPlanPtr& other) { return other->labels == plan->labels; });
      if (is_new) known_.push_back(std::move(plan));
    }
    StepRegion& region = outcome.region;
    if (region.bound >= Target() || (!region.split && region.exactly)) {
      closed_ = std::min(closed_, region.bound);
    } else {
      open_.push_back(std::move(region));
    }
  }

  // Of labellings that take the same the one with less to do is better.
  void Keep(const StepPlanPtr& plan) {
    if (plan->cost == kForbidden) return;
    constexpr double kSame = 1e-7;
    const bool better = best_ == nullptr || plan->cost < best_->cost * (1 - kSame) ||
                        (plan->cost <= best_->cost && plan->time.Serial() < best_->time.Serial());
    if (better) best_ = plan;
  }

  // Plans that were met are good in some parts and bad in others, at prices that suit none of them. The best
  // labelling of which each label is that of some plan is found fast: there are few such labels.
  void Recombine() {
    if (!recombines_ || known_.size() < recombined_ + std::max(kNewPlans, recombined_ / 4)) return;
    recombined_ = known_.size();
    std::vector<std::vector<bool>> met;
    for (size_t v = 0; v < problem_.variables.size(); ++v) {
      std::vector<bool>& labels = met.emplace_back(problem_.variables[v].times.size(), false);
      for (const StepPlanPtr& plan : known_) labels[static_cast<size_t>(plan->labels[v])] = true;
      if (best_ != nullptr) labels[static_cast<size_t>(best_->labels[v])] = true;
    }
    const bool limited = problem_.usage_limit < std::numeric_limits<int64_t>::max();
    const ReducedStep part = Reduce(problem_, limited, met);
    if (!part.feasible) return;
    StepOptions options = options_;
    options.work_limit *= kRecombinationShare;
    options.question_limit = std::min(kRecombinationQuestions, options_.question_limit);
    options.time_limit_s = deadline_.left_s();
    options.threads = 1;
    options.cutoff = std::min(options_.cutoff, BestCost());
    options.progress = nullptr;
    const StepSolution found = SearchReduced(part.problem, options, /*recombines=*/false);
    work_ += found.work;
    if (found.feasible) Offer(part.Restore(found.labels));
  }

  // Both halves are bounded with what was known before, so that it does not matter which is first.
  void Divide(StepRegion region) {
    if (!region.split) {
      region.exactly = true;
      Add(BoundOf(std::move(region), *bounders_[0], kRootAsks));
      return;
    }
    std::array<StepRegion, 2> halves = {region, region};
    for (size_t i = 0; i < halves.size(); ++i) Restrict(halves[i], /*low=*/i == 0);
    std::array<StepBounder::Outcome, 2> outcomes;
    const auto bound = [&](size_t i) {
      outcomes[i] = BoundOf(std::move(halves[i]), *bounders_[i], kAsks);
    };
    if (options_.threads > 1) {
      std::jthread other([&] { bound(1); });
      bound(0);
    } else {
      bound(0);
      bound(1);
    }
    for (StepBounder::Outcome& outcome : outcomes) Add(std::move(outcome));
  }

  void Restrict(StepRegion& region, bool low) const {
    const LabelChoice split = *std::exchange(region.split, std::nullopt);
    auto choice = std::ranges::find(region.choices, split.variable, &LabelChoice::variable);
    if (choice == region.choices.end()) {
      const auto v = static_cast<size_t>(split.variable);
      region.choices.push_back(
          {split.variable, std::vector<bool>(problem_.variables[v].times.size(), true)});
      choice = region.choices.end() - 1;
    }
    for (size_t label = 0; label < split.allowed.size(); ++label) {
      if (split.allowed[label] != low) choice->allowed[label] = false;
    }
  }

  const StepProblem& problem_;
  const bool recombines_;
  size_t recombined_ = 0;  // so many plans were known
  const StepOptions& options_;
  const Deadline deadline_;
  const StepMoments moments_;
  const double setup_work_;
  // One for each half of a region, whether or not they have a thread each: they learn as they go.
  std::array<std::unique_ptr<StepBounder>, 2> bounders_;
  std::vector<StepRegion> open_;
  std::vector<StepPlanPtr> known_;
  StepPlanPtr best_;
  double closed_ = kForbidden;  // the least bound of regions that are finished
  double work_ = 0;
  int questions_ = 0;
};

// The same step if time did not matter: only memory above the limit costs something, a microsecond a byte.
StepProblem WithoutTimes(const StepProblem& problem) {
  StepProblem memory = problem;
  for (StepVariable& variable : memory.variables) {
    for (StepTime& time : variable.times) {
      time = {.visible = time.visible == kForbidden ? kForbidden : 0};
    }
  }
  for (StepEdge& edge : memory.edges) {
    edge.visible = 0;
    edge.moves = {};
  }
  return memory;
}

StepOptions ForMemory(const StepOptions& options) {
  StepOptions memory = options;
  memory.over_price = 1;
  memory.relative_gap = 1e-3;
  memory.cutoff = kForbidden;
  memory.progress = nullptr;
  return memory;
}

// Searches a problem that is reduced already.
StepSolution SearchReduced(const StepProblem& problem, const StepOptions& options,
                           bool recombines) {
  RegionSearch search(problem, options, recombines);
  search.Begin();
  StepSolution solution;
  if (!search.feasible() && search.Bound() < options.cutoff) {
    // Prices led to nothing that fits; perhaps nothing does.
    StepOptions memory = ForMemory(options);
    memory.cutoff = 0.5;  // bytes
    const StepSolution fitting = SearchReduced(WithoutTimes(problem), memory, false);
    if (fitting.feasible && fitting.cost == 0) {
      search.Offer(fitting.labels);
    } else if (fitting.lower_bound >= memory.cutoff) {
      solution.lower_bound = kForbidden;
      return solution;
    }
  }
  search.Run();
  solution.work = search.work();
  solution.lower_bound = search.Bound();
  solution.feasible = search.feasible();
  if (!solution.feasible) return solution;
  solution.labels = search.best().labels;
  solution.time = search.best().time;
  solution.cost = search.best().cost;
  return solution;
}

// What the search begins with; not feasible if that is nothing, or does not fit.
StepSolution SolutionOf(const StepProblem& problem, const StepOptions& options) {
  StepSolution solution;
  if (options.start.empty()) return solution;
  const StepMoments moments(problem);
  const StepBounder bounder(problem, moments, {.over_price = options.over_price});
  const StepPlanPtr plan = bounder.PlanOf(options.start);
  if (plan->cost == kForbidden) return solution;
  solution.feasible = true;
  solution.labels = plan->labels;
  solution.time = plan->time;
  solution.cost = plan->cost;
  return solution;
}

}  // namespace

static StepSolution SearchWhole(StepProblem problem, const StepOptions& options, bool recombines) {
  StepSolution start = SolutionOf(problem, options);
  StepOptions below = options;  // what is known already
  below.cutoff = std::min(options.cutoff, start.cost);
  const bool limited = problem.usage_limit < std::numeric_limits<int64_t>::max();
  const ReducedStep reduced = Reduce(problem, limited);
  problem = {};
  StepSolution solution;
  solution.lower_bound = kForbidden;
  if (!reduced.feasible) return solution;
  solution = SearchReduced(reduced.problem, below, recombines);
  if (solution.feasible) solution.labels = reduced.Restore(solution.labels);
  if (start.cost > solution.cost) return solution;
  start.lower_bound = std::min(solution.lower_bound, start.cost);
  return start.feasible ? start : solution;
}

StepSolution SearchStep(StepProblem problem, const StepOptions& options) {
  return SearchWhole(std::move(problem), options, /*recombines=*/true);
}

LeastMemory FindLeastMemory(const StepProblem& problem, const StepOptions& options) {
  StepProblem memory = WithoutTimes(problem);
  memory.usage_limit = 0;
  const StepSolution solution =
      SearchWhole(std::move(memory), ForMemory(options), /*recombines=*/false);
  return {solution.feasible ? static_cast<int64_t>(std::ceil(solution.cost))
                            : std::numeric_limits<int64_t>::max(),
          static_cast<int64_t>(std::floor(solution.lower_bound))};
}

}  // namespace gt::placement
