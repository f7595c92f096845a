// A backend that moves nothing: every collective is done before it began. It stands for any number of
// ranks when only the shape of the work matters. (libtorch has such a backend, but its header needs
// Python's.)
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace gt {

class DoneWork : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

class IdleBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  const std::string getBackendName() const override { return "fake"; }
  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override { return Done(); }
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override { return Done(); }
  WorkPtr allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&) override {
    return Done();
  }
  WorkPtr _allgather_base(at::Tensor&, at::Tensor&, const c10d::AllgatherOptions&) override {
    return Done();
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors&, Tensors&,
                                          const c10d::AllgatherOptions&) override {
    return Done();
  }
  WorkPtr _reduce_scatter_base(at::Tensor&, at::Tensor&,
                               const c10d::ReduceScatterOptions&) override {
    return Done();
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors&, Tensors&,
                                          const c10d::ReduceScatterOptions&) override {
    return Done();
  }
  WorkPtr alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override {
    return Done();
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return Done(); }

 private:
  static WorkPtr Done() { return c10::make_intrusive<DoneWork>(); }
};

}  // namespace gt
