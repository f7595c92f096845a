// Moves forward values that the backward needs to host memory in between.
#pragma once

#include "gt/passes/framework/pass.h"
#include "gt/passes/memory/cpu_offload_options.h"

namespace gt {

// A value %t that leaves becomes, in the forward and then in the backward,
//   %t_offload = gt::offload(%t)                          directly after %t
//   %t_host    = gt::wait_transfer(%t_offload, %t)        from here on the memory of %t is free
//   %t_reload  = gt::reload(%t_host, device)
//   %t_back    = gt::wait_transfer(%t_reload, %t_host)    directly before the first use
class CpuOffload : public Pass {
 public:
  explicit CpuOffload(CpuOffloadOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  CpuOffloadOptions options_;
  Counter tensors_{this, "tensors", "forward values that go to the host and come back"};
  Counter bytes_{this, "bytes", "what they take at the sizes seen when the step was captured"};
  Counter views_{this, "views", "views of them that the backward makes again"};
  Counter skipped_budget_{this, "skipped_budget", "values that stay because the budget is used up"};
};

}  // namespace gt
