#include "gt/placement/place_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/placement/way_limit.h"
#include "gt/sim/type_sizes.h"

namespace gt::placement {
namespace {

constexpr uint8_t kForwardUse = 1, kBackwardUse = 2;

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

namespace {

// What a pin demands along each axis; nothing where it leaves the axis open.
using PinnedStates = std::array<std::optional<ShardState>, kMaxAxes>;

std::optional<PinnedStates> ParsePinned(std::string text, const Pieces& pieces,
                                        const DeviceMesh& mesh) {
  std::array<bool, kMaxAxes> open = {};
  size_t axis = 0;
  for (char& c : text) {
    if (std::string_view("RPES?").find(c) == std::string_view::npos) continue;
    if (axis == open.size()) return std::nullopt;
    open[axis++] = c == '?';
    if (c == '?') c = 'R';
  }
  const std::optional<Layout> layout = ParseLayout(text, pieces, mesh);
  if (!layout) return std::nullopt;
  PinnedStates states;
  for (size_t i = 0; i < states.size(); ++i) {
    if (!open[i]) states[i] = layout->axes[i];
  }
  return states;
}

bool Allows(const PinnedStates& pinned, const Layout& layout) {
  for (size_t i = 0; i < pinned.size(); ++i) {
    if (pinned[i] && *pinned[i] != layout.axes[i]) return false;
  }
  return true;
}

}  // namespace

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
      if (of.result_count() == 0) continue;  // nothing that a pin could name
      const bool named = std::any_of(of.members.begin(), of.members.end(), [&](int32_t member) {
        const auto at = static_cast<size_t>(member);
        return MatchesFqn(pin.pattern, of.input != nullptr ? graph_.inputs()[at]->name
                                                           : nodes[at]->result()->name());
      });
      if (!named) continue;
      used = true;
      const Pin* other = std::exchange(pinned[i], &pin);
      const Pieces& pieces = pieces_[i].results[0];
      const std::optional<PinnedStates> states = ParsePinned(pin.layout, pieces, pricing_.mesh());
      if (!states) {
        Fail(ErrorCode::kBadPin, "--pin {}={}: {} cannot be laid out like that on mesh {}",
             pin.pattern, pin.layout, of.name(), pricing_.mesh().ToString());
      }
      std::erase_if(strategies_[i], [&](const Strategy& strategy) {
        return !Allows(*states, strategy.results[0]);
      });
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
      phases_[i] |= of_parameters_[to] && to != i        ? phases_[to]
                    : folding_.classes[to].is_backward() ? kBackwardUse
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
        phases = of_parameters_[to]               ? phases_[to]
                 : ClassAt(edge.to).is_backward() ? kBackwardUse
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

}  // namespace gt::placement
