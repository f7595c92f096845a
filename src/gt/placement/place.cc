#include "gt/placement/place.h"

#include <algorithm>
#include <utility>

#include "gt/placement/search/step_search.h"

namespace gt::placement {
namespace {

// Everything is waited for.
void Serialize(StepProblem& step) {
  for (StepVariable& variable : step.variables) {
    for (StepTime& time : variable.times) time = {.visible = time.Serial()};
  }
  for (StepEdge& edge : step.edges) {
    for (double& moves : edge.moves) edge.visible += std::exchange(moves, 0);
  }
}

// Usage, live ranges and limit, and nothing else.
LabelProblem MemoryOf(const PlaceProblem& problem, const SearchOptions& options) {
  LabelProblem memory;
  memory.variables.resize(problem.variables().size());
  AddMemory(problem, options.memory, memory);
  return memory;
}

StepProblem StepOf(const PlaceProblem& problem, const SearchOptions& options,
                   const LabelProblem& memory) {
  StepProblem step = problem.Step();
  if (!options.overlap) Serialize(step);
  if (options.forced) {
    const auto [variable, label] = *options.forced;
    std::vector<StepTime>& times = step.variables[static_cast<size_t>(variable)].times;
    for (size_t other = 0; other < times.size(); ++other) {
      if (static_cast<int32_t>(other) != label) times[other].visible = kForbidden;
    }
  }
  if (options.memory.limit <= 0) return step;
  for (size_t i = 0; i < step.variables.size(); ++i) {
    step.variables[i].usage = memory.variables[i].usage;
    step.variables[i].live = memory.variables[i].live;
  }
  step.usage_limit = memory.usage_limit;
  return step;
}

StepOptions StepOptionsOf(const SearchOptions& options) {
  constexpr double kGibi = 1024.0 * 1024 * 1024;
  StepOptions step;
  step.relative_gap = options.relative_gap;
  step.time_limit_s = options.time_limit_s;
  step.work_limit = options.work_limit;
  step.question_limit = options.question_limit;
  step.threads = options.threads;
  step.cutoff = options.give_up_at;
  step.starts = options.starts;
  step.progress = options.progress;
  if (options.memory_price > 0) step.over_price = options.memory_price / kGibi;
  return step;
}

// Feasible if it fits into memory.
Placement Priced(const PlaceProblem& problem, const SearchOptions& options,
                 const LabelProblem& memory, std::vector<int32_t> labels) {
  Placement placement;
  placement.cost = CostOf(problem, labels);
  placement.step_us = placement.cost.step_us(options.overlap);
  placement.peak_bytes = PeakUsage(memory, labels);
  placement.feasible = options.memory.limit <= 0 || placement.peak_bytes <= options.memory.limit;
  placement.labels = std::move(labels);
  return placement;
}

}  // namespace

double PlanCost::step_us(bool overlap) const {
  const double kernels = forward_kernels + backward_kernels + visible;
  if (!overlap) return kernels + forward_moves + backward_moves;
  return kernels + std::max(share_taken * forward_moves, forward_moves - forward_kernels) +
         std::max(share_taken * backward_moves, backward_moves - backward_kernels);
}

PlanCost CostOf(const PlaceProblem& problem, const std::vector<int32_t>& labels) {
  PlanCost cost;
  cost.share_taken = problem.pricing().share_taken();
  cost.visible = problem.OutputCost(labels);
  const std::vector<FoldedClass>& classes = problem.folding().classes;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i].node == nullptr) continue;
    const Strategy& strategy = problem.strategies()[i][static_cast<size_t>(labels[i])];
    const bool backward = classes[i].is_backward();
    (backward ? cost.backward_kernels : cost.forward_kernels) +=
        classes[i].count() * strategy.kernel_us;
    cost.visible += classes[i].count() * strategy.collective_us;
  }
  for (const PlacedEdge& edge : problem.edges()) {
    const Move move = problem.MoveOf(edge, labels[static_cast<size_t>(edge.from)],
                                     labels[static_cast<size_t>(edge.to)]);
    const bool beside = problem.RunsBesideKernels(edge, move);
    const double us = edge.count * move.us;
    cost.visible += edge.visible * us;
    (beside ? cost.forward_moves : cost.visible) += edge.forward * us;
    (beside ? cost.backward_moves : cost.visible) += edge.backward * us;
  }
  return cost;
}

Placement PlacementOf(const PlaceProblem& problem, const SearchOptions& options,
                      std::vector<int32_t> labels) {
  return Priced(problem, options, MemoryOf(problem, options), std::move(labels));
}

Placement Search(const PlaceProblem& problem, const SearchOptions& options) {
  const LabelProblem memory = MemoryOf(problem, options);
  StepSolution solution = SearchStep(StepOf(problem, options, memory), StepOptionsOf(options));
  Placement placement;
  if (solution.feasible) {
    placement = Priced(problem, options, memory, std::move(solution.labels));
    placement.feasible = true;  // memory above the limit is charged for
    placement.step_us = solution.time.Total();
    placement.charged_us = solution.cost - placement.step_us;
    placement.met = std::move(solution.met);
  }
  placement.bound_us = solution.lower_bound;
  return placement;
}

Placement SmallestPlacement(const PlaceProblem& problem, const SearchOptions& options) {
  constexpr int kQuestions = 100;  // to come near; what follows is a long tail
  SearchOptions limited = options;
  limited.memory.limit = std::max<int64_t>(1, options.memory.limit);
  limited.question_limit = std::min(options.question_limit, kQuestions);
  const LabelProblem memory = MemoryOf(problem, limited);
  LeastMemory least = FindLeastMemory(StepOf(problem, limited, memory), StepOptionsOf(limited));
  if (least.labels.empty()) return {};
  Placement placement = Priced(problem, options, memory, std::move(least.labels));
  placement.feasible = true;  // with as much memory
  return placement;
}

}  // namespace gt::placement
