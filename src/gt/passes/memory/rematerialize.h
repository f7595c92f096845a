// Recomputes forward values in the backward, where the memory policy says so, instead of keeping
// them.
#pragma once

#include "gt/passes/framework/pass.h"

namespace gt {

class Rematerialize : public Pass {
 public:
  Rematerialize() = default;
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  Counter regions_{this, "regions", "runs of backward nodes that needed copies"};
  Counter copies_{this, "copies", "nodes computed again in the backward"};
  Counter redrawn_{this, "redrawn", "those of them that draw random numbers a second time"};
  Counter erased_{this, "erased", "originals that nothing uses any more"};
};

}  // namespace gt
