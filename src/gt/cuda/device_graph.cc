// DeviceGraph with libtorch's CUDAGraph. Built as a library of its own: see exec/device_graph.h.
#include "gt/exec/device_graph.h"

// libtorch's headers include cuda_runtime.h, of which they need what is in cuda_runtime_api.h alone;
// the rest is for device code and includes headers that only a CUDA toolkit has.
#include <cuda_runtime_api.h>
#define __CUDA_RUNTIME_H__

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>
#include <optional>

namespace gt {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// What all recordings on one device share; never destroyed. Ranks that are threads of a process share the
// device's generator, which every graph registers with and refuses to advance while another is recorded: so
// one of them records, replays or lets go of a graph at a time.
struct RecordingDevice {
  std::mutex mutex;
  // Of its own: streams of libtorch's pool are shared, and what others launch on one that is being recorded
  // would become part of the recording. Libraries keep a workspace for each stream, and allocators ask for
  // events on those that memory was used on.
  cudaStream_t stream = nullptr;
};

RecordingDevice& RecordingsOn(c10::DeviceIndex device) {
  static auto* mutex = new std::mutex();
  static auto* devices = new std::map<c10::DeviceIndex, RecordingDevice>();
  const std::lock_guard lock(*mutex);
  RecordingDevice& found = (*devices)[device];
  if (found.stream == nullptr) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&found.stream, cudaStreamNonBlocking));
  }
  return found;
}

// `later` goes on when `earlier` has done what it has been given so far.
void Order(const c10::cuda::CUDAStream& earlier, const c10::cuda::CUDAStream& later) {
  at::cuda::CUDAEvent done;
  done.record(earlier);
  done.block(later);
}

// What the graphs of a step share.
struct Pool {
  Pool(int device, const at::Generator* generator)
      : device(static_cast<c10::DeviceIndex>(device)),
        id(at::cuda::graph_pool_handle()),
        shared(RecordingsOn(this->device)) {
    if (generator != nullptr) own_generator = *generator;
  }
  ~Pool() {
    for (; holds > 0; --holds) allocator::releasePool(device, id);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  c10::cuda::CUDAStream Stream() const {
    return c10::cuda::getStreamFromExternal(shared.stream, device);
  }
  std::unique_lock<std::mutex> Lock() const { return std::unique_lock(shared.mutex); }

  const c10::DeviceIndex device;
  const at::cuda::MempoolId_t id;
  RecordingDevice& shared;
  std::optional<at::Generator> own_generator;  // besides the device's
  int holds = 0;                               // of the memory, besides those of the graphs
};

class Recorded : public at::cuda::CUDAGraph {
 public:
  // Brings everything back that capture_begin has changed; a recording that has failed is not ended by
  // capture_end, which would throw half way.
  void Abandon() {
    cudaGraph_t broken = nullptr;
    cudaStreamEndCapture(capture_stream_.stream(), &broken);
    if (broken != nullptr) cudaGraphDestroy(broken);
    cudaGetLastError();
    try {
      allocator::endAllocateToPool(capture_dev_, mempool_id_);
      allocator::releasePool(capture_dev_, mempool_id_);
    } catch (const c10::Error&) {  // it was not begun
    }
    try {
      at::HostAllocator* host = at::getHostAllocator(at::kCUDA);
      host->end_allocate_to_pool(mempool_id_);
      host->release_pool(mempool_id_);
    } catch (const c10::Error&) {  // likewise
    }
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
  }
};

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {}
  ~CudaGraph() override {
    const auto lock = pool_->Lock();
    graph_.reset();
  }

  void Capture(const Body& body) override {
    const auto lock = pool_->Lock();
    const c10::cuda::CUDAStream running = c10::cuda::getCurrentCUDAStream(pool_->device);
    const c10::cuda::CUDAStream recording = pool_->Stream();
    // A recording begins and ends with kernels that do run: they write seeds and offsets, which earlier
    // recordings still read and this one's replay writes again.
    Order(running, recording);
    Record(body, recording);
    Order(recording, running);
  }

  void Replay() override {
    const auto lock = pool_->Lock();
    graph_->replay();
  }

 private:
  void Record(const Body& body, const c10::cuda::CUDAStream& stream) {
    const c10::cuda::CUDAStreamGuard guard(stream);
    if (pool_->own_generator) graph_->register_generator_state(*pool_->own_generator);
    // Other threads may go on allocating and asking for events.
    graph_->capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
    try {
      body();
      graph_->capture_end();
    } catch (...) {
      graph_->Abandon();
      throw;
    }
  }

  std::shared_ptr<Pool> pool_;
  std::unique_ptr<Recorded> graph_ = std::make_unique<Recorded>();
};

class CudaGraphs : public DeviceGraphs {
 public:
  CudaGraphs(int device, const at::Generator* generator)
      : pool_(std::make_shared<Pool>(device, generator)) {
    const auto lock = pool_->Lock();
    allocator::emptyCache();
  }
  ~CudaGraphs() override {
    const auto lock = pool_->Lock();
    pool_.reset();
    allocator::emptyCache();
  }

  std::unique_ptr<DeviceGraph> Make() override { return std::make_unique<CudaGraph>(pool_); }

  void Reserve(int64_t bytes) override {
    try {
      Allocate(static_cast<size_t>(bytes));  // free at once, and the pool's from then on
    } catch (const c10::OutOfMemoryError&) {
    }
  }

  at::Tensor Empty(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   const at::TensorOptions& options) override {
    // Not by at::empty, which fills memory when kernels must be deterministic: on this stream, the fill
    // would overtake kernels that still use the memory.
    const size_t bytes =
        at::detail::computeStorageNbytes(sizes, strides, options.dtype().itemsize());
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, Allocate(bytes));
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), options.dtype());
    impl->set_sizes_and_strides(sizes, strides);
    return at::Tensor(std::move(impl));
  }

  c10::Device device() const override { return {c10::kCUDA, pool_->device}; }

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const auto& segment : allocator::snapshot(pool_->id, /*include_traces=*/false).segments) {
      bytes += static_cast<int64_t>(segment.total_size);
    }
    return bytes;
  }

 private:
  c10::DataPtr Allocate(size_t bytes) {
    const auto lock = pool_->Lock();
    const c10::cuda::CUDAStreamGuard guard(pool_->Stream());
    allocator::beginAllocateToPool(
        pool_->device, pool_->id,
        [stream = pool_->shared.stream](cudaStream_t other) { return other == stream; });
    ++pool_->holds;
    c10::DataPtr memory;
    try {
      memory = allocator::get()->allocate(bytes);
    } catch (...) {
      allocator::endAllocateToPool(pool_->device, pool_->id);
      throw;
    }
    allocator::endAllocateToPool(pool_->device, pool_->id);
    return memory;
  }

  std::shared_ptr<Pool> pool_;
};

}  // namespace
}  // namespace gt

extern "C" gt::DeviceGraphs* gt_make_device_graphs(int device, const at::Generator* generator) {
  return new gt::CudaGraphs(device, generator);
}
