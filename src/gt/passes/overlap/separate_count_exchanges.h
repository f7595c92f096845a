// Lets exchanges of token counts pass by exchanges of tokens.
#pragma once

#include "gt/passes/framework/pass.h"

namespace gt {

// A chunk's tokens cannot be sent before the host knows how many they are. In one queue its counts
// would wait for another chunk's tokens, a thousand times their size, and the queue would then be
// idle until the host has read them.
class SeparateCountExchanges : public Pass {
 public:
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  Counter nodes_moved_{this, "exchanges", "exchanges of counts that moved to another group"};
};

}  // namespace gt
