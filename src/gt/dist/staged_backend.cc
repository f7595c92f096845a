#include "gt/dist/staged_backend.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "gt/base/error.h"
#include "gt/torch_bridge/own_stream.h"

namespace gt {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
// Starts the collective of the inner backend on the copies in host memory, which are in the order of
// the operands.
using Communicate = std::function<WorkPtr(Tensors& copies)>;

// The streams of one group on one GPU. They are two so that results of one collective do not queue
// after the operands of the next, which may not be computed yet.
struct CopyStreams {
  CopyStreams(c10::Device device, bool high_priority)
      : to_host(device, high_priority), to_device(device, high_priority) {}

  OwnStream to_host, to_device;
};

struct Operand {
  at::Tensor tensor;
  bool read, written;
};

// Contiguous, as the inner backend needs it. Page-locked for a GPU: only such memory is copied while
// the host goes on.
at::Tensor HostCopyFor(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(),
                   tensor.options().device(c10::kCPU).pinned_memory(tensor.is_cuda()));
}

class StagedWork : public c10d::Work {
 public:
  // Copies what is read on the way; called by the thread that issues the collective. `streams`: null
  // for tensors in host memory.
  StagedWork(std::vector<Operand> operands, Communicate communicate, const CopyStreams* streams)
      : operands_(std::move(operands)), communicate_(std::move(communicate)) {
    at::NoGradGuard no_gradients;
    for (const Operand& operand : operands_) copies_.push_back(HostCopyFor(operand.tensor));
    if (streams == nullptr) {
      CopyToHost();
      return;
    }
    to_device_ = *streams->to_device;
    // Also orders writing the results after whatever else the current stream does with their memory.
    c10::Event ready(c10::kCUDA);
    ready.record(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(streams->to_host->device()));
    ready.block(*streams->to_host);
    c10::StreamGuard guard(*streams->to_host);
    CopyToHost();
    staged_.emplace(c10::kCUDA).record(*streams->to_host);
  }

  // Called by the group's thread.
  void Run() {
    try {
      at::NoGradGuard no_gradients;
      if (staged_) staged_->synchronize();
      communicate_(copies_)->wait();
      CopyBack();
      Settle(nullptr);
    } catch (...) {
      Settle(std::current_exception());
    }
  }
  void Drop() {
    Settle(std::make_exception_ptr(Error(
        ErrorCode::kCollectiveFailed, "the process group was closed before the collective began")));
  }

  bool isCompleted() override {
    return c10d::Work::isCompleted() && (!landed_ || landed_->query());
  }
  // Of the base class's wait(), once the ranks have communicated.
  void synchronize() override {
    if (landed_) landed_->block(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device()));
    // Until here their memory must not become another tensor's.
    operands_.clear();
  }

 private:
  c10::Device device() const { return to_device_->device(); }

  void CopyToHost() {
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].read) copies_[i].copy_(operands_[i].tensor, /*non_blocking=*/true);
    }
  }
  void CopyBack() {
    std::optional<c10::StreamGuard> guard;
    if (to_device_) guard.emplace(*to_device_);
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].written) operands_[i].tensor.copy_(copies_[i], /*non_blocking=*/true);
    }
    if (to_device_) landed_.emplace(c10::kCUDA).record(*to_device_);
  }
  // The page-locked memory goes back to its allocator, which waits for the copies from and to it.
  void Settle(std::exception_ptr error) {
    copies_.clear();
    communicate_ = nullptr;
    finish(std::move(error));
  }

  std::vector<Operand> operands_;
  Tensors copies_;
  Communicate communicate_;
  std::optional<c10::Stream> to_device_;
  std::optional<c10::Event> staged_, landed_;  // what is read is in host memory; results are back
};

using StagedWorkPtr = c10::intrusive_ptr<StagedWork>;

// The thread of a group.
class Queue {
 public:
  Queue() : thread_([this] { Run(); }) {}
  ~Queue() {
    std::deque<StagedWorkPtr> dropped;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      dropped.swap(works_);
    }
    wake_.notify_all();
    for (const StagedWorkPtr& work : dropped) work->Drop();
    thread_.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Add(StagedWorkPtr work) {
    {
      std::lock_guard lock(mutex_);
      works_.push_back(std::move(work));
    }
    wake_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !works_.empty(); });
      if (works_.empty()) return;
      StagedWorkPtr work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      work->Run();
      work.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<StagedWorkPtr> works_;
  bool stop_ = false;
  std::thread thread_;
};

std::vector<Operand> InPlace(const Tensors& tensors) {
  std::vector<Operand> operands;
  for (const at::Tensor& tensor : tensors) operands.push_back({tensor, true, true});
  return operands;
}

// Inputs first.
std::vector<Operand> FromTo(const Tensors& inputs, const Tensors& outputs) {
  std::vector<Operand> operands;
  for (const at::Tensor& tensor : inputs) operands.push_back({tensor, true, false});
  for (const at::Tensor& tensor : outputs) operands.push_back({tensor, false, true});
  return operands;
}

std::pair<Tensors, Tensors> Halves(const Tensors& tensors) {
  auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
  return {Tensors(tensors.begin(), middle), Tensors(middle, tensors.end())};
}

class StagedBackend : public c10d::Backend {
 public:
  StagedBackend(BackendPtr inner, const Group& group)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        high_priority_(group.priority == GroupPriority::kHigh) {}

  const std::string getBackendName() const override { return inner_->getBackendName(); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return Start(InPlace(tensors),
                 [this, options](Tensors& copies) { return inner_->broadcast(copies, options); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return Start(InPlace(tensors),
                 [this, options](Tensors& copies) { return inner_->allreduce(copies, options); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    return Start(InPlace(tensors), [this, options](Tensors& copies) {
      return inner_->allreduce_coalesced(copies, options);
    });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return Start(FromTo({input}, {output}), [this, options](Tensors& copies) {
      return inner_->_allgather_base(copies[1], copies[0], options);
    });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return Start(FromTo(inputs, outputs), [this, options](Tensors& copies) {
      auto [from, to] = Halves(copies);
      return inner_->allgather_into_tensor_coalesced(to, from, options);
    });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return Start(FromTo({input}, {output}), [this, options](Tensors& copies) {
      return inner_->_reduce_scatter_base(copies[1], copies[0], options);
    });
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return Start(FromTo(inputs, outputs), [this, options](Tensors& copies) {
      auto [from, to] = Halves(copies);
      return inner_->reduce_scatter_tensor_coalesced(to, from, options);
    });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override {
    return Start(FromTo({input}, {output}), [this, output_splits, input_splits,
                                             options](Tensors& copies) mutable {
      return inner_->alltoall_base(copies[1], copies[0], output_splits, input_splits, options);
    });
  }
  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    return Start(FromTo(tensors, {}), [this, destination, tag](Tensors& copies) {
      return inner_->send(copies, destination, tag);
    });
  }
  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return Start(FromTo({}, tensors), [this, source, tag](Tensors& copies) {
      return inner_->recv(copies, source, tag);
    });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return Start({}, [this, options](Tensors&) { return inner_->barrier(options); });
  }

 private:
  WorkPtr Start(std::vector<Operand> operands, Communicate communicate) {
    const CopyStreams* streams = nullptr;
    if (!operands.empty() && operands[0].tensor.is_cuda()) {
      if (!streams_) streams_.emplace(operands[0].tensor.device(), high_priority_);
      streams = &*streams_;
    }
    auto work =
        c10::make_intrusive<StagedWork>(std::move(operands), std::move(communicate), streams);
    queue_.Add(work);
    return work;
  }

  BackendPtr inner_;
  bool high_priority_;
  std::optional<CopyStreams> streams_;
  Queue queue_;  // last: its thread uses the others
};

}  // namespace

BackendPtr MakeStagedBackend(BackendPtr inner, const Group& group) {
  return c10::make_intrusive<StagedBackend>(std::move(inner), group);
}

}  // namespace gt
