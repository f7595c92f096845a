// CUDA C++ for the nested graph of a gt::fused node. Each thread computes a few neighbouring elements of
// every output by following the graph from the output to the inputs: a view is another index, a
// concatenation a choice, an index_select a load whose place another load says. Nothing is kept in memory
// between operators.
//
// Sizes and strides are arguments, but for small numbers. Nodes that do the same work have the same text,
// whatever their sizes are, and so share one compiled kernel: that of equal layers, and of other batch
// sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gt/ir/graph.h"

namespace gt::fusion {

inline constexpr int kThreadsPerBlock = 256;

struct KernelSource {
  std::string name;  // of the function: made of the operators' names
  std::string text;
  int lanes = 1;      // neighbouring elements that a thread computes
  bool wide = false;  // indices have 64 bits
  // Ways of writing it that differ in where the compiler of ATen's kernels may have contracted a product
  // and a sum; the options say which this one is.
  int forms = 1;
  std::vector<Dim> sizes;  // arguments after the pointers, then `threads`
  Dim threads;
  // Vectors are loaded and stored as one: the pointer of a tensor (inputs first, then outputs) must be a
  // multiple of so many bytes.
  struct AlignedPointer {
    int32_t tensor;
    int64_t bytes;
  };
  std::vector<AlignedPointer> pointers;
};

struct KernelSourceOptions {
  bool one_lane = false;  // needs no alignment
  bool wide = false;      // for tensors of 2^32 elements and more
  int form = 0;           // below KernelSource::forms
};

// Nothing if some part of the graph has no code.
std::optional<KernelSource> MakeKernelSource(const Graph& body,
                                             const KernelSourceOptions& options = {});

// Whether the outputs can be computed by one loop: equally many elements in the same order.
bool SameLoop(const TensorType& a, const TensorType& b);

}  // namespace gt::fusion
