#include "gt/dist/watched_backend.h"

#include <c10/util/Exception.h>

#include "gt/dist/collective_log.h"
#include "gt/torch_bridge/recording.h"
#include "gt/torch_bridge/scope.h"

namespace gt {
namespace {

class WatchedWork : public c10d::Work {
 public:
  WatchedWork(c10::intrusive_ptr<c10d::Work> inner, int64_t number, std::optional<size_t> logged,
              bool on_device, FlightRecord& record, Watch* watch)
      : inner_(std::move(inner)),
        number_(number),
        logged_(logged),
        on_device_(on_device),
        record_(record),
        watch_(watch) {
    // On a device, waiting only orders streams; completion is asked for by the watch.
    if (on_device_ && watch_ != nullptr) {
      record_.EndWhen(number_, [work = inner_] { return work->isCompleted(); });
    }
  }

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      bool done = inner_->wait(timeout);
      if (!on_device_) Land();
      return done;
    } catch (const c10::Error& error) {
      Blame(error.what_without_backtrace());
    } catch (const std::exception& error) {
      Blame(error.what());
    }
    return false;
  }

 private:
  void Land() {
    record_.End(number_);
    CollectiveLog* log = CollectiveLog::Active();
    if (logged_ && log != nullptr) log->Landed(*logged_);
  }

  void Blame(const std::string& what) {
    std::optional<CollectiveRecord> failed = record_.Find(number_);
    if (watch_ == nullptr || !failed) throw;
    watch_->FailCollective(*failed, what);
  }

  c10::intrusive_ptr<c10d::Work> inner_;
  int64_t number_;
  std::optional<size_t> logged_;  // its number in the log of collectives
  bool on_device_;
  FlightRecord& record_;
  Watch* watch_;
};

}  // namespace

WatchedBackend::WatchedBackend(c10::intrusive_ptr<c10d::Backend> inner, Name group,
                               FlightRecord& record, Watch* watch)
    : Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      group_(group),
      record_(record),
      watch_(watch) {}

template <typename Start>
WatchedBackend::WorkPtr WatchedBackend::Watched(const char* kind, at::TensorList tensors,
                                                Start&& start) {
  int64_t bytes = 0;
  bool on_device = false;
  for (const at::Tensor& tensor : tensors) {
    bytes += static_cast<int64_t>(tensor.nbytes());
    on_device |= !tensor.is_cpu();
  }
  if (Recording* recording = Recording::Active()) {
    recording->AtEachReplay([this, kind = Name(kind), module = CurrentScope().module,
                             bytes](const std::shared_ptr<c10::Event>& done) {
      const int64_t number = record_.Begin(kind, group_, module, bytes);
      if (watch_ != nullptr) record_.EndWhen(number, [done] { return done->query(); });
    });
    return start();  // what fails now fails the recording, and the collective runs for itself
  }
  int64_t number = record_.Begin(Name(kind), group_, CurrentScope().module, bytes);
  try {
    WorkPtr work = start();
    std::optional<size_t> logged;
    if (CollectiveLog* log = CollectiveLog::Active()) logged = log->Add(group_, work);
    return c10::make_intrusive<WatchedWork>(std::move(work), number, logged, on_device, record_,
                                            watch_);
  } catch (const c10::Error& error) {
    std::optional<CollectiveRecord> failed = record_.Find(number);
    if (watch_ == nullptr || !failed) throw;
    watch_->FailCollective(*failed, error.what_without_backtrace());
  }
}

WatchedBackend::WorkPtr WatchedBackend::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& options) {
  return Watched("broadcast", tensors, [&] { return inner_->broadcast(tensors, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  return Watched("all_reduce", tensors, [&] { return inner_->allreduce(tensors, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return Watched("all_reduce", tensors,
                 [&] { return inner_->allreduce_coalesced(tensors, options); });
}

WatchedBackend::WorkPtr WatchedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  return Watched("all_gather", {output},
                 [&] { return inner_->_allgather_base(output, input, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return Watched("all_gather", outputs,
                 [&] { return inner_->allgather_into_tensor_coalesced(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return Watched("reduce_scatter", {input},
                 [&] { return inner_->_reduce_scatter_base(output, input, options); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return Watched("reduce_scatter", inputs,
                 [&] { return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  // With uneven splits the larger side tells how much there is to do.
  return Watched("all_to_all", {output.nbytes() > input.nbytes() ? output : input}, [&] {
    return inner_->alltoall_base(output, input, output_splits, input_splits, options);
  });
}

WatchedBackend::WorkPtr WatchedBackend::send(Tensors& tensors, int destination, int tag) {
  return Watched("send", tensors, [&] { return inner_->send(tensors, destination, tag); });
}

WatchedBackend::WorkPtr WatchedBackend::recv(Tensors& tensors, int source, int tag) {
  return Watched("receive", tensors, [&] { return inner_->recv(tensors, source, tag); });
}

WatchedBackend::WorkPtr WatchedBackend::barrier(const c10d::BarrierOptions& options) {
  return Watched("barrier", {}, [&] { return inner_->barrier(options); });
}

}  // namespace gt
