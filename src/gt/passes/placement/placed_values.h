// The values of a step on one rank: where each was made, as what it is kept, and in which other places its
// users have wanted it.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gt/passes/placement/moves.h"

namespace gt {

class PlacedValues {
 public:
  PlacedValues(NodeMaker& make, Mover& mover) : make_(make), mover_(mover) {}

  struct Made {
    const placement::Pieces* pieces = nullptr;
    LocalTensor tensor = {};
    std::optional<placement::Layout> kept = {};  // for several uses; nothing: as it is
    // Made of parameters alone: what is gathered of it is not made again in the backward, since the pass
    // that knows when does that.
    bool of_parameters = false;
  };
  // Once for each value, before it is asked for.
  void Add(const Value& value, Made made);

  const LocalTensor& MadeAs(const Value& value) const { return Known(value).made.tensor; }
  bool IsOfParameters(const Value& value) const { return Known(value).made.of_parameters; }

  // The value where it is wanted. Moved once for all users in the same phase: what the forward gathers
  // is not kept for the backward, unless the plan keeps it so or it is made of parameters.
  Value* Bring(const Value& value, const Placed& to);

  // Whether the value is in this layout already, and then in which order; else nothing.
  const AxisOrder* OrderIn(const Value& value, const placement::Layout& layout) const;
  // The order in which it would arrive in a layout if nothing were sorted on the way.
  AxisOrder ArrivingOrder(const Value& value, const placement::Layout& layout) const;

  int64_t moved() const { return moved_; }

 private:
  struct Entry {
    Made made;
    std::vector<LocalTensor> stored = {};  // as it was made, and as it is kept
    std::vector<LocalTensor> moved = {};   // as users wanted it in this phase
    Phase phase = Phase::kForward;         // of `moved`
  };
  const Entry& Known(const Value& value) const { return values_.at(&value); }
  void Keep(const Value& value, Entry& known);
  LocalTensor Move(const Value& value, const LocalTensor& from, const Placed& to);

  NodeMaker& make_;
  Mover& mover_;
  std::unordered_map<const Value*, Entry> values_;
  int64_t moved_ = 0;
};

}  // namespace gt
