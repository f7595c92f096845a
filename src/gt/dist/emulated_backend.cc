#include "gt/dist/emulated_backend.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "gt/base/error.h"
#include "gt/sim/link_model.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

struct Emulation {
  LinkModel links;
  double scale;
};

// Sleeping alone is off by up to 50 us.
void WaitUntil(Clock::time_point when) {
  constexpr auto kOversleep = std::chrono::microseconds(80);
  if (when - Clock::now() > kOversleep) std::this_thread::sleep_until(when - kOversleep);
  while (Clock::now() < when) std::this_thread::yield();
}

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

// The driver's functions that let a stream wait for a number in memory. Found at run time: the program
// starts on machines without a driver.
struct Driver {
  using HostAlloc = int (*)(void**, size_t, unsigned);
  using StreamValue = int (*)(void* stream, unsigned long long address, uint32_t value,
                              unsigned flags);
  HostAlloc host_alloc;
  StreamValue wait_value, write_value;

  static const Driver& Get() {
    static const Driver driver = [] {
      auto find = [](const char* name) {
        void* found = dlsym(RTLD_DEFAULT, name);
        if (found == nullptr) {
          Fail(ErrorCode::kNoBackend,
               "--comm.backend emulated on a GPU needs {} of the driver, which is not there", name);
        }
        return found;
      };
      return Driver{reinterpret_cast<HostAlloc>(find("cuMemHostAlloc")),
                    reinterpret_cast<StreamValue>(find("cuStreamWaitValue32_v2")),
                    reinterpret_cast<StreamValue>(find("cuStreamWriteValue32_v2"))};
    }();
    return driver;
  }
};

void RequireSuccess(int status, const char* what) {
  if (status != 0)
    Fail(ErrorCode::kCollectiveFailed, "{} of the CUDA driver failed: {}", what, status);
}

// A stream of its own. For each collective it writes "begun n" to host memory and waits for "done n",
// which a thread writes after the time of the collective has passed: on the device nothing runs
// meanwhile.
class DeviceQueue {
 public:
  DeviceQueue(c10::Device device, bool high_priority)
      : device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type())
                    .getStreamFromGlobalPool(device, high_priority)) {
    constexpr unsigned kPortableAndMapped = 3;
    void* memory = nullptr;
    RequireSuccess(
        Driver::Get().host_alloc(&memory, 2 * kLine * sizeof(uint32_t), kPortableAndMapped),
        "cuMemHostAlloc");
    // Kept to the end of the process: the device may still look at it.
    numbers_ = static_cast<uint32_t*>(memory);
    numbers_[0] = numbers_[kLine] = 0;
  }

  // Runs `copy` on the stream and lets it take `duration`.
  std::shared_ptr<c10::Event> Run(const std::function<void()>& copy, Microseconds duration) {
    c10::impl::VirtualGuardImpl guard(device_.type());
    c10::Event ready(device_.type());
    ready.record(guard.getStream(device_));
    ready.block(stream_);
    c10::StreamGuard on_queue(stream_);
    copy();
    if (duration.count() > 0) {
      uint32_t number = ++issued_;
      worker_.Add([this, number, duration] {
        auto* begun = reinterpret_cast<std::atomic<uint32_t>*>(numbers_);
        while (begun->load(std::memory_order_acquire) < number) std::this_thread::yield();
        WaitUntil(Clock::now() + std::chrono::duration_cast<Clock::duration>(duration));
        auto* done = reinterpret_cast<std::atomic<uint32_t>*>(numbers_ + kLine);
        done->store(number, std::memory_order_release);
      });
      void* stream = stream_.native_handle();
      RequireSuccess(Driver::Get().write_value(stream, Address(numbers_), number, 0),
                     "cuStreamWriteValue32");
      RequireSuccess(Driver::Get().wait_value(stream, Address(numbers_ + kLine), number, 0),
                     "cuStreamWaitValue32");
    }
    auto finished = std::make_shared<c10::Event>(device_.type());
    finished->record(stream_);
    return finished;
  }

 private:
  static constexpr size_t kLine = 32;  // the two numbers in cache lines of their own
  static unsigned long long Address(const uint32_t* number) {
    return reinterpret_cast<unsigned long long>(number);
  }

  c10::Device device_;
  c10::Stream stream_;
  uint32_t* numbers_ = nullptr;
  uint32_t issued_ = 0;
  Worker worker_;
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
    Microseconds duration(emulation_->scale * emulation_->links.Microseconds(kind, bytes, span_));
    if (!tensors.empty() && tensors[0].is_cuda()) {
      if (!device_queue_) {
        device_queue_.emplace(tensors[0].device(), group_.priority == GroupPriority::kHigh);
      }
      at::NoGradGuard no_gradients;
      auto finished = device_queue_->Run(copy, duration);
      return c10::make_intrusive<DeviceWork>(std::move(finished), tensors[0].device(),
                                             std::move(tensors));
    }
    if (!host_queue_) host_queue_.emplace();
    auto work = c10::make_intrusive<HostWork>();
    host_queue_->Add([work, copy = std::move(copy), duration] {
      auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(duration);
      at::NoGradGuard no_gradients;
      copy();
      WaitUntil(end);
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

std::shared_ptr<void> MakeEmulation(const std::string& cluster, double scale) {
  return std::make_shared<Emulation>(
      Emulation{LinkModel(ReadCluster(ClusterPath(cluster))), scale});
}

BackendPtr MakeEmulatedBackend(const std::shared_ptr<void>& emulation, const Group& group) {
  return c10::make_intrusive<EmulatedBackend>(std::static_pointer_cast<Emulation>(emulation),
                                              group);
}

}  // namespace gt
