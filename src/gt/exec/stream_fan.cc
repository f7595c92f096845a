#include "gt/exec/stream_fan.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <vector>

namespace gt {
namespace {

constexpr size_t kStreams = 4;

// Taken from libtorch's pool once for each device; the same ones serve every call there.
std::vector<c10::Stream> SideStreams(c10::Device device) {
  static auto* mutex = new std::mutex();
  static auto* of_device = new std::map<c10::DeviceIndex, std::vector<c10::Stream>>();
  const std::lock_guard lock(*mutex);
  std::vector<c10::Stream>& streams = (*of_device)[device.index()];
  const c10::impl::VirtualGuardImpl guard(device.type());
  while (streams.size() < kStreams) streams.push_back(guard.getStreamFromGlobalPool(device));
  return streams;
}

}  // namespace

size_t StreamFanWidth(c10::Device device) { return device.is_cuda() ? kStreams : 1; }

void RunSideBySide(c10::Device device, size_t parts, const std::function<void(size_t)>& body) {
  if (!device.is_cuda()) {
    for (size_t i = 0; i < parts; ++i) body(i);
    return;
  }
  c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  c10::Event ready(device.type());
  ready.record(current);
  const std::vector<c10::Stream> side = SideStreams(device);
  std::vector<c10::Event> finished;
  for (size_t i = 0; i < parts; ++i) {
    const c10::Stream& stream = side[i % kStreams];
    ready.block(stream);
    c10::StreamGuard guard(stream);
    body(i);
    finished.emplace_back(device.type()).record(stream);
  }
  for (c10::Event& event : finished) event.block(current);
}

}  // namespace gt
