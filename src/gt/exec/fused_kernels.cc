#include "gt/exec/fused_kernels.h"

namespace gt {

FusedKernels::FusedKernels() = default;
FusedKernels::~FusedKernels() = default;

const FusedKernel* FusedKernels::Find(const Node& node) const {
  const auto found = kernels_.find(&node);
  return found == kernels_.end() ? nullptr : found->second.get();
}

}  // namespace gt
