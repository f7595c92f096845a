// The generated kernels of a graph as files to read.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gt/ir/graph.h"

namespace gt::fusion {

struct KernelFiles {
  int64_t groups = 0;   // fused nodes of the graph
  int64_t kernels = 0;  // files: equal kernels are one
};

// One .cu for each kernel. It begins with what it is for: modules, phase, and the operators as a graph.
KernelFiles WriteKernelFiles(const Graph& graph, const std::filesystem::path& folder);

}  // namespace gt::fusion
