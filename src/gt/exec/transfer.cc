#include "gt/exec/transfer.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "gt/base/error.h"
#include "gt/exec/host_pool.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

using EventPtr = std::shared_ptr<c10::Event>;

EventPtr Recorded(const c10::Stream& stream, bool timed = false) {
  auto flag = timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
  auto event = std::make_shared<c10::Event>(stream.device_type(), flag);
  event->record(stream);
  return event;
}

// In pieces, because the device copies one thing at a time in each direction, whatever stream it is on:
// a few bytes that the host waits for (token counts) slip in between two pieces instead of waiting for
// gigabytes.
void CopyInPieces(at::Tensor& to, const at::Tensor& from) {
  constexpr int64_t kPieceBytes = int64_t{8} << 20;
  const int64_t elements = from.numel(),
                piece = kPieceBytes / static_cast<int64_t>(from.itemsize());
  if (elements <= piece || !from.is_non_overlapping_and_dense()) {
    to.copy_(from, /*non_blocking=*/true);
    return;
  }
  // Both are dense and laid out alike: any order of elements will do.
  at::Tensor flat_to = to.as_strided({elements}, {1}), flat_from = from.as_strided({elements}, {1});
  for (int64_t begin = 0; begin < elements; begin += piece) {
    const int64_t count = std::min(piece, elements - begin);
    flat_to.narrow(0, begin, count).copy_(flat_from.narrow(0, begin, count), /*non_blocking=*/true);
  }
}

// One of the two directions of a device, or the copies of token counts.
class Lane {
 public:
  explicit Lane(c10::Device device)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

  struct Timed {
    EventPtr begin, end;
  };

  // Copies after everything that the compute stream has been given so far, and after `other`.
  EventPtr Copy(at::Tensor& to, const at::Tensor& from, const c10::Stream& compute,
                const EventPtr& other) {
    Recorded(compute)->block(stream_);
    if (other) other->block(stream_);
    c10::StreamGuard guard(stream_);
    std::unique_lock lock(mutex_);
    const bool timed = timed_;
    EventPtr begin = timed ? Recorded(stream_, timed) : nullptr;
    CopyInPieces(to, from);
    EventPtr end = Recorded(stream_, timed);
    if (timed) times_.push_back({begin, end});
    bytes_ += static_cast<int64_t>(from.nbytes());
    return end;
  }

  void SetTimed(bool on) {
    std::lock_guard lock(mutex_);
    timed_ = on;
    times_.clear();
    bytes_ = 0;
  }
  int64_t bytes() const { return bytes_; }
  double Seconds() const {
    std::lock_guard lock(mutex_);
    double seconds = 0;
    for (const Timed& time : times_) seconds += time.begin->elapsedTime(*time.end) / 1e3;
    return seconds;
  }

 private:
  c10::Stream stream_;
  mutable std::mutex mutex_;
  std::vector<Timed> times_;
  std::atomic<int64_t> bytes_ = 0;
  bool timed_ = false;
};

struct Lanes {
  explicit Lanes(c10::Device device) : out(device), counts(device), back(device) {}
  std::array<Lane*, 3> all() { return {&out, &counts, &back}; }
  Lane out, counts, back;
};

Lanes& LanesOf(c10::Device device) {
  static std::mutex mutex;
  static std::unordered_map<c10::Device, std::unique_ptr<Lanes>> lanes;
  std::lock_guard lock(mutex);
  std::unique_ptr<Lanes>& found = lanes[device];
  if (!found) found = std::make_unique<Lanes>(device);
  return *found;
}

c10::Stream ComputeStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Copies that nobody has waited for yet, by the address they write to. Their number is small: the
// tensors of a layer or two. What is copied must not be freed meanwhile: its memory would be
// reused immediately.
class InFlight {
 public:
  void Add(const at::Tensor& result, const at::Tensor& source, EventPtr done) {
    std::lock_guard lock(mutex_);
    flights_[result.const_data_ptr()] = {std::move(done), source};
  }
  // Null: there is none.
  EventPtr Find(const at::Tensor& result) {
    std::lock_guard lock(mutex_);
    auto found = flights_.find(result.const_data_ptr());
    return found == flights_.end() ? nullptr : found->second.done;
  }
  EventPtr Take(const at::Tensor& result) {
    std::lock_guard lock(mutex_);
    auto found = flights_.find(result.const_data_ptr());
    if (found == flights_.end()) return nullptr;
    EventPtr done = std::move(found->second.done);
    flights_.erase(found);
    return done;
  }

 private:
  struct Flight {
    EventPtr done;
    at::Tensor source;
  };
  std::mutex mutex_;
  std::unordered_map<const void*, Flight> flights_;
};

InFlight& Flights() {
  static InFlight& flights = *new InFlight();
  return flights;
}

// Plain counters for copies that are no lane's.
std::atomic<int64_t> host_bytes_out = 0, host_bytes_back = 0;
std::atomic<int64_t> nanoseconds_awaited = 0;

void ReturnBuffer(void* buffer) {
  HostPool::Instance().Give(std::unique_ptr<HostBuffer>(static_cast<HostBuffer*>(buffer)));
}

HostBuffer* BufferOf(const at::Tensor& host) {
  return static_cast<HostBuffer*>(
      host.storage().data_ptr().cast_context<HostBuffer>(&ReturnBuffer));
}

// Gaps between elements do not travel.
std::vector<int64_t> DenseStrides(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.strides().vec();
  return at::infer_dense_strides(tensor.sizes(), tensor.strides());
}

at::Tensor InBuffer(std::unique_ptr<HostBuffer> buffer, const at::Tensor& like) {
  void* data = buffer->data;
  c10::DataPtr pointer(data, buffer.release(), &ReturnBuffer, c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), like.nbytes(), std::move(pointer));
  at::Tensor host = at::empty({0}, like.options().device(c10::kCPU));
  return host.set_(storage, 0, like.sizes(), DenseStrides(like));
}

at::Tensor OffloadIn(Lane Lanes::*lane, const at::Tensor& self) {
  auto buffer = HostPool::Instance().Take(self.nbytes(), /*page_locked=*/self.is_cuda());
  EventPtr last_read = std::move(buffer->last_read);
  at::Tensor host = InBuffer(std::move(buffer), self);
  if (!self.is_cuda()) {
    host_bytes_out += static_cast<int64_t>(self.nbytes());
    return host.copy_(self);
  }
  c10::Stream compute = ComputeStream(self.device());
  Lane& own = LanesOf(self.device()).*lane;
  Flights().Add(host, self, own.Copy(host, self, compute, last_read));
  return host;
}

at::Tensor Offload(const at::Tensor& self) { return OffloadIn(&Lanes::out, self); }
at::Tensor OffloadCounts(const at::Tensor& self) { return OffloadIn(&Lanes::counts, self); }

at::Tensor& ReloadInto(const at::Tensor& self, c10::Device device, at::Tensor& result) {
  if (!device.is_cuda()) {
    host_bytes_back += static_cast<int64_t>(self.nbytes());
    return result.copy_(self);
  }
  c10::Stream compute = ComputeStream(result.device());
  EventPtr done = LanesOf(result.device()).back.Copy(result, self, compute, nullptr);
  if (HostBuffer* buffer = BufferOf(self)) buffer->last_read = done;
  Flights().Add(result, self, std::move(done));
  return result;
}

at::Tensor Reload(const at::Tensor& self, c10::Device device) {
  at::Tensor result =
      at::empty_strided(self.sizes(), DenseStrides(self), self.options().device(device));
  return ReloadInto(self, device, result);
}

at::Tensor WaitTransfer(const at::Tensor& moved, const at::Tensor& source) {
  const at::Tensor& on_device = moved.is_cuda() ? moved : source;
  if (!on_device.is_cuda()) return moved;
  if (EventPtr done = Flights().Take(moved)) done->block(ComputeStream(on_device.device()));
  return moved;
}

}  // namespace

void AwaitTransfer(const at::Tensor& moved) {
  if (EventPtr done = Flights().Find(moved)) {
    const auto start = std::chrono::steady_clock::now();
    done->synchronize();
    nanoseconds_awaited += (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
  }
  Flights().Take(moved);
}

double SecondsAwaited() { return static_cast<double>(nanoseconds_awaited) / 1e9; }

TransferMeter::TransferMeter(c10::Device device) : device_(device) {
  host_bytes_out = host_bytes_back = 0;
  if (!device.is_cuda()) return;
  for (Lane* lane : LanesOf(device).all()) lane->SetTimed(true);
}

TransferMeter::~TransferMeter() {
  if (!device_.is_cuda()) return;
  for (Lane* lane : LanesOf(device_).all()) lane->SetTimed(false);
}

TransferStats TransferMeter::stats() const {
  if (!device_.is_cuda()) return {host_bytes_out, host_bytes_back};
  Synchronize(device_);
  const Lanes& lanes = LanesOf(device_);
  return {lanes.out.bytes() + lanes.counts.bytes(), lanes.back.bytes(),
          lanes.out.Seconds() + lanes.counts.Seconds(), lanes.back.Seconds()};
}

TORCH_LIBRARY_FRAGMENT(gt, library) {
  library.def("offload(Tensor self) -> Tensor");
  library.def("offload_counts(Tensor self) -> Tensor");
  library.def("reload(Tensor self, Device device) -> Tensor");
  library.def("reload_out(Tensor self, Device device, *, Tensor(a!) out) -> Tensor(a!)");
  library.def("wait_transfer(Tensor moved, Tensor source) -> Tensor");
}

TORCH_LIBRARY_IMPL(gt, CompositeExplicitAutograd, library) {
  library.impl("offload", Offload);
  library.impl("offload_counts", OffloadCounts);
  library.impl("reload", Reload);
  library.impl("reload_out", ReloadInto);
  library.impl("wait_transfer", WaitTransfer);
}

}  // namespace gt
