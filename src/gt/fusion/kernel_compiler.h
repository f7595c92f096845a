// Sources to binaries, on all cores, through the store.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gt/fusion/kernel_source.h"
#include "gt/fusion/kernel_store.h"

namespace gt::fusion {

struct CompiledKernel {
  std::string key;  // of the source, the compiler and the architecture: what the store knows it by
  std::string cubin;  // empty: there is none
  std::string error;  // why
  bool stored = false;
};

// What was made with another version of the generator has another key.
std::string KernelKey(const KernelSource& source, int architecture);

// In the order of the sources. Without NVRTC only what is stored has a binary.
std::vector<CompiledKernel> CompileKernels(std::span<const KernelSource* const> sources,
                                           int architecture, KernelStore& store);

// A hash of 128 bits, as text.
std::string LongHash(std::string_view text);

}  // namespace gt::fusion
