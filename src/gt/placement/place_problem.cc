#include "gt/placement/place_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/placement/way_limit.h"
#include "gt/sim/type_sizes.h"

namespace gt::placement {
namespace {

constexpr uint8_t kForwardUse = 1, kBackwardUse = 2;

bool IsBackward(const FoldedClass& of) {
  return of.node != nullptr && of.node->meta().is_backward();
}

bool IsParameter(const FoldedClass& of) {
  return of.input != nullptr && of.input->role == InputRole::kParameter;
}

// A conversion between floating-point types: how many bytes an element gains.
int WidensBy(const Node* node) {
  if (node == nullptr || node->operand_count() != 1 || node->result_count() != 1) return 0;
  const TensorType &from = node->operand(0)->type(), &to = node->result()->type();
  if (!IsFloating(from.dtype) || !IsFloating(to.dtype) || from.sizes != to.sizes) return 0;
  return ItemSize(to.dtype) - ItemSize(from.dtype);
}

// Of a tensor with so many pieces.
bool IsLookedAt(const WayLimit& limit, const Layout& layout, const DeviceMesh& mesh) {
  std::array<size_t, kMaxAxes> ways = {};
  const auto axes = static_cast<size_t>(mesh.axes());
  for (size_t axis = 0; axis < axes; ++axis) {
    ways[axis] = layout.axes[axis] < 0 ? 0 : 1 + static_cast<size_t>(layout.axes[axis]);
  }
  return limit.Allows(std::span(ways).first(axes));
}

}  // namespace

PlaceProblem::PlaceProblem(Graph& graph, const Pricing& pricing, ProblemOptions options,
                           std::shared_ptr<const FoldedStep> step)
    : graph_(graph),
      pricing_(pricing),
      options_(std::move(options)),
      step_(step != nullptr ? std::move(step)
                            : std::make_shared<FoldedStep>(FoldStep(graph, options_.fold))),
      folding_(step_->folding),
      pieces_(step_->pieces) {
  FollowParameters();
  FindBatch();
  MakeStrategies();
  ApplyPins();
  if (options_.finest_parameters) KeepFinestParameters();
  MakeVariables();
  MarkCasts();
  MakeMatrices();
}

void PlaceProblem::MakeStrategies() {
  std::set<std::string> without;
  for (size_t i = 0; i < folding_.classes.size(); ++i) {
    const FoldedClass& of = folding_.classes[i];
    if (of.input != nullptr) {
      const Pieces& pieces = pieces_[i].results[0];
      const WayLimit limit(pieces.size() + 1, pricing_.mesh().axes());
      strategies_.push_back(InputStrategies(pieces, pricing_.mesh()));
      std::erase_if(strategies_.back(), [&](const Strategy& strategy) {
        const Layout& layout = strategy.results[0];
        for (size_t axis = 0; axis < options_.axes.size(); ++axis) {
          if (!IsAllowed(options_.axes[axis], of_parameters_[i], layout.axes[axis], pieces)) {
            return true;
          }
        }
        return !IsLookedAt(limit, layout, pricing_.mesh());
      });
      // Buffers and constants are small, and whole on every rank.
      const InputRole role = of.input->role;
      if (role == InputRole::kBuffer || role == InputRole::kConstant) {
        strategies_.back().resize(1);
      }
      continue;
    }
    if (!WayLimit(pieces_[i].rows.size(), pricing_.mesh().axes()).complete()) ++limited_classes_;
    if (!pieces_[i].has_rule) without.insert(of.node->op().name.str());
    strategies_.push_back(
        StrategiesOf(*of.node, pieces_[i], graph_.shapes().Hints(), pricing_,
                     [&](const PieceRow& row, int axis) { return IsAllowed(i, row, axis); }));
  }
  without_rule_.assign(without.begin(), without.end());
}

void PlaceProblem::FindBatch() {
  for (size_t i = 0; i < folding_.classes.size() && batch_ < 0; ++i) {
    const Input* input = folding_.classes[i].input;
    if (input == nullptr || input->role != InputRole::kInput) continue;
    if (!pieces_[i].results[0].empty()) batch_ = pieces_[i].results[0][0].id;
  }
}

// Of a tensor, along an axis of that use.
bool PlaceProblem::IsAllowed(AxisUse use, bool parameter, ShardState state,
                             const Pieces& pieces) const {
  if (placement::IsRouted(state)) return use == AxisUse::kAny || use == AxisUse::kExperts;
  if (use == AxisUse::kAny || state < 0) return true;
  if (parameter) return use != AxisUse::kReplicate;
  const bool cuts_batch = pieces[static_cast<size_t>(state)].id == batch_;
  return cuts_batch == (use != AxisUse::kModel);
}

// Of a node of that class.
bool PlaceProblem::IsAllowed(size_t class_index, const PieceRow& row, int axis) const {
  if (!IsKnown(*ClassAt(static_cast<int32_t>(class_index)).node, row)) return false;
  if (options_.axes.empty()) return true;
  const AxisUse use = options_.axes[static_cast<size_t>(axis)];
  // Gradients end where their parameters are, but they are made of parts of the batch.
  const bool gradient =
      (use == AxisUse::kShard || use == AxisUse::kExperts) && of_gradients_[class_index];
  const auto routed = [](ShardState state) { return placement::IsRouted(state); };
  if (use == AxisUse::kExperts &&
      (std::ranges::any_of(row.operands, routed) || std::ranges::any_of(row.results, routed))) {
    return true;
  }
  const bool parameter = of_parameters_[class_index];
  const auto allowed = [&](ShardState state, const Pieces& pieces) {
    // A row of experts may name a piece that a result of another shape does not have.
    if (state >= 0 && static_cast<size_t>(state) >= pieces.size()) return true;
    return IsAllowed(use, parameter, state, pieces);
  };
  const ClassPieces& pieces = pieces_[class_index];
  for (size_t i = 0; i < row.results.size(); ++i) {
    if (!gradient && !allowed(row.results[i], pieces.results[i])) return false;
  }
  for (size_t i = 0; i < row.operands.size(); ++i) {
    if (gradient && gradient_operands_[class_index][i]) continue;
    if (!allowed(row.operands[i], pieces.operands[i])) return false;
  }
  return true;
}

// AutoParallel reaches no way in which ranks mask indices or combine statistics, and cuts no dimension
// that a view has expanded.
bool PlaceProblem::IsKnown(const Node& node, const PieceRow& row) const {
  if (pricing_.formulas() != CostFormulas::kAutoparallel) {
    return row.method != ShardMethod::kAveraged || options_.sum_means;
  }
  const bool expands = node.op().is_view() && row.operands[0] == kWhole && row.results[0] >= 0;
  return row.method != ShardMethod::kMaskedIndices && row.method != ShardMethod::kStatistics &&
         !expands;
}

// A pin of one member holds for its whole class.
void PlaceProblem::ApplyPins() {
  if (options_.pins.empty()) return;
  std::vector<const Node*> nodes;
  for (const Node* node : graph_.nodes()) nodes.push_back(node);
  std::vector<const Pin*> pinned(folding_.classes.size());
  for (const Pin& pin : options_.pins) {
    bool used = false;
    for (size_t i = 0; i < folding_.classes.size(); ++i) {
      const FoldedClass& of = folding_.classes[i];
      const bool named = std::any_of(of.members.begin(), of.members.end(), [&](int32_t member) {
        const auto at = static_cast<size_t>(member);
        return MatchesFqn(pin.pattern, of.input != nullptr ? graph_.inputs()[at]->name
                                                           : nodes[at]->result()->name());
      });
      if (!named) continue;
      used = true;
      const Pin* other = std::exchange(pinned[i], &pin);
      const Pieces& pieces = pieces_[i].results[0];
      const std::optional<Layout> layout = ParseLayout(pin.layout, pieces, pricing_.mesh());
      if (!layout) {
        Fail(ErrorCode::kBadPin, "--pin {}={}: {} cannot be laid out like that on mesh {}",
             pin.pattern, pin.layout, of.name(), pricing_.mesh().ToString());
      }
      std::erase_if(strategies_[i],
                    [&](const Strategy& strategy) { return strategy.results[0] != *layout; });
      if (strategies_[i].empty() && other != nullptr) {
        Fail(
            ErrorCode::kBadPin,
            "--pin {}={} contradicts --pin {}={}: layers that are alike are placed in the same way "
            "(unless --fold=false)",
            pin.pattern, pin.layout, other->pattern, other->layout);
      }
      if (strategies_[i].empty()) {
        Fail(ErrorCode::kBadPin, "--pin {}={}: {} cannot be computed in that layout", pin.pattern,
             pin.layout, of.name());
      }
    }
    for (const FoldedOutput& output : folding_.outputs) {
      used = used || (output.input < 0 && MatchesFqn(pin.pattern, output.output->name));
    }
    if (!used) {
      Fail(ErrorCode::kBadPin, "--pin {}={}: no parameter, input or value has that name",
           pin.pattern, pin.layout);
    }
  }
}

Layout PlaceProblem::PinnedLayout(const FoldedOutput& output) const {
  Layout layout;
  const Pieces& pieces =
      pieces_[static_cast<size_t>(output.from)].results[static_cast<size_t>(output.result)];
  for (const Pin& pin : options_.pins) {
    if (!MatchesFqn(pin.pattern, output.output->name)) continue;
    const std::optional<Layout> pinned = ParseLayout(pin.layout, pieces, pricing_.mesh());
    if (!pinned || pinned->HasPartial()) {
      Fail(ErrorCode::kBadPin, "--pin {}={}: the result {} cannot be laid out like that on mesh {}",
           pin.pattern, pin.layout, output.output->name, pricing_.mesh().ToString());
    }
    layout = *pinned;
  }
  return layout;
}

void PlaceProblem::KeepFinestParameters() {
  const DeviceMesh& mesh = pricing_.mesh();
  for (size_t i = 0; i < folding_.classes.size(); ++i) {
    if (!IsParameter(folding_.classes[i])) continue;
    const Pieces& pieces = pieces_[i].results[0];
    auto fraction = [&](const Strategy& strategy) {
      return LocalFraction(strategy.results[0], pieces, mesh);
    };
    double finest = 1;
    for (const Strategy& strategy : strategies_[i]) finest = std::min(finest, fraction(strategy));
    const double bound = std::max(finest, 1.0 / static_cast<double>(mesh.ranks()));
    std::erase_if(strategies_[i], [&](const Strategy& strategy) {
      return fraction(strategy) > bound * (1 + 1e-9);
    });
  }
}

void PlaceProblem::FollowParameters() {
  const size_t count = folding_.classes.size();
  uses_.resize(count);
  for (const FoldedEdge& edge : folding_.edges) {
    uses_[static_cast<size_t>(edge.from)].push_back(edge);
  }
  of_parameters_.assign(count, false);
  of_gradients_.assign(count, false);
  phases_.assign(count, 0);
  for (size_t i = 0; i < count; ++i) {
    const FoldedClass& of = folding_.classes[i];
    of_parameters_[i] = IsParameter(of) || (of.node != nullptr && of.node->operand_count() > 0 &&
                                            !of.node->op().random);
  }
  for (const FoldedEdge& edge : folding_.edges) {  // producers come before their users
    if (!of_parameters_[static_cast<size_t>(edge.from)]) {
      of_parameters_[static_cast<size_t>(edge.to)] = false;
    }
  }
  std::vector<bool> returned(count, false), gradient(count, false);
  for (const FoldedOutput& output : folding_.outputs) {
    auto from = static_cast<size_t>(output.from);
    (output.role == OutputRole::kGradient ? gradient : returned)[from] = true;
  }
  // A gradient in the making has as many elements as its parameter. What it is made of may lead nowhere
  // else either, but it is needed at once: only gradients can be sent while the rest of the backward runs.
  const auto elements = [&](size_t i) {
    return ElementsOf(folding_.classes[i].result_type(0), graph_.shapes().Hints());
  };
  for (size_t i = count; i-- > 0;) {
    bool only =
        !returned[i] && (gradient[i] || !uses_[i].empty()) && folding_.classes[i].node != nullptr;
    for (const FoldedEdge& use : uses_[i]) {
      auto to = static_cast<size_t>(use.to);
      // A class that feeds itself is not asked about itself.
      only = only && (to == i || (of_gradients_[to] && elements(to) == elements(i)));
      if (!of_parameters_[i]) continue;
      phases_[i] |= of_parameters_[to] && to != i      ? phases_[to]
                    : IsBackward(folding_.classes[to]) ? kBackwardUse
                                                       : kForwardUse;
    }
    of_gradients_[i] = only;
  }
  gradient_operands_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    gradient_operands_[i].resize(pieces_[i].operands.size());
  }
  for (const FoldedEdge& edge : folding_.edges) {
    if (!of_gradients_[static_cast<size_t>(edge.from)]) continue;
    gradient_operands_[static_cast<size_t>(edge.to)][static_cast<size_t>(edge.operand)] = true;
  }
}

void PlaceProblem::MakeVariables() {
  for (size_t i = 0; i < folding_.classes.size(); ++i) {
    variables_.push_back({.class_index = static_cast<int32_t>(i)});
  }
  for (const FoldedUses& alike : folding_.uses) AddUses(alike);
}

// A value that is used in several places is kept in one layout for all of them.
void PlaceProblem::AddUses(const FoldedUses& alike) {
  int32_t from = alike.from;
  if (alike.places > 1) {
    from = static_cast<int32_t>(variables_.size());
    for (int32_t member : alike.members) kept_.emplace(alike.from, member);
    variables_.push_back({.class_index = alike.from,
                          .result = alike.result,
                          .layouts = KeptLayouts(alike.from, alike.result),
                          .members = alike.members});
    AddEdge({alike.from, from, alike.from, alike.result, -1,
             static_cast<int32_t>(alike.members.size())});
  }
  for (const FoldedEdge& use : alike.uses) {
    AddEdge({from, use.to, alike.from, alike.result, use.operand, use.count});
  }
  for (const FoldedOutput& output : alike.outputs) {
    if (output.input >= 0) {
      AddEdge({from, output.input, alike.from, alike.result, -1, output.count});
    } else {
      outputs_.push_back(
          {from, alike.from, alike.result, output.count, PinnedLayout(output), output.output});
    }
  }
}

// Routed rows stay as they were made, and so do numbers: these have nothing to be cut along, and a sum of
// parts that is kept as such need not be added up for every use.
std::vector<Layout> PlaceProblem::KeptLayouts(int32_t class_index, int32_t result) const {
  const ClassPieces& pieces = pieces_[static_cast<size_t>(class_index)];
  const Pieces& kept = pieces.results[static_cast<size_t>(result)];
  if (!pieces.routed && !kept.empty()) {
    const WayLimit limit(kept.size() + 1, pricing_.mesh().axes());
    std::vector<Layout> layouts = LayoutsOf(kept, pricing_.mesh());
    std::erase_if(
        layouts, [&](const Layout& layout) { return !IsLookedAt(limit, layout, pricing_.mesh()); });
    return layouts;
  }
  std::set<Layout> layouts;
  if (!pieces.routed) layouts.insert(Layout{});
  for (const Strategy& strategy : strategies_[static_cast<size_t>(class_index)]) {
    const Layout& layout = strategy.results[static_cast<size_t>(result)];
    if (!pieces.routed || !layout.HasPartial()) layouts.insert(layout);
  }
  return {layouts.begin(), layouts.end()};
}

void PlaceProblem::AddEdge(PlacedEdge edge) {
  auto of = static_cast<size_t>(edge.class_index);
  edge.fixed = pieces_[of].routed;
  if (pricing_.formulas() == CostFormulas::kSimulated) {
    if (of_parameters_[of]) {
      const bool kept = variables_[static_cast<size_t>(edge.to)].result >= 0;
      uint8_t phases = phases_[of];
      if (!kept && edge.operand >= 0) {
        auto to = static_cast<size_t>(edge.to);
        phases = of_parameters_[to]             ? phases_[to]
                 : IsBackward(ClassAt(edge.to)) ? kBackwardUse
                                                : kForwardUse;
      }
      edge.forward = (phases & kForwardUse) != 0 ? 1 : 0;
      const bool again = options_.reshard_after_forward || edge.forward == 0;
      edge.backward = (phases & kBackwardUse) != 0 && again ? 1 : 0;
      edge.visible = 0;
    } else if (of_gradients_[of]) {
      edge.backward = 1;
      edge.visible = 0;
    }
  }
  edges_.push_back(edge);
}

// Parameters are gathered in the type they are computed in, and gradients summed in the one they are
// stored in: nothing is sent on the way from what makes a gradient to its cast.
void PlaceProblem::MarkCasts() {
  std::vector<bool> gradient(folding_.classes.size(), false);
  for (const FoldedOutput& output : folding_.outputs) {
    if (output.role == OutputRole::kGradient) gradient[static_cast<size_t>(output.from)] = true;
  }
  // Nodes with one operand from which only such nodes lead to a gradient.
  std::vector<bool> on_the_way(folding_.classes.size(), false);
  std::vector<bool> before_cast(folding_.classes.size(), false);
  for (size_t i = folding_.classes.size(); i-- > 0;) {
    const Node* node = folding_.classes[i].node;
    if (node == nullptr || node->operand_count() != 1) continue;
    bool only = gradient[i] || !uses_[i].empty();
    bool leads = WidensBy(node) > 0;
    for (const FoldedEdge& use : uses_[i]) {
      const auto to = static_cast<size_t>(use.to);
      only = only && on_the_way[to];
      leads = leads || before_cast[to];
    }
    on_the_way[i] = only;
    before_cast[i] = only && leads;
  }
  for (PlacedEdge& edge : edges_) {
    const FoldedClass& from = ClassAt(edge.class_index);
    if (edge.operand < 0) {
      const bool kept = variables_[static_cast<size_t>(edge.to)].result >= 0;
      const auto& uses = uses_[static_cast<size_t>(edge.class_index)];
      edge.stays = kept && IsParameter(from) &&
                   std::all_of(uses.begin(), uses.end(), [&](const FoldedEdge& use) {
                     return WidensBy(ClassAt(use.to).node) < 0;
                   });
      continue;
    }
    const FoldedClass& to = ClassAt(edge.to);
    edge.stays =
        (IsParameter(from) && WidensBy(to.node) < 0) || before_cast[static_cast<size_t>(edge.to)];
  }
}

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
    const double kernels = IsBackward(folded) ? weights.backward_kernels : weights.forward_kernels;
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
    const Phase phase = IsBackward(folded) ? kBackwardPhase : kForwardPhase;
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
  std::vector<StepEdge> edges = {{of.from,
                                  of.to,
                                  matrix_of_edge_[edge],
                                  count * of.visible,
                                  {count * of.forward, count * of.backward}}};
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
