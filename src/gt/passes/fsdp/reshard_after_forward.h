// Gathers parameters again for the backward instead of keeping them from the forward.
#pragma once

#include "gt/passes/framework/pass.h"

namespace gt {

class ReshardParameters : public Pass {
 public:
  ReshardParameters() = default;
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  class Repeater;
  Counter gathers_{this, "gathers", "all-gathers that were repeated for the backward"};
  Counter nodes_{this, "nodes", "nodes repeated in all: casts, gathers, waits, views"};
};

}  // namespace gt
