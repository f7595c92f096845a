// Decides which forward values are kept for the backward and which are recomputed there. It only
// writes the decision down; passes/memory/rematerialize.h carries it out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gt/analysis/aliasing.h"
#include "gt/passes/framework/pass.h"
#include "gt/passes/memory/memory_policy_options.h"

namespace gt {

// What the policies mean:
//   none     keeps everything that the backward uses
//   default  keeps what is expensive to compute (WhyKept), recomputes the rest
//   eager    like default, but every second matrix product of a layer is recomputed
//   full     recomputes everything but what selectors name: of a layer only its input stays
//   sac_and_offload  like default; passes/memory/cpu_offload.h then moves kept values to the host
//
// Random values are recomputed like others: a draw is cheap, its mask large, and rematerialize
// makes the second draw equal to the first.
//
// Values made of parameters alone:
//   - Where a collective gathers them, no policy decides about them: how long gathered parameters
//     live is what passes/fsdp/reshard_after_forward.h decides, and the cast before a gather is of
//     the rank's shard only.
//   - Where none does (one rank, or copies of the model on every rank), they are treated like other
//     values: casts of all parameters would otherwise live from forward to backward. They are never
//     kept for entering a layer, because the parameters they are made of are available in any
//     layer.

// Why `default` and `eager` keep what the operator returns; empty: they do not.
std::string_view WhyKept(const Operator& op);

// What would go wrong if the node were recomputed, such as "it would have its effect twice";
// empty: nothing.
std::string_view HarmOfRepeating(const Node& node);

// Whether no policy computes the node again: it cannot be repeated, or its results are alive until the
// end anyway, because the step returns them.
bool IsAlwaysKept(const Node& node, const EscapingStorage& returned);

// What `full` keeps on request: the results of one operator in the modules that a pattern
// (base/fqn_pattern.h) names.
struct SaveSelector {
  std::string modules;
  const Operator* op = nullptr;

  bool Selects(const Node& node) const;
};
// Reads "layers.*.attention.wq::aten::mm"; the operator may also be written aten.mm.default. Fails
// if the text is malformed, the operator does not exist, or its results are never kept (views).
SaveSelector ParseSaveSelector(std::string_view text);

// Fails if the selectors cannot be read, or if there are any and the policy is not `full`.
std::vector<SaveSelector> ReadSaveSelectors(const MemoryPolicyOptions& options);

class ApplyMemoryPolicy : public Pass {
 public:
  explicit ApplyMemoryPolicy(MemoryPolicyOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  MemoryPolicyOptions options_;
  Counter saved_{this, "saved", "forward nodes whose results are kept"};
  Counter between_layers_{this, "between_layers",
                          "those of them kept because a later layer begins there"};
  Counter recomputed_{this, "recomputed", "forward nodes that the backward may compute again"};
};

}  // namespace gt
