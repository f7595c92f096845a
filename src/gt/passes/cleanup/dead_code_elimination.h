// Removes what nothing depends on, in one backward sweep.
#pragma once

#include "gt/passes/framework/pass.h"

namespace gt {

struct DeadCodeEliminationOptions {
  GT_OPTION(bool, drop_random, false, Any(),
            "also remove unused random operators; what the later ones draw changes");
  GT_OPTION(bool, drop_collectives, false, Any(),
            "also remove unused collectives; only right if every rank removes the same ones");
  GT_END_OPTIONS(DeadCodeEliminationOptions);
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
