// NCCL, which lives in the library of what needs CUDA's headers (cuda/nccl_backend.cc).
#include "gt/base/error.h"
#include "gt/dist/backends.h"
#include "gt/torch_bridge/cuda_library.h"

namespace gt {
namespace {

const BackendRegistration kNcclBackend(CommBackend::kNccl, [](const BackendRequest& request) {
  using Maker = void (*)(const StorePtr&, const Group&, std::chrono::milliseconds, BackendPtr*);
  static const auto maker = reinterpret_cast<Maker>(FindInCudaLibrary("gt_make_nccl_backend"));
  if (maker == nullptr) {
    Fail(ErrorCode::kNoBackend,
         "--comm.backend nccl: this build of gt has no nccl (libgt_cuda.so was built where nccl.h "
         "was missing, or is not there); use --comm.backend gloo with --device cpu, or build gt "
         "where the nvidia-nccl package is");
  }
  BackendPtr backend;
  maker(request.store, request.group, request.timeout, &backend);
  return backend;
});

}  // namespace
}  // namespace gt
