// ProcessGroupNCCL of libtorch. Built as part of the CUDA library where nccl's header is there: see
// dist/backends.h.
#if __has_include(<nccl.h>)

#include <cuda_runtime_api.h>
#define __CUDA_RUNTIME_H__

#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "gt/dist/backends.h"

extern "C" void gt_make_nccl_backend(const gt::StorePtr& store, const gt::Group& group,
                                     std::chrono::milliseconds timeout, gt::BackendPtr* made) {
  auto options =
      c10d::ProcessGroupNCCL::Options::create(group.priority == gt::GroupPriority::kHigh);
  options->timeout = timeout;
  options->group_name = group.name;
  options->group_desc = group.description;
  for (int64_t rank : group.ranks) {
    options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  }
  *made = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(group.index),
                                                      static_cast<int>(group.size()), options);
}

#endif
