// Kernels for the fused nodes (gt::fused) of a graph, on one GPU. A kernel is used only if it is admitted:
// on this device, with this libtorch and at these sizes it gave the bits of its operators on random and
// hostile inputs, and took no longer.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
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
  // Of the results, those that are undefined (or missing) are allocated, the others are written to.
  // Launches on the current stream and can be recorded in a device graph.
  virtual void Run(std::span<const at::Tensor> inputs, SymbolValues symbols,
                   std::vector<at::Tensor>& outputs) const = 0;
};

// What became of the fused nodes of a graph.
struct KernelReport {
  int64_t nodes = 0;     // fused nodes on the GPU
  int64_t kernels = 0;   // distinct ones among them
  int64_t compiled = 0;  // now, rather than found in the store
  int64_t compared = 0;  // now, rather than known from before
  int64_t admitted = 0;  // kernels
  double compile_seconds = 0, admission_seconds = 0;
  std::vector<std::string> rejected;  // names of kernels, each with the reason
  std::string missing;                // why there is no kernel at all; empty: there are some
};

class FusedKernels {
 public:
  // Of all fused nodes of the graph on that GPU; the graph must outlive it and stay as it is.
  FusedKernels(const Graph& graph, c10::Device device, std::filesystem::path store);
  ~FusedKernels();
  FusedKernels(const FusedKernels&) = delete;
  FusedKernels& operator=(const FusedKernels&) = delete;

  // Null: the node runs operator by operator.
  const FusedKernel* Find(const Node& node) const;
  const KernelReport& report() const { return report_; }

 private:
  std::unordered_map<const Node*, std::shared_ptr<const FusedKernel>> kernels_;
  KernelReport report_;
};

bool HasFusedNodes(const Graph& graph);

}  // namespace gt
