// What carries collectives from rank to rank. A new backend is a name and a row of facts here, and one
// file in dist/ that registers how its groups are made (dist/backends.h).
#pragma once

#include <array>
#include <string_view>

#include "gt/base/text.h"

namespace gt {

enum class CommBackend { kAuto, kGloo, kNccl, kFake, kEmulated };

template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<CommBackend> = {"auto", "gloo", "nccl",
                                                                            "fake", "emulated"};

// What the rest of the program asks about a backend.
struct CommBackendFacts {
  // One process stands for all ranks: the others are not there, and nothing can be asked of them.
  bool stands_for_all = false;
  // Nothing is sent: a step is looked at and never run.
  bool sends_nothing = false;
  // Serves tensors on GPUs alone; groups of host tensors are gloo's.
  bool gpu_only = false;
  // Two ranks may be on one GPU (debug.share_gpu).
  bool shares_gpu = false;
  // Its collectives can be recorded in CUDA graphs.
  bool recordable = false;
  // What predictions count: communicators in GPU memory, and gloo's buffers in host memory.
  bool gpu_communicators = false, host_buffers = true;
};

constexpr CommBackendFacts FactsOf(CommBackend backend) {
  switch (backend) {
    case CommBackend::kAuto:  // nccl on GPUs, gloo elsewhere
      return {.shares_gpu = true, .recordable = true, .gpu_communicators = true};
    case CommBackend::kGloo:
      return {.shares_gpu = true};
    case CommBackend::kNccl:
      return {.gpu_only = true, .recordable = true, .gpu_communicators = true};
    case CommBackend::kFake:  // counted as the job that it stands for
      return {.stands_for_all = true,
              .sends_nothing = true,
              .recordable = true,
              .gpu_communicators = true};
    case CommBackend::kEmulated:
      return {.stands_for_all = true, .host_buffers = false};
  }
  return {};
}

}  // namespace gt
