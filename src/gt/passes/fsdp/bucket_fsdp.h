// Sends the parameters of a transformer block with one collective, ahead of their use, and likewise
// its gradients.
#pragma once

#include "gt/passes/framework/pass.h"
#include "gt/passes/fsdp/bucket_fsdp_options.h"

namespace gt {

// Gathers of parameters, and reductions of what becomes a gradient of one, are packed together if
// they belong to one block, direction, group and dtype. Experts have buckets of their own. Gathers
//   %a = all_gather(%w1)  %b = wait(%a)      %c = all_gather(%w2)  %d = wait(%c)
// become
//   %pack = cat(%w1 flat, %w2 flat)  %g = all_gather(%pack)                  the launch
//   %w = wait(%g)  %b', %d' = split_with_sizes_copy(%w as [ranks, n])        the end
// and reductions the same with the ranks' shards side by side. Elements are only moved, so every
// result is bitwise the same.
//
// Every node that is made, and every collective that stays alone, says in Meta::fsdp_bucket which
// bucket it belongs to. A collective that says so is left alone, so that a second run changes
// nothing.
class BucketFsdp : public Pass {
 public:
  explicit BucketFsdp(BucketFsdpOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  BucketFsdpOptions options_;
  Counter gather_buckets_{this, "gather_buckets", "collectives that gather parameters now"};
  Counter gathers_{this, "gathers", "collectives that did so before"};
  Counter reduction_buckets_{this, "reduction_buckets", "collectives that reduce gradients now"};
  Counter reductions_{this, "reductions", "collectives that did so before"};
  Counter left_{this, "left_alone", "gathers and reductions that cannot be packed or moved"};
};

}  // namespace gt
