// What exec/host_pool.h and torch_bridge/device.h need of CUDA. Built as a library of its own, as
// device_graph.cc is.
#include <cuda_runtime_api.h>
#define __CUDA_RUNTIME_H__

#include <c10/cuda/CUDACachingAllocator.h>

extern "C" void* gt_allocate_page_locked(size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess) return data;
  cudaGetLastError();  // a failed allocation is no reason for the next kernel to fail
  return nullptr;
}

extern "C" void gt_free_page_locked(void* data) { cudaFreeHost(data); }

extern "C" void gt_limit_device_memory(double fraction, int device) {
  // What is reserved but free would be handed out whatever the limit.
  c10::cuda::CUDACachingAllocator::emptyCache();
  c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction,
                                                     static_cast<c10::DeviceIndex>(device));
}
