// Makes groups of operators one node each (gt::fused), for which one kernel is generated
// (fusion/kernel_source.h): what they hand on to each other never goes through memory.
#pragma once

#include "gt/fusion/fuse_options.h"
#include "gt/passes/framework/pass.h"

namespace gt {

class Fuse : public Pass {
 public:
  explicit Fuse(FuseOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  FuseOptions options_;
  Counter groups_{this, "groups", "groups of operators that became one node"};
  Counter operators_{this, "operators", "operators in them, views not counted"};
  Counter recomputed_{this, "recomputed",
                      "operators that a group computes again instead of reading their results"};
  Counter late_{this, "late", "results that groups of the backward write instead of being kept"};
  Counter combined_{this, "combined", "operators on rows that took in one beside them"};
  Counter bytes_{this, "bytes", "traffic that is saved, at the sizes seen when it was captured"};
};

}  // namespace gt
