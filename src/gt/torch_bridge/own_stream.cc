#include "gt/torch_bridge/own_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "gt/torch_bridge/cuda_library.h"

namespace gt {
namespace {

// Streams without an owner, by device and priority. They are never destroyed: libraries keep a workspace for
// each, and the allocator keeps memory for each.
struct FreeStreams {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, bool>, std::vector<c10::Stream>> of;
};

FreeStreams& Free() {
  static auto* free = new FreeStreams();
  return *free;
}

c10::Stream Take(c10::Device gpu, bool high_priority) {
  {
    FreeStreams& free = Free();
    const std::lock_guard lock(free.mutex);
    std::vector<c10::Stream>& streams = free.of[{gpu.index(), high_priority}];
    if (!streams.empty()) {
      const c10::Stream stream = streams.back();
      streams.pop_back();
      return stream;
    }
  }
  using Maker = c10::StreamId (*)(int device, bool high_priority);
  static const auto maker = reinterpret_cast<Maker>(FindInCudaLibrary("gt_make_stream"));
  if (maker == nullptr) {
    return c10::impl::VirtualGuardImpl(gpu.type()).getStreamFromGlobalPool(gpu, high_priority);
  }
  return c10::Stream(c10::Stream::UNSAFE, gpu, maker(gpu.index(), high_priority));
}

c10::Device WithIndex(c10::Device gpu) {
  return gpu.has_index() ? gpu : c10::impl::VirtualGuardImpl(gpu.type()).getDevice();
}

}  // namespace

OwnStream::OwnStream(c10::Device gpu, bool high_priority)
    : stream_(Take(WithIndex(gpu), high_priority)), high_priority_(high_priority) {}

OwnStream::~OwnStream() {
  FreeStreams& free = Free();
  const std::lock_guard lock(free.mutex);
  free.of[{stream_.device_index(), high_priority_}].push_back(stream_);
}

}  // namespace gt
