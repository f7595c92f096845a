#include "gt/placement/search/step_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace gt::placement {
namespace {

// Nothing is quite free, so that of two labellings that take the same the one with less to do is found.
constexpr double kLeastFactor = 1e-5;
constexpr double kMostExpensive = 64;  // steps for a full memory; no more is needed to forbid one
constexpr double kWholeRange = kMostExpensive;
constexpr double kLoosest = 1e-2;     // gap of a question
constexpr double kShareOfHope = 0.1;  // that may be lost to a question's gap
constexpr double kShareOfGap = 0.05;  // that may be left to better prices
constexpr double kUseless = 0.2;      // share of the hope below which only a labelling is wanted
// Questions that must close this share of the gap together: beyond that a region is cut in two.
constexpr int kTail = 6;
constexpr double kTailShare = 0.03;

bool IsAllowed(const StepRegion& region, const StepPlan& plan) {
  return std::ranges::all_of(region.choices, [&](const LabelChoice& choice) {
    return choice.allowed[static_cast<size_t>(plan.labels[static_cast<size_t>(choice.variable)])];
  });
}

// What a label takes by itself.
double AloneUs(const StepTime& time) {
  return std::accumulate(time.kernels.begin(), time.kernels.end(), time.visible);
}

}  // namespace

bool LabelCut::IsLow(const StepVariable& of, size_t at) const {
  switch (by) {
    case By::kTime:
      return AloneUs(of.times[at]) <= limit;
    case By::kMemory:
      return static_cast<double>(of.usage[at]) <= limit;
    case By::kName:
      break;
  }
  return static_cast<int32_t>(at) == label;
}

StepBounder::StepBounder(const StepProblem& problem, const StepMoments& moments,
                         const BoundSettings& settings)
    : problem_(problem), moments_(moments), settings_(settings), sum_(problem.At({})) {
  for (const StepVariable& variable : problem.variables) {
    allowed_.emplace_back(variable.times.size(), true);
  }
}

StepPlanPtr StepBounder::PlanOf(std::vector<int32_t> labels) const {
  auto plan = std::make_shared<StepPlan>();
  plan->time = problem_.TimeOf(labels);
  plan->loads = moments_.Loads(labels);
  plan->labels = std::move(labels);
  for (const int64_t load : plan->loads) {
    plan->over = std::max(plan->over, load - problem_.usage_limit);
  }
  plan->cost = plan->time.Total();
  if (plan->over > 0) plan->cost += static_cast<double>(plan->over) * settings_.over_price;
  return plan;
}

void StepBounder::SetLabels(const StepRegion& region) {
  for (const int32_t v : std::exchange(restricted_, {})) {
    allowed_[static_cast<size_t>(v)].assign(allowed_[static_cast<size_t>(v)].size(), true);
  }
  for (const LabelChoice& choice : region.choices) {
    allowed_[static_cast<size_t>(choice.variable)] = choice.allowed;
    restricted_.push_back(choice.variable);
  }
}

void StepBounder::NoteNear(const Answer& answer, std::vector<std::pair<int32_t, int32_t>>& near) {
  for (size_t v = 0; v < answer.label_bounds.size(); ++v) {
    const std::vector<double>& bounds = answer.label_bounds[v];
    const auto best = std::ranges::min_element(bounds) - bounds.begin();
    near.emplace_back(static_cast<int32_t>(v), static_cast<int32_t>(best));
  }
}

void StepBounder::Learn(LabelBounds bounds, StepRegion& region) const {
  for (size_t v = 0; v < region.label_bounds.size(); ++v) {
    for (size_t label = 0; label < bounds[v].size(); ++label) {
      bounds[v][label] = std::max(bounds[v][label], region.label_bounds[v][label]);
    }
  }
  // Every labelling has one of a variable's labels.
  for (size_t v = 0; v < bounds.size(); ++v) {
    double least = kForbidden;
    for (size_t label = 0; label < bounds[v].size(); ++label) {
      if (allowed_[v][label]) least = std::min(least, bounds[v][label]);
    }
    region.bound = std::max(region.bound, least);
  }
  region.label_bounds = std::move(bounds);
}

bool StepBounder::Exclude(double target, StepRegion& region) {
  constexpr double kRounding = 1e-11;
  const double hopeless = target * (1 - kRounding);
  bool any = false;
  for (size_t v = 0; v < region.label_bounds.size(); ++v) {
    std::vector<bool>& allowed = allowed_[v];
    bool changed = false;
    for (size_t label = 0; label < allowed.size(); ++label) {
      if (!allowed[label] || region.label_bounds[v][label] < hopeless) continue;
      allowed[label] = false;
      changed = true;
    }
    if (!changed) continue;
    any = true;
    const auto variable = static_cast<int32_t>(v);
    const auto choice = std::ranges::find(region.choices, variable, &LabelChoice::variable);
    if (choice == region.choices.end()) {
      region.choices.push_back({variable, allowed});
      restricted_.push_back(variable);
    } else {
      choice->allowed = allowed;
    }
  }
  return any;
}

// Of a variable's value, as long as it is alive.
double StepBounder::PriceOfByte(size_t variable, const StepPrices& prices) const {
  if (problem_.variables[variable].usage.empty()) return 0;
  double price = 0;
  for (const auto& [moment, us] : prices.memory) price += us * moments_.CountAt(variable, moment);
  return price;
}

StepBounder::Answer StepBounder::Ask(const StepPrices& prices, double gap, double cutoff,
                                     double enough, bool exactly, const Deadline& deadline) {
  double constant = 0;
  for (const auto& [moment, us] : prices.memory) {
    constant += us * static_cast<double>(problem_.usage_limit);
  }
  for (size_t v = 0; v < sum_.variables.size(); ++v) {
    const StepVariable& of = problem_.variables[v];
    const double price = PriceOfByte(v, prices);
    std::vector<double>& costs = sum_.variables[v].costs;
    for (size_t label = 0; label < costs.size(); ++label) {
      costs[label] = allowed_[v][label] ? of.times[label].At(prices.factors) : kForbidden;
      if (price > 0) costs[label] += price * static_cast<double>(of.usage[label]);
    }
  }
  for (size_t e = 0; e < sum_.edges.size(); ++e) {
    sum_.edges[e].factor = problem_.edges[e].FactorAt(prices.factors);
  }
  SolverOptions solver;
  solver.relative_gap = gap;
  solver.cutoff = cutoff + constant;
  solver.enough = enough + constant;
  solver.work_limit = exactly ? settings_.exact_ask_work : settings_.ask_work;
  solver.time_limit_s = deadline.left_s();
  solver.messages = &messages_;
  Answer answer;
  solver.label_bounds = &answer.label_bounds;
  const LabelSolution solution = Solve(sum_, solver);
  work_ += solution.work;
  answer.bound = solution.lower_bound - constant;
  for (std::vector<double>& bounds : answer.label_bounds) {
    for (double& bound : bounds) bound -= constant;
  }
  if (solution.feasible) answer.plan = PlanOf(solution.labels);
  return answer;
}

double StepBounder::TimeUnit(const std::vector<StepPlanPtr>& plans) const {
  double unit = 1;
  for (const StepPlanPtr& plan : plans) {
    const double time = plan->time.Total();
    unit = unit == 1 ? time : std::min(unit, time);
  }
  return std::max(unit, 1.0);
}

// A row that says that there is one labelling, one for each phase and one for each moment. Prices stay
// within the radius of the center, and where they may be.
StepBounder::Mixture StepBounder::Mix(const std::vector<StepPlanPtr>& plans,
                                      const std::vector<int32_t>& moments, const StepPrices& center,
                                      double radius) const {
  const double us = TimeUnit(plans);
  double bytes = std::max(1.0, static_cast<double>(problem_.usage_limit));
  if (problem_.usage_limit == 0) {
    for (const StepPlanPtr& plan : plans) bytes = std::max(bytes, static_cast<double>(plan->over));
  }
  const size_t rows = 1 + kPhases + moments.size();
  LinearProgram program;
  program.right.assign(rows, 0);
  program.right[0] = 1;
  for (const StepPlanPtr& plan : plans) {
    LinearProgram::Column& column = program.columns.emplace_back();
    column.entries.push_back(1);
    double cost = plan->time.visible;
    for (size_t phase = 0; phase < kPhases; ++phase) {
      cost += plan->time.kernels[phase];
      column.entries.push_back((plan->time.moves[phase] - plan->time.kernels[phase]) / us);
    }
    column.cost = cost / us;
    for (const int32_t moment : moments) {
      const int64_t over = plan->loads[static_cast<size_t>(moment)] - problem_.usage_limit;
      column.entries.push_back(static_cast<double>(over) / bytes);
    }
  }
  const auto bounded = [&](size_t row, double low, double high) {
    for (const bool below : {true, false}) {
      LinearProgram::Column& column = program.columns.emplace_back();
      column.cost = below ? high : -low;
      column.entries.assign(rows, 0);
      column.entries[row] = below ? -1 : 1;
    }
  };
  for (size_t phase = 0; phase < kPhases; ++phase) {
    bounded(1 + phase, std::max(kLeastFactor, center.factors[phase] - radius),
            std::min(1 - kLeastFactor, center.factors[phase] + radius));
  }
  const double unit = bytes / us;  // of prices
  const double dearest = std::min(kMostExpensive, settings_.over_price * unit);
  for (size_t k = 0; k < moments.size(); ++k) {
    const auto at = center.memory.find(moments[k]);
    const double price = at == center.memory.end() ? 0 : at->second * unit;
    const double high = std::min(dearest, std::max(2 * price, price + radius));
    bounded(1 + kPhases + k, std::min(high, std::max(0.0, price - radius)), high);
  }
  if (settings_.over_price < kForbidden && !moments.empty()) {
    LinearProgram::Column& column = program.columns.emplace_back();
    column.cost = dearest;  // the fullest moment is paid for, once
    column.entries.assign(rows, -1);
    std::fill_n(column.entries.begin(), 1 + kPhases, 0);
  }
  Mixture mixture{Minimize(program), {}, 0};
  mixture.value = mixture.solution.value * us;
  const std::vector<double>& duals = mixture.solution.prices;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    mixture.prices.factors[phase] = std::clamp(-duals[1 + phase], kLeastFactor, 1 - kLeastFactor);
  }
  for (size_t k = 0; k < moments.size(); ++k) {
    const double price = std::clamp(-duals[1 + kPhases + k], 0.0, dearest);
    if (price > 0) mixture.prices.memory[moments[k]] = price / unit;
  }
  return mixture;
}

StepBounder::Outcome StepBounder::Bound(StepRegion region, const std::vector<StepPlanPtr>& known,
                                        double best, double target, int asks,
                                        const Deadline& deadline) {
  SetLabels(region);
  messages_ = region.messages != nullptr ? *region.messages : RememberedMessages();
  work_ = 0;
  Outcome outcome;
  std::vector<StepPlanPtr> plans;
  std::vector<int32_t> moments;
  const auto note_moment = [&](const StepPlan& plan) {
    if (plan.over <= 0) return;
    const auto at = static_cast<int32_t>(std::ranges::max_element(plan.loads) - plan.loads.begin());
    if (std::ranges::find(moments, at) == moments.end()) moments.push_back(at);
  };
  const auto is_known = [&](const StepPlan& plan) {
    return std::ranges::any_of(
        plans, [&](const StepPlanPtr& other) { return other->labels == plan.labels; });
  };
  for (const StepPlanPtr& plan : known) {
    note_moment(*plan);
    if (IsAllowed(region, *plan)) plans.push_back(plan);
  }
  StepPrices center = region.prices;
  for (double& factor : center.factors) factor = std::clamp(factor, kLeastFactor, 1 - kLeastFactor);
  StepPrices prices = center;
  double center_bound = -kForbidden, radius = region.exactly ? kWholeRange : settings_.first_radius;
  double hoped = kLoosest * std::min(best, target);  // that the bound rises by
  std::vector<double> gains;                         // of the bound, by question
  for (int i = 0; i < asks && !deadline.passed(); ++i) {
    const double tightest = settings_.relative_gap / 4;
    const double reached = std::min(best, target);
    const double worth = std::max(kShareOfHope * hoped, kShareOfGap * (reached - region.bound));
    const double gap = region.exactly || hoped == kForbidden || reached == kForbidden
                           ? tightest
                           : std::clamp(worth / reached, tightest, kLoosest);
    const double before = region.bound;
    // A labelling this cheap shows that the bound cannot rise at these prices.
    const double enough = region.exactly || i == 0 ? -kForbidden : center_bound + kUseless * hoped;
    ++outcome.asked;
    Answer answer = Ask(prices, gap, target, enough, region.exactly, deadline);
    region.bound = std::max(region.bound, answer.bound);
    // What is known already does not lead to other prices.
    const bool again = answer.plan != nullptr && is_known(*answer.plan);
    if (answer.plan != nullptr && !again) {
      note_moment(*answer.plan);
      plans.push_back(answer.plan);
      outcome.found.push_back(answer.plan);
      if (answer.plan->cost < best) {
        best = answer.plan->cost;
        target = std::min(target, best * (1 - settings_.relative_gap));
      }
    }
    NoteNear(answer, outcome.near);
    if (!answer.label_bounds.empty()) Learn(std::move(answer.label_bounds), region);
    if (region.bound >= target) {
      center = prices;
      break;
    }
    if (Exclude(target, region)) {
      std::erase_if(plans, [&](const StepPlanPtr& plan) { return !IsAllowed(region, *plan); });
    }
    if (plans.empty()) {
      if (answer.plan == nullptr) break;
      continue;  // with fewer labels at the same prices
    }
    if (answer.bound > center_bound) {
      if (i > 0) radius = std::min(kWholeRange, 2 * radius);
      center = prices;
      center_bound = answer.bound;
    }
    const Mixture mixture = Mix(plans, moments, center, radius);
    const double wanted = std::min(target, best);
    const double open_us = wanted < kForbidden ? wanted - center_bound : std::abs(mixture.value);
    hoped = mixture.value - center_bound;
    if (region.exactly) {
      if (again && i > 0) break;
    } else {
      const double loss = gap * std::abs(mixture.value);  // at most
      const double little = kShareOfGap * open_us;
      gains.push_back(region.bound - before);
      if (gains.size() > kTail &&
          std::accumulate(gains.end() - kTail, gains.end(), 0.0) < kTailShare * open_us) {
        break;
      }
      if (hoped <= little || (again && i > 0 && loss <= little)) break;
      if (again) hoped = std::min(hoped, little / kShareOfHope);
    }
    prices = mixture.prices;
  }
  region.prices = center;
  region.messages = std::make_shared<const RememberedMessages>(messages_);
  region.split.reset();
  if (region.bound < target && !plans.empty()) {
    region.split = SplitOf(plans, Mix(plans, moments, center, kWholeRange));
    if (!region.split && region.exactly) {
      region.split = SplitByUsage(*plans.front());
      // A single labelling is left.
      if (!region.split)
        region.bound = std::max(region.bound, std::min(target, plans.front()->cost));
    }
  }
  outcome.region = std::move(region);
  outcome.work = work_;
  return outcome;
}

// Where prices are of no more use: one label of the variable whose labels use memory most differently.
std::optional<LabelCut> StepBounder::SplitByUsage(const StepPlan& plan) const {
  int64_t most = -1;
  size_t variable = 0;
  for (size_t v = 0; v < allowed_.size(); ++v) {
    int64_t least_used = std::numeric_limits<int64_t>::max(), most_used = 0;
    size_t count = 0;
    for (size_t label = 0; label < allowed_[v].size(); ++label) {
      if (!allowed_[v][label]) continue;
      ++count;
      const std::vector<int64_t>& usage = problem_.variables[v].usage;
      least_used = std::min(least_used, usage.empty() ? 0 : usage[label]);
      most_used = std::max(most_used, usage.empty() ? 0 : usage[label]);
    }
    if (count < 2 || most_used - least_used <= most) continue;
    most = most_used - least_used;
    variable = v;
  }
  if (most < 0) return std::nullopt;
  return LabelCut{.variable = static_cast<int32_t>(variable), .label = plan.labels[variable]};
}

// Labels that hardly differ must not come to lie on both sides: those of a variable are split by what they
// cost where the mixed plans differ in that, and else by name.
std::optional<LabelCut> StepBounder::SplitOf(const std::vector<StepPlanPtr>& plans,
                                             const Mixture& mixture) const {
  std::vector<std::pair<const StepPlan*, double>> mixed;
  for (size_t k = 0; k < plans.size(); ++k) {
    constexpr double kSome = 1e-6;
    if (mixture.solution.amounts[k] > kSome) {
      mixed.emplace_back(plans[k].get(), mixture.solution.amounts[k]);
    }
  }
  if (mixed.size() < 2) return std::nullopt;
  const auto label_of = [](const StepPlan& plan, size_t v) {
    return static_cast<size_t>(plan.labels[v]);
  };
  // The mean, and how far from it the plans are.
  const auto spread = [&](auto&& value) {
    double mean = 0, all = 0, far = 0;
    for (const auto& [plan, amount] : mixed) {
      mean += amount * value(*plan);
      all += amount;
    }
    mean /= all;
    for (const auto& [plan, amount] : mixed) far += amount * std::abs(value(*plan) - mean);
    return std::pair(mean, far);
  };
  using By = LabelCut::By;
  struct {
    double far = 0;
    By by = By::kName;
    double mean = 0;
    size_t variable = 0;
  } most;
  std::vector<bool> differs(problem_.variables.size(), false);
  for (size_t v = 0; v < differs.size(); ++v) {
    for (const auto& [plan, amount] : mixed) {
      differs[v] = differs[v] || label_of(*plan, v) != label_of(*mixed.front().first, v);
    }
    if (!differs[v]) continue;
    const StepVariable& of = problem_.variables[v];
    const auto [time, time_far] =
        spread([&](const StepPlan& plan) { return AloneUs(of.times[label_of(plan, v)]); });
    if (time_far > most.far) most = {time_far, By::kTime, time, v};
    const double price = PriceOfByte(v, mixture.prices);
    if (price <= 0) continue;
    const auto [bytes, bytes_far] = spread(
        [&](const StepPlan& plan) { return static_cast<double>(of.usage[label_of(plan, v)]); });
    if (price * bytes_far > most.far) most = {price * bytes_far, By::kMemory, bytes, v};
  }
  constexpr double kHardly = 1e-5;
  if (most.far < kHardly * mixture.value) {
    std::vector<double> far(differs.size(), 0);
    for (const StepEdge& edge : problem_.edges) {
      const auto from = static_cast<size_t>(edge.from), to = static_cast<size_t>(edge.to);
      if (!differs[from] && !differs[to]) continue;
      const CostMatrix& matrix = problem_.matrices[static_cast<size_t>(edge.matrix)];
      const double times = std::accumulate(edge.moves.begin(), edge.moves.end(), edge.visible);
      const double apart = spread([&](const StepPlan& plan) {
                             return times * matrix.At(plan.labels[from], plan.labels[to]);
                           }).second;
      for (const size_t end : {from, to}) {
        if (differs[end]) far[end] += apart;
      }
    }
    for (size_t v = 0; v < far.size(); ++v) {
      if (far[v] > most.far) most = {far[v], By::kName, 0, v};
    }
  }
  if (most.far <= 0) {
    const auto any = std::ranges::find(differs, true);
    if (any == differs.end()) return std::nullopt;
    most = {0, By::kName, 0, static_cast<size_t>(any - differs.begin())};
  }
  const size_t v = most.variable;
  size_t name = 0;  // of the label that most of the mixture has
  double share = 0;
  for (const auto& [plan, amount] : mixed) {
    double same = 0;
    for (const auto& [other, also] : mixed) {
      if (label_of(*other, v) == label_of(*plan, v)) same += also;
    }
    if (same > share) {
      share = same;
      name = label_of(*plan, v);
    }
  }
  return LabelCut{static_cast<int32_t>(v), most.by, most.mean, static_cast<int32_t>(name)};
}

}  // namespace gt::placement
