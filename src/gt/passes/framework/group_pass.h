// What passes that give collectives other process groups have in common.
#pragma once

#include "gt/passes/framework/pass.h"
#include "gt/passes/framework/process_groups.h"

namespace gt {

class GroupPass : public Pass {
 public:
  // Null: every name is a group of its own. Must outlive the pass otherwise.
  explicit GroupPass(ProcessGroups* groups) : groups_(groups == nullptr ? &named_ : groups) {}

 protected:
  ProcessGroups& groups() { return *groups_; }

 private:
  NamedGroups named_;
  ProcessGroups* groups_;
};

}  // namespace gt
