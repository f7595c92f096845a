// What the labels of a placement problem cost: moves of tensors, outputs, and all of it as a problem for
// the solvers.
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "gt/placement/place_problem.h"
#include "gt/sim/type_sizes.h"

namespace gt::placement {

const Layout& PlaceProblem::ResultLayout(int32_t variable, int32_t label, int32_t result) const {
  const PlacedVariable& of = variables_[static_cast<size_t>(variable)];
  if (of.result >= 0) return of.layouts[static_cast<size_t>(label)];
  return strategies_[static_cast<size_t>(of.class_index)][static_cast<size_t>(label)]
      .results[static_cast<size_t>(result)];
}

const Layout& PlaceProblem::TargetLayout(const PlacedEdge& edge, int32_t label) const {
  if (edge.operand < 0) return ResultLayout(edge.to, label, 0);
  return strategies_[static_cast<size_t>(edge.to)][static_cast<size_t>(label)]
      .operands[static_cast<size_t>(edge.operand)];
}

Moved PlaceProblem::MovedBy(const PlacedEdge& edge) const {
  const TensorType& type = ClassAt(edge.class_index).result_type(edge.result);
  const SymbolValues symbols = graph_.shapes().Hints();
  return {
      .pieces =
          pieces_[static_cast<size_t>(edge.class_index)].results[static_cast<size_t>(edge.result)],
      .bytes = static_cast<double>(ElementsOf(type, symbols)) * ItemSize(type.dtype),
      .contiguous = IsRowMajor(type, symbols),
      .any_order = of_parameters_[static_cast<size_t>(edge.class_index)] ||
                   of_gradients_[static_cast<size_t>(edge.class_index)]};
}

Move PlaceProblem::MoveOf(const PlacedEdge& edge, int32_t from_label, int32_t to_label) const {
  const Moved moved = MovedBy(edge);
  Move move = pricing_.MoveOf(moved, ResultLayout(edge.from, from_label, edge.result),
                              TargetLayout(edge, to_label));
  if (edge.stays && move.count > 0) move.us = kForbidden;
  if (edge.fixed &&
      ResultLayout(edge.from, from_label, edge.result) != TargetLayout(edge, to_label))
    move.us = kForbidden;
  return move;
}

namespace {

// What is moved decides which moves are started ahead of their use or finished later.
enum class Overlap : uint8_t { kNone, kParameter, kGradient };

// As passes/fsdp does it: a parameter is gathered in one collective, and a gradient's sums are made by one
// or more. What has to be exchanged as well, or gathered after a sum, is left where it is.
bool RunsBesideKernels(Overlap overlap, const Move& move) {
  if (overlap == Overlap::kNone) return false;
  for (int i = 0; i < move.count; ++i) {
    const Collective kind = move.steps[static_cast<size_t>(i)].kind;
    const bool sums = kind == Collective::kReduceScatter || kind == Collective::kAllReduce;
    const bool gathers = kind == Collective::kAllGather && move.count == 1;
    if (!(overlap == Overlap::kParameter ? gathers : sums)) return false;
  }
  return true;
}

// Of what has an edge with phases: that of a parameter, or that of a gradient.
Overlap OverlapOf(const PlacedEdge& edge, const std::vector<bool>& of_parameters) {
  if (edge.forward + edge.backward == 0) return Overlap::kNone;
  return of_parameters[static_cast<size_t>(edge.class_index)] ? Overlap::kParameter
                                                              : Overlap::kGradient;
}

// Moves of one kind of tensor, each priced once.
class MoveTable {
 public:
  MoveTable(const Pricing& pricing, const Moved& moved, bool stays, bool fixed, Overlap overlap)
      : pricing_(pricing), moved_(moved), stays_(stays), fixed_(fixed), overlap_(overlap) {}

  int32_t IndexOf(const Layout& layout) {
    auto [found, is_new] = index_.try_emplace(layout, static_cast<int32_t>(layouts_.size()));
    if (is_new) layouts_.push_back(layout);
    return found->second;
  }

  struct Cost {
    float us = 0;       // of a move that runs beside kernels, or of any if none does
    float waiting = 0;  // of one that does not where others do
  };
  Cost CostOf(int32_t from, int32_t to) {
    auto [found, is_new] =
        costs_.try_emplace(static_cast<int64_t>(from) << 32 | static_cast<int64_t>(to));
    if (is_new) {
      const Move move = pricing_.MoveOf(moved_, layouts_[static_cast<size_t>(from)],
                                        layouts_[static_cast<size_t>(to)]);
      const bool forbidden = (stays_ && move.count > 0) || (fixed_ && from != to);
      const auto us = static_cast<float>(forbidden ? kForbidden : move.us);
      const bool waits = overlap_ != Overlap::kNone && us < static_cast<float>(kForbidden) &&
                         !RunsBesideKernels(overlap_, move);
      (waits ? found->second.waiting : found->second.us) = us;
    }
    return found->second;
  }

 private:
  const Pricing& pricing_;
  const Moved moved_;
  const bool stays_, fixed_;
  const Overlap overlap_;
  std::map<Layout, int32_t> index_;
  std::vector<Layout> layouts_;
  std::unordered_map<int64_t, Cost> costs_;
};

using MoveKey = std::tuple<double, bool, bool, bool, bool, Overlap,
                           std::vector<std::tuple<int32_t, int64_t, bool>>>;

MoveKey KeyOf(const Moved& moved, bool stays, bool fixed, Overlap overlap) {
  std::vector<std::tuple<int32_t, int64_t, bool>> pieces;
  for (const Piece& piece : moved.pieces) pieces.emplace_back(piece.dim, piece.size, piece.first);
  return {moved.bytes, moved.contiguous, moved.any_order, stays, fixed, overlap, std::move(pieces)};
}

}  // namespace

bool PlaceProblem::RunsBesideKernels(const PlacedEdge& edge, const Move& move) const {
  return placement::RunsBesideKernels(OverlapOf(edge, of_parameters_), move);
}

void PlaceProblem::MakeMatrices() {
  std::map<MoveKey, std::unique_ptr<MoveTable>> tables;
  std::map<std::tuple<MoveTable*, std::vector<int32_t>, std::vector<int32_t>>,
           std::pair<int32_t, int32_t>>
      known;
  for (const PlacedEdge& edge : edges_) {
    const Moved moved = MovedBy(edge);
    const Overlap overlap = OverlapOf(edge, of_parameters_);
    std::unique_ptr<MoveTable>& table = tables[KeyOf(moved, edge.stays, edge.fixed, overlap)];
    if (table == nullptr) {
      table = std::make_unique<MoveTable>(pricing_, moved, edge.stays, edge.fixed, overlap);
    }
    auto labels = [&](int32_t variable) {
      const PlacedVariable& of = variables_[static_cast<size_t>(variable)];
      return static_cast<int32_t>(of.result >= 0
                                      ? of.layouts.size()
                                      : strategies_[static_cast<size_t>(of.class_index)].size());
    };
    std::vector<int32_t> from, to;
    for (int32_t label = 0; label < labels(edge.from); ++label) {
      from.push_back(table->IndexOf(ResultLayout(edge.from, label, edge.result)));
    }
    for (int32_t label = 0; label < labels(edge.to); ++label) {
      to.push_back(table->IndexOf(TargetLayout(edge, label)));
    }
    auto [found, is_new] = known.try_emplace({table.get(), from, to}, std::pair(-1, -1));
    auto& [of_moves, of_waiting] = found->second;
    if (is_new) {
      CostMatrix moves{static_cast<int32_t>(from.size()), static_cast<int32_t>(to.size()), {}};
      CostMatrix waiting = moves;
      for (int32_t row : from) {
        for (int32_t column : to) {
          const MoveTable::Cost cost = table->CostOf(row, column);
          moves.values.push_back(cost.us);
          waiting.values.push_back(cost.waiting);
        }
      }
      const bool waits = std::ranges::any_of(waiting.values, [](float us) { return us > 0; });
      of_moves = static_cast<int32_t>(matrices_.size());
      matrices_.push_back(std::move(moves));
      if (waits) {
        of_waiting = static_cast<int32_t>(matrices_.size());
        matrices_.push_back(std::move(waiting));
      }
    }
    matrix_of_edge_.push_back(of_moves);
    waiting_matrix_of_edge_.push_back(of_waiting);
  }
}

double PlaceProblem::OutputCost(const PlacedOutput& output, int32_t label) const {
  const PlacedEdge edge{output.variable, 0, output.class_index, output.result};
  const Layout& layout = ResultLayout(output.variable, label, output.result);
  return output.count * pricing_.MoveOf(MovedBy(edge), layout, output.layout).us;
}

std::vector<std::pair<std::string, double>> PlaceProblem::OutputCosts(
    const std::vector<int32_t>& labels) const {
  std::vector<std::pair<std::string, double>> costs;
  for (const PlacedOutput& output : outputs_) {
    costs.emplace_back(output.output->name,
                       OutputCost(output, labels[static_cast<size_t>(output.variable)]));
  }
  return costs;
}

double PlaceProblem::OutputCost(const std::vector<int32_t>& labels) const {
  double us = 0;
  for (const PlacedOutput& output : outputs_) {
    us += OutputCost(output, labels[static_cast<size_t>(output.variable)]);
  }
  return us;
}

LabelProblem PlaceProblem::Labels(const Weights& weights) const {
  LabelProblem problem;
  problem.matrices = matrices_;
  for (const PlacedVariable& of : variables_) {
    Variable& variable = problem.variables.emplace_back();
    if (of.result >= 0) {
      variable.costs.assign(of.layouts.size(), 0);
      continue;
    }
    const FoldedClass& folded = ClassAt(of.class_index);
    const double kernels =
        folded.is_backward() ? weights.backward_kernels : weights.forward_kernels;
    for (const Strategy& strategy : strategies_[static_cast<size_t>(of.class_index)]) {
      variable.costs.push_back(folded.count() *
                               (kernels * strategy.kernel_us + strategy.collective_us));
    }
  }
  for (const PlacedOutput& output : outputs_) {
    Variable& variable = problem.variables[static_cast<size_t>(output.variable)];
    for (size_t label = 0; label < variable.costs.size(); ++label) {
      variable.costs[label] += OutputCost(output, static_cast<int32_t>(label));
    }
  }
  const ByPhase moves = {weights.forward_moves, weights.backward_moves};
  for (size_t i = 0; i < edges_.size(); ++i) {
    for (const StepEdge& edge : StepEdgesOf(i)) {
      const double factor = edge.FactorAt(moves);
      if (edge.from != edge.to) {
        problem.edges.push_back({edge.from, edge.to, edge.matrix, factor});
        continue;
      }
      const CostMatrix& matrix = matrices_[static_cast<size_t>(edge.matrix)];
      std::vector<double>& costs = problem.variables[static_cast<size_t>(edge.from)].costs;
      for (size_t label = 0; label < costs.size(); ++label) {
        const float own = matrix.At(static_cast<int32_t>(label), static_cast<int32_t>(label));
        // A move that is free while it is hidden is still no move that cannot be made.
        costs[label] += own == static_cast<float>(kForbidden) ? kForbidden : factor * own;
      }
    }
  }
  return problem;
}

StepProblem PlaceProblem::Step() const {
  StepProblem problem;
  problem.matrices = matrices_;
  for (const PlacedVariable& of : variables_) {
    StepVariable& variable = problem.variables.emplace_back();
    if (of.result >= 0) {
      variable.times.resize(of.layouts.size());
      continue;
    }
    const FoldedClass& folded = ClassAt(of.class_index);
    const Phase phase = folded.is_backward() ? kBackwardPhase : kForwardPhase;
    for (const Strategy& strategy : strategies_[static_cast<size_t>(of.class_index)]) {
      StepTime& time = variable.times.emplace_back();
      time.visible = folded.count() * strategy.collective_us;
      time.kernels[phase] = folded.count() * strategy.kernel_us;
    }
  }
  for (const PlacedOutput& output : outputs_) {
    std::vector<StepTime>& times = problem.variables[static_cast<size_t>(output.variable)].times;
    for (size_t label = 0; label < times.size(); ++label) {
      times[label].visible += OutputCost(output, static_cast<int32_t>(label));
    }
  }
  for (size_t i = 0; i < edges_.size(); ++i) {
    for (const StepEdge& edge : StepEdgesOf(i)) {
      if (edge.from != edge.to) {
        problem.edges.push_back(edge);
      } else {
        AddLoop(edge, problem);
      }
    }
  }
  return problem;
}

std::vector<StepEdge> PlaceProblem::StepEdgesOf(size_t edge) const {
  const PlacedEdge& of = edges_[edge];
  const auto count = static_cast<double>(of.count);
  // While kernels and a move are under way together, kernels get on by 1 - share: a phase takes the longer
  // of kernels + share * moves and moves.
  const double share = pricing_.share_taken();
  const double beside = (1 - share) * count;
  std::vector<StepEdge> edges = {{of.from,
                                  of.to,
                                  matrix_of_edge_[edge],
                                  count * (of.visible + share * (of.forward + of.backward)),
                                  {beside * of.forward, beside * of.backward}}};
  if (const int32_t waiting = waiting_matrix_of_edge_[edge]; waiting >= 0) {
    edges.push_back({of.from, of.to, waiting, count * (of.forward + of.backward), {}});
  }
  return edges;
}

// A class that feeds itself: layer after layer.
void PlaceProblem::AddLoop(const StepEdge& edge, StepProblem& problem) const {
  const CostMatrix& matrix = matrices_[static_cast<size_t>(edge.matrix)];
  std::vector<StepTime>& times = problem.variables[static_cast<size_t>(edge.from)].times;
  for (size_t label = 0; label < times.size(); ++label) {
    const double us = matrix.At(static_cast<int32_t>(label), static_cast<int32_t>(label));
    if (us == kForbidden) {
      times[label].visible = kForbidden;
      continue;
    }
    times[label].visible += edge.visible * us;
    for (size_t phase = 0; phase < kPhases; ++phase) {
      times[label].moves[phase] += edge.moves[phase] * us;
    }
  }
}

}  // namespace gt::placement
