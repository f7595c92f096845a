// Gloo, with sums that do not depend on how tensors are packed.
//
// Gloo adds up what the ranks have in an order that depends on where in a tensor an element lies, so
// that the same gradient gets other bits when it travels together with others. Here the ranks' parts
// are sent to whoever keeps the sum, and added there in the order of the ranks: as many bytes travel,
// and every element has one sum, alone or in a bucket.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace gt {

class OrderedGloo : public c10d::ProcessGroupGloo {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using ProcessGroupGloo::ProcessGroupGloo;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

 private:
  bool NeedsOrder(const Tensors& tensors, const c10d::ReduceOp& op) const;
  // This rank's part of the sum of all ranks' inputs goes to `output`.
  WorkPtr SumParts(const at::Tensor& output, const at::Tensor& input);
  WorkPtr SumWhole(const at::Tensor& tensor);
};

}  // namespace gt
