#include "gt/passes/placement/placed_inputs.h"

#include <optional>

#include "gt/base/error.h"

namespace gt {

using placement::Pieces;

bool CutsTwice(const placement::Layout& layout) {
  for (size_t i = 0; i < layout.axes.size(); ++i) {
    if (layout.axes[i] < 0) continue;
    for (size_t j = i + 1; j < layout.axes.size(); ++j) {
      if (layout.axes[i] == layout.axes[j]) return true;
    }
  }
  return false;
}

PlacedInputs::PlacedInputs(const PlanReader& plan, const std::map<std::string, PlacedInput>& stored)
    : plan_(plan) {
  for (const auto& input : plan.whole().inputs()) {
    by_name_[input->name] = input.get();
    placed_[input.get()] = Place(*input, stored);
  }
  FollowGradients();
}

const Input* PlacedInputs::Find(const std::string& name) const {
  auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const AxisOrder* PlacedInputs::GradientOrder(const Value& value) const {
  auto found = order_of_gradient_.find(&value);
  return found == order_of_gradient_.end() ? nullptr : &found->second;
}

Placed PlacedInputs::Place(const Input& input,
                           const std::map<std::string, PlacedInput>& stored) const {
  const placement::Layout planned = plan_.LayoutOf(input);
  if (!IsSharded(input)) return {};
  RequireBox(input, planned);
  if (!CutsTwice(planned) || input.role != InputRole::kParameter) return {planned, kMeshOrder};
  if (auto found = stored.find(input.name); found != stored.end()) {
    return {planned, found->second.placed.order};
  }
  return {planned, OrderOf(input, planned)};
}

void PlacedInputs::RequireBox(const Input& input, const placement::Layout& layout) const {
  const Pieces& pieces = plan_.PiecesOf(input);
  for (ShardState state : layout.axes) {
    if (state < 0 || pieces[static_cast<size_t>(state)].first) continue;
    Fail(ErrorCode::kBadPlan,
         "{} is cut within rows ({}): what a rank keeps must be a range of every dimension",
         input.name, ToString(layout, pieces, plan_.mesh()));
  }
}

// Axes that stay when a parameter is gathered for its first use are the outer ones, so that the gather, and
// the reduction of its gradient, is one collective.
AxisOrder PlacedInputs::OrderOf(const Input& input, const placement::Layout& layout) const {
  const std::optional<placement::Layout> used = FirstUse(input, layout);
  Placed placed{layout, kMeshOrder};
  if (!used) return placed.order;
  AxisList gathered;
  for (int axis = 0; axis < plan_.mesh().axes(); ++axis) {
    if ((*used)[axis] == kWhole && layout[axis] >= 0) gathered.push_back(static_cast<int8_t>(axis));
  }
  placed.MoveInside(gathered);
  return placed.order;
}

// The layout that the first user wants, or the user after nodes that only pass it on.
std::optional<placement::Layout> PlacedInputs::FirstUse(const Input& input,
                                                        const placement::Layout& layout) const {
  const Value* at = &input.value;
  const Pieces* pieces = &plan_.PiecesOf(input);
  placement::Layout now = layout;
  while (true) {
    if (const std::optional<placement::Layout> kept = plan_.KeptLayout(*at, *pieces);
        kept && *kept != now) {
      return kept;
    }
    const Node* first = nullptr;
    int32_t operand = 0;
    for (const Use& use : at->uses()) {
      if (use.node() == nullptr || (first && use.node()->number() >= first->number())) continue;
      first = use.node();
      operand = use.index();
    }
    if (first == nullptr) return std::nullopt;
    const NodeLayouts layouts = plan_.LayoutsOf(*first);
    if (layouts.operands[static_cast<size_t>(operand)] != now) {
      return layouts.operands[static_cast<size_t>(operand)];
    }
    if (first->operand_count() != 1 || first->result_count() != 1) return std::nullopt;
    at = first->result();
    pieces = &plan_.PiecesOf(*first).results[0];
    now = layouts.results[0];
  }
}

// What leads to the gradient of such a parameter is cut in the parameter's order.
void PlacedInputs::FollowGradients() {
  for (const auto& output : plan_.whole().outputs()) {
    if (output->role != OutputRole::kGradient) continue;
    const Input* parameter = Find(output->name);
    if (parameter == nullptr || !CutsTwice(Of(*parameter).layout)) continue;
    for (const Value* at = output->value(); at->producer() != nullptr;) {
      order_of_gradient_[at] = Of(*parameter).order;
      if (at->producer()->operand_count() != 1) break;
      at = at->producer()->operand(0);
    }
  }
}

}  // namespace gt
