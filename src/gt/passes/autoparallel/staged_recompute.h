// Decides what the backward computes again, by cutting the forward into stages. It only writes the
// decision down; passes/memory/rematerialize.h carries it out.
#pragma once

#include "gt/passes/autoparallel/staged_recompute_options.h"
#include "gt/passes/framework/pass.h"

namespace gt {

// Everything that the forward makes for the backward is recomputed but for what is named below.
// Recomputing from the first node on would hold the whole forward at once, so it is cut: a stage ends
// where it has produced the stage size, and at the node of the stage after which the fewest bytes are
// still needed, these are kept. Recomputing a value then begins at the cut before it.
//
// Of n stages of equal size, n cuts are kept and one stage at a time is recomputed: with the square
// root as stage size both grow alike.
class StagedRecompute : public Pass {
 public:
  explicit StagedRecompute(StagedRecomputeOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  class Planner;
  StagedRecomputeOptions options_;
  Counter stages_{this, "stages", "stages of the forward"};
  Counter at_cuts_{this, "at_cuts", "nodes whose results are kept because a stage is cut there"};
  Counter products_{this, "products",
                    "matrix products whose results are kept because they are every other one"};
  Counter saved_{this, "saved", "forward nodes whose results are kept, these included"};
  Counter recomputed_{this, "recomputed", "forward nodes that the backward may compute again"};
};

}  // namespace gt
