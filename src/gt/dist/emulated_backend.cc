#include "gt/dist/emulated_backend.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "gt/base/error.h"
#include "gt/dist/cuda_driver.h"
#include "gt/dist/multiprocessor_claim.h"
#include "gt/job/config.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/link_model.h"

namespace gt {
namespace {

// What the groups of a job share.
struct Emulation {
  Emulation(Cluster cluster, double scale, bool contention)
      : links(std::move(cluster)), scale(scale), contention(contention), clock(contention) {}

  CollectiveTime Time(Collective kind, int64_t bytes, const GroupSpan& span) const {
    CollectiveTime time = links.Time(kind, bytes, span);
    time.latency_us *= scale;
    time.transfer_us *= scale;
    return time;
  }

  // How collectives occupy multiprocessors of the device; null if they do not.
  const MultiprocessorClaim* ClaimOn(c10::Device device) {
    if (!contention || links.cluster().gpu.multiprocessors == 0) return nullptr;
    std::call_once(claim_loaded, [&] {
      c10::DeviceGuard on_device(device);
      claim = MultiprocessorClaim::Load();
    });
    return claim ? &*claim : nullptr;
  }

  LinkModel links;
  double scale;
  bool contention;
  LinkClock clock;
  std::once_flag claim_loaded;
  std::optional<MultiprocessorClaim> claim;  // of the one device that an emulated job has
};

// A thread that runs one task after another.
class Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Add(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

class HostWork : public c10d::Work {
 public:
  void Finish() { finish(); }
};

// Lets a stream write a number to memory, or wait until one is there.
using StreamValue = int (*)(void* stream, unsigned long long address, uint32_t value,
                            unsigned flags);
StreamValue WriteValue() {
  static const auto function =
      reinterpret_cast<StreamValue>(RequireInDriver("cuStreamWriteValue32_v2"));
  return function;
}
StreamValue WaitValue() {
  static const auto function =
      reinterpret_cast<StreamValue>(RequireInDriver("cuStreamWaitValue32_v2"));
  return function;
}

// A stream of its own. For each collective it writes "begun n" to host memory and waits for "done n",
// which a thread writes after the time of the collective has passed. Meanwhile the result is made, and a
// kernel occupies the multiprocessors that the collective takes.
class DeviceQueue {
 public:
  DeviceQueue(c10::Device device, const Group& group, Emulation& emulation)
      : group_(group.name),
        device_(device),
        clock_(emulation.clock),
        claim_(emulation.ClaimOn(device)),
        stream_(c10::impl::VirtualGuardImpl(device.type())
                    .getStreamFromGlobalPool(device, group.priority == GroupPriority::kHigh)),
        numbers_(AllocateSharedNumbers(2 * kLine)) {}

  // Whatever still waits on the device goes on at once: nobody is interested in its time any more,
  // and if the device has failed nothing would ever begin.
  ~DeviceQueue() { closing_ = true; }

  // Runs `copy`, which writes so many bytes, on the stream and lets it take the time of the collective, in
  // which it occupies a part of the device's multiprocessors.
  std::shared_ptr<c10::Event> Run(const std::function<void()>& copy, int64_t copied_bytes,
                                  const CollectiveTime& time, double share_taken) {
    c10::impl::VirtualGuardImpl guard(device_.type());
    c10::Event ready(device_.type());
    ready.record(guard.getStream(device_));
    ready.block(stream_);
    c10::StreamGuard on_queue(stream_);
    if (time.total_us() > 0) {
      const uint32_t number = ++issued_;
      worker_.Add([this, number, time] { LetPass(number, time); });
      Begin(number);
      copy();  // part of what takes time, as in a real collective
      Claim(time.total_us() - static_cast<double>(copied_bytes) / kCopiedBytesPerUs, share_taken);
      Await(number);
    } else {
      copy();
    }
    auto finished = std::make_shared<c10::Event>(device_.type());
    finished->record(stream_);
    return finished;
  }

 private:
  static constexpr size_t kLine = 32;  // the numbers in cache lines of their own
  uint32_t* begun() const { return numbers_; }
  uint32_t* done() const { return numbers_ + kLine; }
  static unsigned long long Address(const uint32_t* number) {
    return reinterpret_cast<unsigned long long>(number);
  }

  // Makes no CUDA calls: these may wait for what waits for this function.
  void LetPass(uint32_t number, const CollectiveTime& time) {
    std::atomic_ref<uint32_t> has_begun(*begun());
    while (has_begun.load(std::memory_order_acquire) < number && !closing_) {
      std::this_thread::yield();
    }
    if (!closing_) LinkClock::Passage(clock_, group_, time).Wait();
    std::atomic_ref<uint32_t>(*done()).store(number, std::memory_order_release);
  }

  void Begin(uint32_t number) {
    RequireDriverSuccess(WriteValue()(stream_.native_handle(), Address(begun()), number, 0),
                         "cuStreamWriteValue32");
  }
  // The claim lasts as long as the collective would alone; what sharing links adds goes without.
  void Claim(double us, double share_taken) {
    if (claim_ == nullptr || share_taken <= 0 || us <= 0) return;
    const double wanted = std::round(share_taken * claim_->multiprocessors());
    claim_->Launch(stream_.native_handle(), std::max(1, static_cast<int>(wanted)),
                   static_cast<uint64_t>(1e3 * us));
  }
  void Await(uint32_t number) {
    RequireDriverSuccess(WaitValue()(stream_.native_handle(), Address(done()), number, 0),
                         "cuStreamWaitValue32");
  }

  // About half of a GPU's memory bandwidth, for bytes that are read and written. Rather too little: a claim
  // that lasts longer than its collective would delay the end.
  static constexpr double kCopiedBytesPerUs = 1e6;

  std::string group_;
  c10::Device device_;
  LinkClock& clock_;
  const MultiprocessorClaim* claim_;
  c10::Stream stream_;
  uint32_t* numbers_;
  uint32_t issued_ = 0;
  std::atomic<bool> closing_ = false;
  Worker worker_;  // last: its thread uses the rest
};

class DeviceWork : public c10d::Work {
 public:
  DeviceWork(std::shared_ptr<c10::Event> finished, c10::Device device,
             std::vector<at::Tensor> tensors)
      : finished_(std::move(finished)), device_(device), tensors_(std::move(tensors)) {}

  bool isCompleted() override { return finished_->query(); }
  bool wait(std::chrono::milliseconds) override {
    finished_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    tensors_.clear();
    return true;
  }

 private:
  std::shared_ptr<c10::Event> finished_;
  c10::Device device_;
  std::vector<at::Tensor> tensors_;  // must not be reused before the queue is done with them
};

// What the peers would have sent is imitated with what this rank has.
void ImitateGather(const at::Tensor& output, const at::Tensor& input, int64_t ranks) {
  output.view({ranks, -1}).copy_(input.reshape({1, -1}).expand({ranks, -1}));
}

void ImitateScatter(const at::Tensor& output, const at::Tensor& input, int64_t ranks,
                    int64_t index) {
  output.view(-1).copy_(input.view({ranks, -1})[index]);
}

// Every peer sends what this rank sends to itself, if that is as much as they are said to send;
// otherwise this rank's rows, repeated as often as needed.
void ImitateExchange(const at::Tensor& output, const at::Tensor& input,
                     const std::vector<int64_t>& output_splits,
                     const std::vector<int64_t>& input_splits, int64_t ranks, int64_t index) {
  int64_t rows = output.size(0);
  if (rows == 0) return;
  if (input.size(0) == 0) {
    output.zero_();
    return;
  }
  int64_t begin = 0, own = input.size(0) / ranks;
  if (!input_splits.empty()) {
    for (int64_t i = 0; i < index; ++i) begin += input_splits[static_cast<size_t>(i)];
    own = input_splits[static_cast<size_t>(index)];
  } else {
    begin = own * index;
  }
  bool alike = own > 0 && rows == own * ranks;
  for (int64_t split : output_splits) alike &= split == own;
  if (alike) {
    ImitateGather(output, input.narrow(0, begin, own), ranks);
    return;
  }
  for (int64_t at = 0; at < rows; at += input.size(0)) {
    int64_t count = std::min(rows - at, input.size(0));
    output.narrow(0, at, count).copy_(input.narrow(0, 0, count));
  }
}

class EmulatedBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  EmulatedBackend(std::shared_ptr<Emulation> emulation, const Group& group)
      : Backend(static_cast<int>(group.index), static_cast<int>(group.size())),
        emulation_(std::move(emulation)),
        group_(group),
        span_(SpanOf(group.ranks, emulation_->links.cluster().gpus_per_node)) {}

  const std::string getBackendName() const override { return "emulated"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions&) override {
    return Start(Collective::kBroadcast, BytesOf(tensors), tensors, [] {});
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions&) override {
    return Start(Collective::kAllReduce, BytesOf(tensors), tensors, [] {});
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions&) override {
    return Start(Collective::kAllReduce, BytesOf(tensors), tensors, [] {});
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    Tensors outputs = {output}, inputs = {input};
    return allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions&) override {
    return Start(Collective::kAllGather, BytesOf(outputs), Both(outputs, inputs),
                 [outputs, inputs, ranks = group_.size()] {
                   for (size_t i = 0; i < outputs.size(); ++i) {
                     ImitateGather(outputs[i], inputs[i], ranks);
                   }
                 });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    Tensors outputs = {output}, inputs = {input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions&) override {
    return Start(Collective::kReduceScatter, BytesOf(inputs), Both(outputs, inputs),
                 [outputs, inputs, ranks = group_.size(), index = group_.index] {
                   for (size_t i = 0; i < outputs.size(); ++i) {
                     ImitateScatter(outputs[i], inputs[i], ranks, index);
                   }
                 });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    auto bytes = static_cast<int64_t>(std::max(output.nbytes(), input.nbytes()));
    return Start(
        Collective::kAllToAll, bytes, {output, input},
        [output, input, output_splits, input_splits, ranks = group_.size(), index = group_.index] {
          ImitateExchange(output, input, output_splits, input_splits, ranks, index);
        });
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override {
    return Start(Collective::kAllReduce, 0, {}, [] {});
  }

 private:
  static int64_t BytesOf(const Tensors& tensors) {
    int64_t bytes = 0;
    for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    return bytes;
  }
  static Tensors Both(const Tensors& first, const Tensors& second) {
    Tensors both = first;
    both.insert(both.end(), second.begin(), second.end());
    return both;
  }

  WorkPtr Start(Collective kind, int64_t bytes, Tensors tensors, std::function<void()> copy) {
    const CollectiveTime time = emulation_->Time(kind, bytes, span_);
    if (!tensors.empty() && tensors[0].is_cuda()) {
      if (!device_queue_) device_queue_.emplace(tensors[0].device(), group_, *emulation_);
      at::NoGradGuard no_gradients;
      const double share_taken = emulation_->links.cluster().ComputeShareTaken(kind);
      // What comes first is what is written.
      const auto copied = static_cast<int64_t>(tensors[0].nbytes());
      auto finished = device_queue_->Run(copy, copied, time, share_taken);
      return c10::make_intrusive<DeviceWork>(std::move(finished), tensors[0].device(),
                                             std::move(tensors));
    }
    if (!host_queue_) host_queue_.emplace();
    auto work = c10::make_intrusive<HostWork>();
    host_queue_->Add([this, work, copy = std::move(copy), time] {
      LinkClock::Passage passage(emulation_->clock, group_.name, time);
      at::NoGradGuard no_gradients;
      copy();
      passage.Wait();
      work->Finish();
    });
    return work;
  }

  std::shared_ptr<Emulation> emulation_;
  Group group_;
  GroupSpan span_;
  std::optional<Worker> host_queue_;
  std::optional<DeviceQueue> device_queue_;
};

}  // namespace

std::shared_ptr<void> MakeEmulation(const std::string& cluster, double scale, bool contention) {
  return std::make_shared<Emulation>(ReadCluster(ClusterPath(cluster)), scale, contention);
}

LinkClock& ClockOf(const std::shared_ptr<void>& emulation) {
  return std::static_pointer_cast<Emulation>(emulation)->clock;
}

BackendPtr MakeEmulatedBackend(const std::shared_ptr<void>& emulation, const Group& group) {
  return c10::make_intrusive<EmulatedBackend>(std::static_pointer_cast<Emulation>(emulation),
                                              group);
}

namespace {

const BackendRegistration kEmulatedBackend(
    CommBackend::kEmulated, [](const BackendRequest& request) {
      if (!request.shared) {
        const CommSection& comm = request.config.comm;
        const double scale = request.config.debug.free_collectives ? 0 : comm.emulated_time_scale;
        request.shared = MakeEmulation(comm.cluster, scale, comm.contention);
      }
      return MakeEmulatedBackend(request.shared, request.group);
    });

}  // namespace
}  // namespace gt
