// Gives token exchanges a process group of their own where they share one with other collectives.
#pragma once

#include "gt/passes/pass.h"
#include "gt/passes/process_groups.h"

namespace gt {

// Collectives of one group run one behind the other. A token exchange that stands behind a gather
// of parameters in the same queue is late by the whole gather, and compute waits for tokens.
class IsolateEpProcessGroup : public Pass {
 public:
  // Without groups every name is a group of its own.
  explicit IsolateEpProcessGroup(ProcessGroups* groups = nullptr)
      : groups_(groups == nullptr ? &named_ : groups) {}
  const PassInfo& info() const override;
  bool Run(Graph& graph) override;

 private:
  NamedGroups named_;
  ProcessGroups* groups_;
  Counter groups_moved_{this, "groups", "groups whose token exchanges got a group of their own"};
  Counter nodes_moved_{this, "exchanges", "token exchanges that moved there"};
};

}  // namespace gt
