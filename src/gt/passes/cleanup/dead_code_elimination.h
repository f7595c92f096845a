// Removes what nothing depends on, in one backward sweep.
#pragma once

#include "gt/passes/framework/pass.h"

namespace gt {

struct DeadCodeEliminationOptions {
  bool drop_random = false;
  bool drop_collectives = false;
};

class DeadCodeElimination : public Pass {
 public:
  explicit DeadCodeElimination(DeadCodeEliminationOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  bool Sweep(Graph& graph);
  bool MayErase(const Operator& op) const;

  DeadCodeEliminationOptions options_;
  Counter erased_{this, "erased", "nodes removed, those of nested graphs included"};
  Counter kept_{this, "kept", "nodes without uses that stayed: random, collective or effectful"};
};

}  // namespace gt
