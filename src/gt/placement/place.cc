#include "gt/placement/place.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace gt::placement {
namespace {

using Clock = std::chrono::steady_clock;
using Weights = PlaceProblem::Weights;

// Nothing is quite free, so that of two placements that take the same the one with less to do is found.
constexpr double kLeast = 1e-3;

// A moment at which a plan used more memory than there is, and what a whole memory's worth of bytes
// costs there, in microseconds.
struct Moment {
  int32_t at = 0;
  double price = 0;
};

// Where a plan uses most, and how much.
std::pair<int32_t, int64_t> PeakMoment(const LabelProblem& problem,
                                       const std::vector<int32_t>& labels) {
  std::map<int32_t, int64_t> changes;
  for (size_t i = 0; i < problem.variables.size(); ++i) {
    const Variable& variable = problem.variables[i];
    if (variable.usage.empty()) continue;
    const int64_t usage = variable.usage[static_cast<size_t>(labels[i])];
    for (const LiveRange& range : variable.live) {
      changes[range.begin] += usage * range.count;
      changes[range.end] -= usage * range.count;
    }
  }
  int64_t used = 0;
  std::pair<int32_t, int64_t> peak = {0, 0};
  for (const auto& [at, change] : changes) {
    used += change;
    if (used > peak.second) peak = {at, used};
  }
  return peak;
}

class PlacementSearch {
 public:
  PlacementSearch(const PlaceProblem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        start_(Clock::now()),
        memory_(problem.Labels({})),
        limited_(options.memory.limit > 0) {
    AddMemory(problem, options.memory, memory_);
    double size = 0;
    for (const Edge& edge : memory_.edges) {
      const CostMatrix& matrix = memory_.matrices[static_cast<size_t>(edge.matrix)];
      size += static_cast<double>(matrix.rows) * matrix.columns;
    }
    questions_ = static_cast<int>(std::clamp(kWork / std::max(size, 1.0), kFewest, kMost));
    allowed_.resize(memory_.variables.size());
    for (size_t i = 0; i < allowed_.size(); ++i) {
      allowed_[i].assign(memory_.variables[i].costs.size(), true);
    }
  }

  Placement Run() {
    const int all = questions_;
    if (options_.overlap || limited_) TryManyPrices(all / 2);
    Ascend();
    if (limited_ && !best_.feasible) FindAnyPlan();
    while (options_.overlap || limited_) {
      if (Done() || !best_.feasible || !Probe()) break;
      Ascend();
    }
    best_.bound_us = best_.feasible ? std::min(bound_, best_.step_us) : bound_;
    return best_;
  }

 private:
  struct Answer {
    bool feasible = false;
    double bound = 0;
    PlanCost cost;
    double over =
        0;  // the worst moment's usage over the limit, as a part of it; 0 or less: it fits
  };

  double SecondsLeft() const {
    return options_.time_limit_s - std::chrono::duration<double>(Clock::now() - start_).count();
  }
  bool Done() const {
    return SecondsLeft() <= 0 || (questions_ <= 0 && best_.feasible) ||
           bound_ >= options_.give_up_at ||
           (best_.feasible && best_.step_us - bound_ <= kGoodEnough * best_.step_us);
  }

  // Plans of all kinds, from those that move much to those that compute much, and from those that use
  // much memory to those that use little.
  void TryManyPrices(int left) {
    std::vector<Moment> best_moments;
    for (double memory : {0.0, 0.05, 0.2, 1.0}) {
      if (memory > 0 && moments_.empty()) break;
      for (double f : {kLeast, 1 - kLeast}) {
        for (double b : {kLeast, 0.4, 0.8}) {
          if (Done()) return;
          if (questions_ <= left) break;
          for (Moment& moment : moments_) moment.price = memory * best_guess();
          forward_ = options_.overlap ? f : kLeast;
          backward_ = options_.overlap ? b : kLeast;
          const Answer answer = Ask();
          if (!answer.feasible || answer.bound <= bound_) continue;
          bound_ = answer.bound;
          best_prices_ = {forward_, backward_};
          best_moments = moments_;
        }
      }
    }
    std::tie(forward_, backward_) = best_prices_;
    if (!best_moments.empty()) moments_ = best_moments;
  }

  // Moves the prices to where the bound is largest: along the slopes, which say what of a plan is too
  // much, with steps that shrink as the bound comes near the best plan.
  void Ascend() {
    double scale = 1;
    double top = 0;
    for (int round = 0, stuck = 0; round < kRounds && stuck < kPatience && !Done(); ++round) {
      const Answer answer = Ask();
      if (!answer.feasible) {
        bound_ = kForbidden;
        return;
      }
      bound_ = std::max(bound_, answer.bound);
      Report();
      if (answer.bound > top * (1 + 1e-5)) {
        top = answer.bound;
        stuck = 0;
      } else {
        ++stuck;
        scale *= 0.7;
      }
      if (!Follow(answer, scale)) return;
    }
  }

  // The prices lead to a plan that fits only by chance; the solver looks for one.
  void FindAnyPlan() {
    SolverOptions solver;
    solver.threads = options_.threads;
    solver.time_limit_s = std::clamp(SecondsLeft(), kLeastSeconds, kMostSecondsForAny);
    const LabelSolution solution = Solve(memory_, solver);
    if (!solution.feasible) return;
    last_ = solution.labels;
    Keep(placement::CostOf(problem_, last_));
    Ascend();
  }

  // Whether there is a slope to follow.
  bool Follow(const Answer& answer, double scale) {
    const double f = answer.cost.forward_moves - answer.cost.forward_kernels;
    const double b = answer.cost.backward_moves - answer.cost.backward_kernels;
    auto free = [](double at, double slope) {  // not against the end of the range
      return slope > 0 ? at < 1 - kLeast : at > kLeast;
    };
    double norm = 0;
    if (options_.overlap && free(forward_, f)) norm += f * f;
    if (options_.overlap && free(backward_, b)) norm += b * b;
    std::vector<double> slopes;
    for (const Moment& moment : moments_) {
      const double over = UsedAt(moment.at, last_) / Limit() - 1;
      slopes.push_back(over);
      if (over > 0 || moment.price > 0) norm += over * over * best_guess() * best_guess();
    }
    if (norm <= 0) return false;
    const double aim = best_.feasible ? best_.step_us : answer.bound * 1.05;
    const double step = scale * std::max(aim - answer.bound, 1e-4 * aim) / norm;
    if (options_.overlap) {
      forward_ = std::clamp(forward_ + step * f, kLeast, 1 - kLeast);
      backward_ = std::clamp(backward_ + step * b, kLeast, 1 - kLeast);
    }
    for (size_t i = 0; i < moments_.size(); ++i) {
      moments_[i].price =
          std::max(0.0, moments_[i].price + step * slopes[i] * best_guess() * best_guess());
    }
    return true;
  }
  double best_guess() const { return best_.feasible ? best_.step_us : std::max(bound_, 1.0); }

  // Asks for the best plan with each label of each parameter: what costs more than the best plan that is
  // known, even at the bound's prices, is part of no better one. Whether anything was learned.
  bool Probe() {
    bool learned = false;
    const double before = best_.step_us;
    for (size_t i : LargestParameters()) {
      for (size_t label = 0; label < allowed_[i].size(); ++label) {
        if (Done()) return learned;
        const std::vector<bool> all = allowed_[i];
        if (!all[label] || std::count(all.begin(), all.end(), true) == 1) continue;
        allowed_[i].assign(all.size(), false);
        allowed_[i][label] = true;
        const Answer answer = Ask();
        allowed_[i] = all;
        if (!answer.feasible || answer.bound >= best_.step_us * (1 - kGoodEnough)) {
          allowed_[i][label] = false;
          learned = true;
        }
      }
    }
    return learned || best_.step_us < before * (1 - kGoodEnough);
  }

  std::vector<size_t> LargestParameters() const {
    std::vector<std::pair<int64_t, size_t>> all;
    for (size_t i = 0; i < problem_.folding().classes.size(); ++i) {
      const FoldedClass& of = problem_.folding().classes[i];
      if (of.input == nullptr || of.input->role != InputRole::kParameter) continue;
      all.emplace_back(-of.count() * memory_.variables[i].usage[0], i);
    }
    std::sort(all.begin(), all.end());
    std::vector<size_t> classes;
    classes.reserve(all.size());
    for (const auto& [bytes, i] : all) classes.push_back(i);
    return classes;
  }

  // The best plan at the present prices, and what is learned from it.
  Answer Ask() {
    --questions_;
    Weights weights;
    if (options_.overlap) weights = {1 - forward_, 1 - backward_, forward_, backward_};
    LabelProblem labels = problem_.Labels(weights);
    double constant = 0;
    for (const Moment& moment : moments_) constant += moment.price;
    for (size_t i = 0; i < labels.variables.size(); ++i) AddPrices(i, labels.variables[i].costs);
    SolverOptions solver;
    solver.threads = options_.threads;
    // Without a limit the solver ends after a certain amount of work, on every machine the same.
    // Prices are no more than a guess: their best plan need not be found to the last digit.
    solver.quick = options_.overlap || !moments_.empty();
    if (solver.quick) solver.relative_gap = kPriceGap;
    const LabelSolution solution = Solve(labels, solver);
    if (!solution.feasible) return {};
    Answer answer;
    answer.feasible = true;
    answer.bound = solution.lower_bound - constant;
    answer.cost = placement::CostOf(problem_, solution.labels);
    last_ = solution.labels;
    answer.over = limited_ ? AddMoment() : 0;
    if (answer.over <= 0) Keep(answer.cost);
    return answer;
  }

  void AddPrices(size_t variable, std::vector<double>& costs) const {
    for (size_t label = 0; label < costs.size(); ++label) {
      if (!allowed_[variable][label]) costs[label] = kForbidden;
    }
    const Variable& of = memory_.variables[variable];
    if (of.usage.empty()) return;
    double price = 0;
    for (const Moment& moment : moments_) price += moment.price * CountAt(of, moment.at);
    if (price == 0) return;
    for (size_t label = 0; label < costs.size(); ++label) {
      costs[label] += price * static_cast<double>(of.usage[label]) / Limit();
    }
  }

  double Limit() const { return static_cast<double>(std::max<int64_t>(1, memory_.usage_limit)); }
  static int32_t CountAt(const Variable& variable, int32_t at) {
    auto after = std::upper_bound(variable.live.begin(), variable.live.end(), at,
                                  [](int32_t t, const LiveRange& range) { return t < range.end; });
    return after != variable.live.end() && after->begin <= at ? after->count : 0;
  }
  double UsedAt(int32_t at, const std::vector<int32_t>& labels) const {
    double used = 0;
    for (size_t i = 0; i < memory_.variables.size(); ++i) {
      const Variable& variable = memory_.variables[i];
      if (variable.usage.empty()) continue;
      used += static_cast<double>(variable.usage[static_cast<size_t>(labels[i])]) *
              CountAt(variable, at);
    }
    return used;
  }

  // The moment at which the last plan uses most is one to put a price on, if it is too much.
  double AddMoment() {
    const auto [at, used] = PeakMoment(memory_, last_);
    const double over = static_cast<double>(used) / Limit() - 1;
    if (over <= 0) return over;
    for (const Moment& moment : moments_) {
      if (moment.at == at) return over;
    }
    moments_.push_back({at, 0});
    return over;
  }

  void Keep(const PlanCost& cost) {
    const double step = cost.step_us(options_.overlap);
    if (best_.feasible && step >= best_.step_us) return;
    best_.feasible = true;
    best_.labels = last_;
    best_.cost = cost;
    best_.step_us = step;
    best_.peak_bytes = PeakUsage(memory_, last_) + options_.memory.workspace;
    Report();
  }

  void Report() const {
    if (options_.progress && best_.feasible) {
      options_.progress(best_.step_us, std::min(bound_, best_.step_us));
    }
  }

  static constexpr int kRounds = 30, kPatience = 6;
  // How many times the solver may be asked: fewer for larger problems, whatever the machine.
  static constexpr double kWork = 1e7, kFewest = 6, kMost = 100;
  static constexpr double kGoodEnough = 1e-4, kPriceGap = 2e-3;
  static constexpr double kLeastSeconds = 0.5, kMostSecondsForAny = 5;

  const PlaceProblem& problem_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  LabelProblem memory_;  // for usage and live ranges; its costs are not looked at
  const bool limited_;
  std::vector<std::vector<bool>> allowed_;
  double forward_ = kLeast, backward_ = kLeast;
  std::pair<double, double> best_prices_ = {kLeast, kLeast};
  std::vector<Moment> moments_;
  std::vector<int32_t> last_;
  double bound_ = 0;
  int questions_ = 0;  // left
  Placement best_;
};

}  // namespace

double PlanCost::step_us(bool overlap) const {
  const double kernels = forward_kernels + backward_kernels + visible;
  if (!overlap) return kernels + forward_moves + backward_moves;
  return kernels + std::max(0.0, forward_moves - forward_kernels) +
         std::max(0.0, backward_moves - backward_kernels);
}

PlanCost CostOf(const PlaceProblem& problem, const std::vector<int32_t>& labels) {
  PlanCost cost;
  cost.visible = problem.OutputCost(labels);
  const std::vector<FoldedClass>& classes = problem.folding().classes;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i].node == nullptr) continue;
    const Strategy& strategy = problem.strategies()[i][static_cast<size_t>(labels[i])];
    const bool backward = classes[i].node->meta().is_backward();
    (backward ? cost.backward_kernels : cost.forward_kernels) +=
        classes[i].count() * strategy.kernel_us;
    cost.visible += classes[i].count() * strategy.collective_us;
  }
  for (const PlacedEdge& edge : problem.edges()) {
    const double us = problem
                          .MoveOf(edge, labels[static_cast<size_t>(edge.from)],
                                  labels[static_cast<size_t>(edge.to)])
                          .us;
    cost.visible += edge.count * edge.visible * us;
    cost.forward_moves += edge.count * edge.forward * us;
    cost.backward_moves += edge.count * edge.backward * us;
  }
  return cost;
}

Placement Search(const PlaceProblem& problem, const SearchOptions& options) {
  return PlacementSearch(problem, options).Run();
}

int64_t SmallestMemory(const PlaceProblem& problem, const SearchOptions& options) {
  LabelProblem labels = problem.Labels({});
  AddMemory(problem, options.memory, labels);
  int64_t low = 0, high = 0;
  for (const Variable& variable : labels.variables) {
    if (variable.usage.empty() || variable.live.empty()) continue;
    int32_t most = 0;
    for (const LiveRange& range : variable.live) most = std::max(most, range.count);
    high += most * *std::max_element(variable.usage.begin(), variable.usage.end());
  }
  SolverOptions solver;
  constexpr double kSeconds = 2;
  solver.time_limit_s = kSeconds;
  while (high - low > high / 100) {
    const int64_t middle = low + (high - low) / 2;
    labels.usage_limit = middle;
    (Solve(labels, solver).feasible ? high : low) = middle;
  }
  return high + options.memory.workspace;
}

}  // namespace gt::placement
