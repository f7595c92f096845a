#include "gt/placement/search/step_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "gt/placement/search/step_bound.h"
#include "gt/placement/search/step_reduction.h"

namespace gt::placement {
namespace {

constexpr int kRootAsks = 40, kAsks = 10;
constexpr int kNodeAsks = 3;    // of a region, before it is cut in two
constexpr int kRootGuides = 2;  // if they lead to better plans
// A question is asked if it can be hoped to close this share of a region's gap.
constexpr double kWorthAsking = 0.3;
// Of the work that a guide may take, and questions: to find better plans, and to know a region's prices.
constexpr double kGuideShare = 0.03;
constexpr int kPlanQuestions = 200, kGuideQuestions = 25;
// Of the best plan, that plans to begin with must lead to: else they know too little of this problem.
constexpr double kGoodStart = 0.75;
constexpr double kFirstRadius = 0.3, kGuideRadius = 0.05;
constexpr double kAskShare = 0.1;  // of all work that one question may take
// That many sweeps over a large problem are enough for a question; the next one goes on from there.
constexpr double kAskWork = 2e8, kLargeAskSweeps = 32;
constexpr double kAskSweeps = 200, kLeastAskWork = 1e6;  // likewise, over a small one
// Entries that making a question's graph smaller looks at, for each of the problem's, about.
constexpr double kReductionWork = 6;
constexpr double kQuestionWork = 2e5;  // whatever the size of the problem

// Of tables, with the labels that a region has.
double EntriesOf(const StepProblem& problem, const StepRegion& region = {}) {
  std::vector<double> labels;
  for (const StepVariable& variable : problem.variables) {
    labels.push_back(static_cast<double>(variable.times.size()));
  }
  for (const LabelChoice& choice : region.choices) {
    labels[static_cast<size_t>(choice.variable)] =
        static_cast<double>(std::ranges::count(choice.allowed, true));
  }
  double entries = 0;
  for (const StepEdge& edge : problem.edges) {
    entries += labels[static_cast<size_t>(edge.from)] * labels[static_cast<size_t>(edge.to)];
  }
  return entries;
}

struct OpenRegion {
  StepRegion region;
  int asked = 0;        // questions, since it was cut out of another
  bool guided = false;  // whether a part of it says what to do next
};

// What one step of the search makes of a region.
struct Advance {
  std::vector<OpenRegion> regions;
  std::vector<StepPlanPtr> found;
  std::vector<std::pair<int32_t, int32_t>> near;  // further variables and labels to know
  double work = 0;
  int questions = 0;
};

// What is known of a region from the labels that plans have had.
struct Guide {
  bool known = false;  // false: with these labels there is nothing in it
  double bound = 0;    // of labellings with them; what prices reach is at most that
  StepPrices prices;   // at which it is reached
  std::optional<LabelCut> split;
  StepPlanPtr plan;  // the best one of such labels that was found; null: none
  double work = 0;
};

class RegionSearch {
 public:
  // `guided`: parts of the problem are searched first, and tell where to cut it and at which prices.
  RegionSearch(const StepProblem& problem, const StepOptions& options, bool guided)
      : problem_(problem),
        guided_(guided),
        options_(options),
        deadline_(options.time_limit_s),
        moments_(problem) {
    const double entries = EntriesOf(problem);
    const double large = std::max(kAskWork, kLargeAskSweeps * entries);
    const double sweeps = kLeastAskWork + kAskSweeps * entries;
    const double share = kAskShare * options.work_limit;
    settings_ = {.over_price = options.over_price,
                 .relative_gap = options.relative_gap,
                 .ask_work = std::min({large, share, sweeps}),
                 .exact_ask_work = share,
                 .first_radius = guided ? kFirstRadius : kGuideRadius};
    for (std::unique_ptr<StepBounder>& bounder : bounders_) {
      bounder = std::make_unique<StepBounder>(problem, moments_, settings_);
    }
    for (const StepVariable& variable : problem.variables) {
      met_.emplace_back(variable.times.size(), false);
    }
  }

  // A labelling to begin with.
  void Offer(std::vector<int32_t> labels) { Keep(bounders_[0]->PlanOf(std::move(labels))); }
  // One whose labels are worth a look; not if some of them exclude each other.
  void Start(std::vector<int32_t> labels) {
    const StepPlanPtr plan = bounders_[0]->PlanOf(std::move(labels));
    if (plan->time.Serial() < kForbidden) Know(plan);
  }
  // One that prices led to.
  void Know(const StepPlanPtr& plan) {
    Keep(plan);
    const bool is_new = std::ranges::none_of(
        known_, [&](const StepPlanPtr& other) { return other->labels == plan->labels; });
    if (!is_new) return;
    known_.push_back(plan);
    for (size_t v = 0; v < met_.size(); ++v) met_[v][static_cast<size_t>(plan->labels[v])] = true;
  }

  // Bounds all labellings; returns them as a region.
  StepRegion Begin(StepPrices prices) {
    OpenRegion all;
    all.region.prices = std::move(prices);
    if (guided_ && !known_.empty()) all.region = FromStarts(all.region);
    const bool begun = all.region.bound >= kGoodStart * BestCost();
    Advance advance;
    if (begun) {
      advance.regions.push_back(std::move(all));
    } else {
      advance = Ask(std::move(all), *bounders_[0], kAsks);
    }
    StepRegion root = advance.regions[0].region;
    Add(std::move(advance));
    if (guided_) FindPlans();
    return root;
  }

  void Run() {
    while (!open_.empty() && !Finished()) {
      std::vector<OpenRegion> taken;
      for (size_t i = 0; i < (guided_ ? bounders_.size() : 1) && !open_.empty(); ++i) {
        const auto least = std::ranges::min_element(
            open_, {}, [](const OpenRegion& open) { return open.region.bound; });
        if (least->region.bound >= Target()) break;
        taken.push_back(std::move(*least));
        open_.erase(least);
      }
      if (taken.empty()) break;
      std::array<Advance, 2> outcomes;
      const auto advance = [&](size_t i) {
        outcomes[i] = AdvanceOf(std::move(taken[i]), *bounders_[i], taken.size() == 1);
      };
      if (taken.size() > 1 && options_.threads > 1) {
        std::jthread other([&] { advance(1); });
        advance(0);
      } else {
        for (size_t i = 0; i < taken.size(); ++i) advance(i);
      }
      for (Advance& outcome : outcomes) Add(std::move(outcome));
      if (options_.progress && best_ != nullptr) options_.progress(best_->cost, Bound());
    }
    if (aside_ != nullptr) Keep(aside_);
  }

  double work() const { return work_; }
  bool feasible() const { return best_ != nullptr || aside_ != nullptr; }
  // Once it has run.
  const StepPlan& best() const { return *best_; }
  std::vector<std::vector<int32_t>> Met() const {
    std::vector<std::vector<int32_t>> met;
    for (const StepPlanPtr& plan : known_) met.push_back(plan->labels);
    return met;
  }
  // No labelling takes less.
  double Bound() const {
    double bound = std::min(closed_, options_.cutoff);
    for (const OpenRegion& open : open_) bound = std::min(bound, open.region.bound);
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

  // Of labellings that take the same the one with less to do is better.
  void Keep(const StepPlanPtr& plan) {
    if (plan->cost == kForbidden) return;
    constexpr double kSame = 1e-7;
    const bool better = best_ == nullptr || plan->cost < best_->cost * (1 - kSame) ||
                        (plan->cost <= best_->cost && plan->time.Serial() < best_->time.Serial());
    if (better) best_ = plan;
  }

  void Add(Advance advance) {
    work_ += advance.work;
    questions_ += advance.questions;
    for (const StepPlanPtr& plan : advance.found) Know(plan);
    for (const auto& [variable, label] : advance.near) {
      met_[static_cast<size_t>(variable)][static_cast<size_t>(label)] = true;
    }
    for (OpenRegion& open : advance.regions) {
      const StepRegion& region = open.region;
      if (region.bound >= Target() || (!region.split && region.exactly)) {
        closed_ = std::min(closed_, region.bound);
      } else {
        open_.push_back(std::move(open));
      }
    }
  }

  // Asks one question at the prices of a part that has only the labels of plans to begin with. If they
  // prove little, those plans know too little of this problem: nothing is left of them but what to beat.
  StepRegion FromStarts(const StepRegion& all) {
    const double start = BestCost();
    Guide guide = GuideTo(all, kPlanQuestions);
    if (guide.plan != nullptr) Know(guide.plan);
    OpenRegion open;
    open.region = all;
    open.region.prices = std::move(guide.prices);
    Advance advance = Ask(std::move(open), *bounders_[0], 1);
    if (advance.regions[0].region.bound >= kGoodStart * BestCost()) {
      work_ += guide.work;
      StepRegion asked = std::move(advance.regions[0].region);
      advance.regions.clear();
      Add(std::move(advance));
      return asked;
    }
    // Nor does it count as work: what follows is the search without any plans.
    aside_ = std::exchange(best_, nullptr);
    options_.cutoff = std::min(options_.cutoff, start);
    known_.clear();
    for (std::vector<bool>& labels : met_) labels.assign(labels.size(), false);
    return all;
  }

  // Better plans of the whole problem, which decide how many labels are left.
  void FindPlans() {
    for (int round = 0; round < kRootGuides && !open_.empty() && !Finished(); ++round) {
      OpenRegion root = std::move(open_.back());
      open_.pop_back();
      const double before = BestCost();
      Guide guide = GuideTo(root.region, kPlanQuestions);
      work_ += guide.work;
      if (guide.plan != nullptr) Know(guide.plan);
      root.guided = true;
      root.asked = 0;
      if (guide.known) root.region.prices = std::move(guide.prices);
      const bool better = round == 0 || BestCost() < before;
      if (!better || Finished()) {
        open_.push_back(std::move(root));
        return;
      }
      Add(Ask(std::move(root), *bounders_[0], 1));
      if (open_.empty()) return;
      open_.back().guided = true;
      open_.back().asked = 0;
    }
  }

  // What follows depends on what is known before, never on what another thread finds meanwhile. A region
  // that is `alone` is cut rather than asked about: the answers for both halves say more, and can be found
  // at the same time.
  Advance AdvanceOf(OpenRegion open, StepBounder& bounder, bool alone) const {
    if (!open.guided) return Divide(std::move(open), bounder);
    Guide guide = GuideTo(open.region, kGuideQuestions);
    Advance advance;
    const double reach = std::min(guide.bound, Target()) - open.region.bound;
    const bool worth_asking = reach > kWorthAsking * (Target() - open.region.bound) &&
                              open.asked < kNodeAsks && !(alone && guide.split);
    if (!guide.known) {
      advance = Ask(std::move(open), bounder, 1);
    } else if (worth_asking) {
      advance = AskAt(std::move(guide.prices), std::move(open), bounder);
    } else if (guide.split) {
      advance = Cut(open, *guide.split);
    } else {
      advance = Ask(std::move(open), bounder, kAsks);
      advance.regions[0].guided = false;
    }
    advance.work += guide.work;
    if (guide.plan != nullptr) advance.found.push_back(std::move(guide.plan));
    return advance;
  }

  Advance Ask(OpenRegion open, StepBounder& bounder, int asks) const {
    asks = std::min(asks, std::max(1, options_.question_limit - questions_));
    const double setup_work = kQuestionWork + kReductionWork * EntriesOf(problem_, open.region);
    StepBounder::Outcome outcome =
        bounder.Bound(std::move(open.region), known_, BestCost(), Target(), asks, deadline_);
    Advance advance;
    advance.work = outcome.work + setup_work * outcome.asked;
    advance.questions = outcome.asked;
    advance.found = std::move(outcome.found);
    advance.near = std::move(outcome.near);
    const bool has_new_labels = std::ranges::any_of(advance.found, [&](const StepPlanPtr& plan) {
      for (size_t v = 0; v < met_.size(); ++v) {
        if (!met_[v][static_cast<size_t>(plan->labels[v])]) return true;
      }
      return false;
    });
    const bool guided = guided_ && has_new_labels && !outcome.region.exactly;
    advance.regions.push_back({std::move(outcome.region), open.asked + outcome.asked, guided});
    return advance;
  }

  // Prices that do not help are not those to go on from.
  Advance AskAt(StepPrices prices, OpenRegion open, StepBounder& bounder) const {
    const double before = open.region.bound;
    StepPrices center = std::exchange(open.region.prices, std::move(prices));
    Advance advance = Ask(std::move(open), bounder, 1);
    OpenRegion& asked = advance.regions[0];
    if (!(asked.region.bound > before)) asked.region.prices = std::move(center);
    asked.guided = true;
    return advance;
  }

  Advance Divide(OpenRegion open, StepBounder& bounder) const {
    if (!open.region.split) {
      open.region.exactly = true;
      return Ask(std::move(open), bounder, kRootAsks);
    }
    Advance both;
    for (OpenRegion& half : Cut(open, *open.region.split).regions) {
      Advance one = Ask(std::move(half), bounder, kAsks);
      one.regions[0].asked = 0;
      both.work += one.work;
      both.questions += one.questions;
      std::ranges::move(one.found, std::back_inserter(both.found));
      std::ranges::move(one.near, std::back_inserter(both.near));
      std::ranges::move(one.regions, std::back_inserter(both.regions));
    }
    return both;
  }

  Advance Cut(const OpenRegion& open, const LabelCut& cut) const {
    Advance halves;
    for (const bool low : {true, false}) {
      OpenRegion& half = halves.regions.emplace_back(open);
      half.asked = 0;
      Restrict(half.region, cut, low);
    }
    return halves;
  }

  // The problem with only those labels that some plan has had is searched fast. Its plans are good where
  // others are bad. No prices prove more of the whole region than of this part, so that its best prices
  // are those to ask about, and where they prove too little the region must be cut, as the part says.
  Guide GuideTo(const StepRegion& region, int questions) const {
    std::vector<std::vector<bool>> met = met_;
    for (const LabelChoice& choice : region.choices) {
      std::vector<bool>& labels = met[static_cast<size_t>(choice.variable)];
      for (size_t label = 0; label < labels.size(); ++label) {
        if (!choice.allowed[label]) labels[label] = false;
      }
    }
    const bool limited = problem_.usage_limit < std::numeric_limits<int64_t>::max();
    const ReducedStep part = Reduce(problem_, limited, met);
    Guide guide;
    if (!part.feasible) return guide;
    StepOptions options = options_;
    options.work_limit *= kGuideShare;
    options.question_limit = std::min(questions, options_.question_limit);
    options.time_limit_s = deadline_.left_s();
    options.relative_gap /= 2;  // the rest is for what the whole region loses
    options.cutoff = std::min(options_.cutoff, BestCost() * (1 - options.relative_gap));
    options.progress = nullptr;
    RegionSearch search(part.problem, options, /*guided=*/false);
    for (const StepPlanPtr& plan : known_) {
      auto reduced = std::make_shared<StepPlan>(*plan);
      if (part.Translate(plan->labels, reduced->labels)) search.Know(reduced);
    }
    StepRegion all = search.Begin(region.prices);
    guide.known = true;
    guide.bound = search.Bound();
    guide.prices = std::move(all.prices);
    if (all.split) {
      const auto v = static_cast<size_t>(all.split->variable);
      guide.split = all.split;
      guide.split->variable = part.variable[v];
      guide.split->label = part.labels[v][static_cast<size_t>(all.split->label)];
    }
    search.Run();
    if (search.feasible()) {
      guide.plan = bounders_[0]->PlanOf(part.Restore(search.best().labels));
    }
    guide.work = search.work();
    return guide;
  }

  void Restrict(StepRegion& region, const LabelCut& cut, bool low) const {
    region.split.reset();
    const StepVariable& variable = problem_.variables[static_cast<size_t>(cut.variable)];
    auto choice = std::ranges::find(region.choices, cut.variable, &LabelChoice::variable);
    if (choice == region.choices.end()) {
      region.choices.push_back({cut.variable, std::vector<bool>(variable.times.size(), true)});
      choice = region.choices.end() - 1;
    }
    for (size_t label = 0; label < choice->allowed.size(); ++label) {
      if (cut.IsLow(variable, label) != low) choice->allowed[label] = false;
    }
  }

  const StepProblem& problem_;
  const bool guided_;
  StepOptions options_;
  const Deadline deadline_;
  const StepMoments moments_;
  BoundSettings settings_;
  // One for each region that is worked on at a time. They keep nothing from one region to the next.
  std::array<std::unique_ptr<StepBounder>, 2> bounders_;
  std::vector<OpenRegion> open_;
  std::vector<StepPlanPtr> known_;
  std::vector<std::vector<bool>> met_;  // labels of known plans, by variable
  StepPlanPtr best_;
  StepPlanPtr aside_;           // one that the search does not know of
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
  memory.starts = nullptr;
  return memory;
}

// Searches a problem that is reduced already, from labellings of it.
StepSolution SearchReduced(const StepProblem& problem, const StepOptions& options, bool guided,
                           const std::vector<std::vector<int32_t>>& starts = {}) {
  RegionSearch search(problem, options, guided);
  for (const std::vector<int32_t>& start : starts) search.Start(start);
  search.Begin({});
  StepSolution solution;
  // Where memory has a price everything fits: then time or work has ended before a labelling was met.
  const bool may_not_fit = options.over_price == kForbidden;
  if (may_not_fit && !search.feasible() && search.Bound() < options.cutoff) {
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
  solution.met = search.Met();
  solution.labels = search.best().labels;
  solution.time = search.best().time;
  solution.cost = search.best().cost;
  return solution;
}

}  // namespace

static StepSolution SearchWhole(StepProblem problem, const StepOptions& options, bool guided) {
  const bool limited = problem.usage_limit < std::numeric_limits<int64_t>::max();
  const ReducedStep reduced = Reduce(problem, limited);
  problem = {};
  StepSolution solution;
  solution.lower_bound = kForbidden;
  if (!reduced.feasible) return solution;
  std::vector<std::vector<int32_t>> starts;
  if (options.starts) starts = options.starts();
  for (std::vector<int32_t>& start : starts) start = reduced.NoWorse(start);
  std::erase(starts, std::vector<int32_t>());
  solution = SearchReduced(reduced.problem, options, guided, starts);
  if (solution.feasible) solution.labels = reduced.Restore(solution.labels);
  for (std::vector<int32_t>& labels : solution.met) labels = reduced.Restore(labels);
  return solution;
}

StepSolution SearchStep(StepProblem problem, const StepOptions& options) {
  return SearchWhole(std::move(problem), options, /*guided=*/true);
}

LeastMemory FindLeastMemory(const StepProblem& problem, const StepOptions& options) {
  StepProblem memory = WithoutTimes(problem);
  memory.usage_limit = 0;
  StepSolution solution = SearchWhole(std::move(memory), ForMemory(options), /*guided=*/false);
  return {solution.feasible ? static_cast<int64_t>(std::ceil(solution.cost))
                            : std::numeric_limits<int64_t>::max(),
          static_cast<int64_t>(std::floor(solution.lower_bound)), std::move(solution.labels)};
}

}  // namespace gt::placement
