// Gives token exchanges a process group of their own where they share one with other collectives.
#pragma once

#include "gt/passes/framework/pass.h"

namespace gt {

// Collectives of one group run one after the other. A token exchange that is queued behind a gather
// of parameters is late by the whole gather, and compute waits for tokens.
class IsolateEpProcessGroup : public Pass {
 public:
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  Counter groups_moved_{this, "groups", "groups whose token exchanges got a group of their own"};
  Counter nodes_moved_{this, "exchanges", "token exchanges that moved there"};
};

}  // namespace gt
