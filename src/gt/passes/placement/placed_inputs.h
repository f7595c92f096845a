// Where the inputs of a placed step are: what a rank stores of parameters and reads of batches. Where
// several axes cut a parameter, the order of its cuts is chosen here, and with it that of its gradient.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "gt/passes/placement/apply_placement.h"
#include "gt/passes/placement/plan_reader.h"
#include "gt/passes/placement/shard_geometry.h"

namespace gt {

class PlacedInputs {
 public:
  // `stored`: inputs that another step has placed already.
  PlacedInputs(const PlanReader& plan, const std::map<std::string, PlacedInput>& stored);

  const Placed& Of(const Input& input) const { return placed_.at(&input); }
  // Null: the step has no such input.
  const Input* Find(const std::string& name) const;

  // The order in which several axes cut this value, because it leads to the gradient of a parameter that
  // they cut in this order; null: any.
  const AxisOrder* GradientOrder(const Value& value) const;

 private:
  Placed Place(const Input& input, const std::map<std::string, PlacedInput>& stored) const;
  void RequireBox(const Input& input, const placement::Layout& layout) const;
  AxisOrder OrderOf(const Input& input, const placement::Layout& layout) const;
  std::optional<placement::Layout> FirstUse(const Input& input,
                                            const placement::Layout& layout) const;
  void FollowGradients();

  const PlanReader& plan_;
  std::unordered_map<const Input*, Placed> placed_;
  std::unordered_map<std::string, const Input*> by_name_;
  std::unordered_map<const Value*, AxisOrder> order_of_gradient_;
};

// Parameters and batches; buffers and constants are whole on every rank: they are small, and checkpoints
// know them so.
inline bool IsSharded(const Input& input) {
  return input.role == InputRole::kParameter || input.role == InputRole::kInput;
}

// Whether several axes cut the same piece, so that their order matters.
bool CutsTwice(const placement::Layout& layout);

}  // namespace gt
