// What torch_bridge/own_stream.h needs of CUDA. Built as a library of its own, as device_graph.cc is.
#include <cuda_runtime_api.h>
#define __CUDA_RUNTIME_H__

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

extern "C" c10::StreamId gt_make_stream(int device, bool high_priority) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard guard(index);
  int least = 0, greatest = 0;
  C10_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  C10_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                              high_priority ? greatest : least));
  return c10::cuda::getStreamFromExternal(stream, index).id();
}
