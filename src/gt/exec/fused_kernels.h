// Kernels for the fused nodes (gt::fused) of a graph, on one GPU. A kernel is used only if it is admitted:
// on this device, with this libtorch and at these sizes it gave the bits of its operators on random and
// hostile inputs, and was not slower.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  // Appends the results, which it allocates. Launches on the current stream and can be recorded in a
  // device graph.
  virtual void Run(std::span<const at::Tensor> inputs, SymbolValues symbols,
                   std::vector<at::Tensor>& outputs) const = 0;
};

class FusedKernels {
 public:
  FusedKernels();
  ~FusedKernels();
  FusedKernels(const FusedKernels&) = delete;
  FusedKernels& operator=(const FusedKernels&) = delete;

  // Null: the node runs operator by operator.
  const FusedKernel* Find(const Node& node) const;

 private:
  friend class KernelAdmission;
  std::unordered_map<const Node*, std::shared_ptr<const FusedKernel>> kernels_;
};

}  // namespace gt
