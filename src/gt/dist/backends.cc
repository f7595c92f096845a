#include "gt/dist/backends.h"

#include "gt/base/error.h"
#include "gt/dist/ordered_gloo.h"
#include "gt/torch_bridge/cuda_library.h"

namespace gt {

using c10d::ProcessGroupGloo;

std::shared_ptr<void> MakeGlooDevice(const std::string& address) {
  return address.empty() ? ProcessGroupGloo::createDefaultDevice()
                         : ProcessGroupGloo::createDeviceForHostname(address);
}

BackendPtr MakeGlooBackend(const StorePtr& store, const Group& group,
                           std::chrono::milliseconds timeout, const std::shared_ptr<void>& device) {
  auto options = ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(std::static_pointer_cast<::gloo::transport::Device>(device));
  options->threads = 1;  // one queue: collectives of a group run in the order they were issued
  options->group_name = group.name;
  options->group_desc = group.description;
  return c10::make_intrusive<OrderedGloo>(store, static_cast<int>(group.index),
                                          static_cast<int>(group.size()), options);
}

BackendPtr MakeNcclBackend(const StorePtr& store, const Group& group,
                           std::chrono::milliseconds timeout) {
  using Maker = void (*)(const StorePtr&, const Group&, std::chrono::milliseconds, BackendPtr*);
  static const auto maker = reinterpret_cast<Maker>(FindInCudaLibrary("gt_make_nccl_backend"));
  if (maker == nullptr) {
    Fail(ErrorCode::kNoBackend,
         "--comm.backend nccl: this build of gt has no nccl (libgt_cuda.so was built where nccl.h "
         "was missing, or is not there); use --comm.backend gloo with --device cpu, or build gt "
         "where the nvidia-nccl package is");
  }
  BackendPtr backend;
  maker(store, group, timeout, &backend);
  return backend;
}

}  // namespace gt
