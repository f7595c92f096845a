// Puts a backend under watch: every collective is written down with the module that asked for it,
// and one that fails ends the job with an account of who is to blame (dist/watch.h).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "gt/dist/flight_record.h"
#include "gt/dist/watch.h"

namespace gt {

class WatchedBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  // `record` and `watch` outlive it; without a watch, errors pass as they are.
  WatchedBackend(c10::intrusive_ptr<c10d::Backend> inner, Name group, FlightRecord& record,
                 Watch* watch);

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  template <typename Start>
  WorkPtr Watched(const char* kind, at::TensorList tensors, Start&& start);

  c10::intrusive_ptr<c10d::Backend> inner_;
  Name group_;
  FlightRecord& record_;
  Watch* watch_;
};

}  // namespace gt
