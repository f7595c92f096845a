// Runs the text of CUDA kernels on the host, so that a machine without a GPU can tell a right kernel from a wrong
// one. Threads of a block are fibers that take turns where they wait for each other: in __syncthreads, and in
// whatever a warp does together. Arithmetic is the host's, so sums in the kernel's order have the same bits and
// functions such as expf nearly so. Half precision (f16) is not there.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gt/fusion/kernel_template.h"
#include "gt/testing/temp_folder.h"

namespace gt::testing {

bool HasHostCompiler();

// What a source file for the host begins with, so that the text of kernels can follow: what CUDA defines, and
// the prelude of kernels.
std::string HostKernelPrelude();

// A compiled source file.
class HostLibrary {
 public:
  explicit HostLibrary(const std::string& text);
  ~HostLibrary();
  HostLibrary(const HostLibrary&) = delete;
  HostLibrary& operator=(const HostLibrary&) = delete;

  void* Find(const std::string& name) const;           // null: there is no such function
  const std::string& error() const { return error_; }  // empty if it was compiled

 private:
  const TempFolder folder_;
  void* handle_ = nullptr;
  std::string error_;
};

// Kernels that are written by hand.
class HostKernels {
 public:
  explicit HostKernels(const std::vector<fusion::RowKernel>& kernels);

  const std::string& error() const { return library_.error(); }

  // Arguments as a launch on a GPU has them.
  template <typename... Args>
  void Launch(size_t kernel, int64_t blocks, int threads, Args... arguments) const {
    void* pointers[] = {static_cast<void*>(&arguments)...};
    functions_[kernel](blocks, threads, pointers);
  }

 private:
  const HostLibrary library_;
  std::vector<void (*)(long long, int, void**)> functions_;
};

}  // namespace gt::testing
