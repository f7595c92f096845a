#include "gt/passes/placement/placed_values.h"

#include <utility>

namespace gt {
namespace {

// Where a move ends that sorts nothing: axes that are new to a piece cut it last.
AxisOrder NaturalOrder(const Placed& from, const placement::Layout& to) {
  AxisList added;
  for (int8_t axis = 0; axis < placement::kMaxAxes; ++axis) {
    if (to[axis] >= 0 && from.layout[axis] != to[axis]) added.push_back(axis);
  }
  Placed end = from;
  end.MoveInside(added);
  return end.order;
}

// Nothing is sent on the way from one to the other: ranks take shards or summands of what all have.
bool IsFree(const placement::Layout& from, const placement::Layout& to) {
  for (size_t i = 0; i < to.axes.size(); ++i) {
    const bool taken = from.axes[i] == kWhole && (to.axes[i] >= 0 || to.axes[i] == kPartial);
    if (from.axes[i] != to.axes[i] && !taken) return false;
  }
  return true;
}

// Ranks add up on the way. Whether they then have all of the sum or shards of it is another order of adding.
bool IsSummed(const placement::Layout& from, const placement::Layout& to) {
  for (size_t i = 0; i < to.axes.size(); ++i) {
    if (from.axes[i] == kPartial && to.axes[i] != kPartial) return true;
  }
  return false;
}

}  // namespace

void PlacedValues::Add(const Value& value, Made made) {
  Entry& entry = values_[&value];
  entry.stored = {made.tensor};
  entry.phase = value.is_input() ? Phase::kForward : value.producer()->meta().phase;
  entry.made = std::move(made);
}

const AxisOrder* PlacedValues::OrderIn(const Value& value, const placement::Layout& layout) const {
  const Entry& known = Known(value);
  for (const auto* forms : {&known.stored, &known.moved}) {
    for (const LocalTensor& form : *forms) {
      if (form.placed.layout == layout) return &form.placed.order;
    }
  }
  return nullptr;
}

AxisOrder PlacedValues::ArrivingOrder(const Value& value, const placement::Layout& layout) const {
  return NaturalOrder(Known(value).stored.back().placed, layout);
}

LocalTensor PlacedValues::Move(const Value& value, const LocalTensor& from, const Placed& to) {
  if (!SamePlace(from.placed, to)) ++moved_;
  const placement::Pieces& pieces = *Known(value).made.pieces;
  const LocalTensor there = mover_.Move(from, value.type().sizes, pieces, to);
  if (there.value != from.value && !there.value->is_input()) {
    there.value->producer()->meta().placement =
        Name(ToString(to.layout, pieces, make_.rank().mesh()));
  }
  return there;
}

void PlacedValues::Keep(const Value& value, Entry& known) {
  const std::optional<placement::Layout>& kept = known.made.kept;
  const Placed& made = known.made.tensor.placed;
  if (!kept || known.stored.size() > 1 || *kept == made.layout) return;
  known.stored.push_back(Move(value, known.made.tensor, {*kept, NaturalOrder(made, *kept)}));
}

Value* PlacedValues::Bring(const Value& value, const Placed& to) {
  Entry& known = values_.at(&value);
  const Phase phase = make_.meta().phase;
  if (known.phase != phase && !known.made.of_parameters) known.moved.clear();
  known.phase = phase;
  for (const auto* forms : {&known.stored, &known.moved}) {
    for (const LocalTensor& form : *forms) {
      if (SamePlace(form.placed, to)) return form.value;
    }
  }
  Keep(value, known);
  LocalTensor from = known.stored.back();
  for (const auto* forms : {&known.stored, &known.moved}) {
    for (const LocalTensor& form : *forms) {
      // Who else wanted the value in this phase, which a memory policy changes, decides no bit.
      const bool decided = forms == &known.stored ||
                           !IsSummed(known.stored.back().placed.layout, form.placed.layout);
      if (decided && IsFree(form.placed.layout, to.layout)) from = form;
    }
  }
  known.moved.push_back(Move(value, from, to));
  return known.moved.back().value;
}

}  // namespace gt
