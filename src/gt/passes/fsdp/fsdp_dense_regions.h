// Starts the collectives of parameters and gradients where the step computes densely, so that they do
// not compete with exchanges of tokens for the network.
#pragma once

#include "gt/passes/framework/pass.h"

namespace gt {

struct FsdpDenseRegionsOptions {
  GT_OPTION(bool, strict, false, Any(),
            "fail if dependencies keep a collective from its place, instead of leaving it");
  GT_END_OPTIONS(FsdpDenseRegionsOptions);
};

// The dense region of a transformer block, in each direction, is its compute outside of experts; in a
// block that exchanges no tokens it is all its compute. With blocks counted in the model's order:
//   gather of block i, forward        starts with the dense region of block i - 1
//   gather of block i, backward       starts with that of block i + 1; for the last block, with the
//                                     backward of what follows the blocks
//   reduce-scatter of block i         in that of block i - 1, backward, after its gradients
//   what follows the blocks           gathers in the last block's forward, reduces in its backward
// Where replicas reduce what shards have reduced, they do so one block later, or at the end. The first
// gather, the last reduce-scatter and embeddings stay. A collective moves together with the
// nodes that prepare its input. Waits for gradients, with what unpacks them, go to the end.
class FsdpDenseRegions : public Pass {
 public:
  FsdpDenseRegions();
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  class Planner;
  FsdpDenseRegionsOptions options_;
  Counter gathers_{this, "gathers", "gathers that start with a dense region"};
  Counter reductions_{this, "reductions", "reductions that start in a dense region"};
  Counter waits_{this, "waits", "waits for gradients at the end of the step"};
  Counter blocked_{this, "blocked", "collectives and waits that dependencies keep from moving"};
};

}  // namespace gt
