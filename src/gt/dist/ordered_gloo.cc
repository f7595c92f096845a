#include "gt/dist/ordered_gloo.h"

#include <ATen/ATen.h>

#include <functional>

namespace gt {
namespace {

// What is left to do once an exchange is there is done by whoever waits for it.
class FinishedByWaiter : public c10d::Work {
 public:
  FinishedByWaiter(std::vector<c10::intrusive_ptr<c10d::Work>> exchanges,
                   std::function<void()> finish)
      : exchanges_(std::move(exchanges)), finish_(std::move(finish)) {}

  bool isCompleted() override {
    for (const auto& exchange : exchanges_) {
      if (!exchange->isCompleted()) return false;
    }
    return true;
  }
  bool isSuccess() const override {
    for (const auto& exchange : exchanges_) {
      if (!exchange->isSuccess()) return false;
    }
    return true;
  }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& exchange : exchanges_) exchange->wait(timeout);
    if (finish_) {
      at::NoGradGuard no_gradients;
      finish_();
      finish_ = nullptr;
    }
    return true;
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> exchanges_;
  std::function<void()> finish_;  // none once it was done
};

void AddInOrder(const at::Tensor& output, const at::Tensor& parts, int64_t ranks) {
  at::Tensor rows = parts.view({ranks, -1}), sum = output.view(-1);
  sum.copy_(rows[0]);
  for (int64_t rank = 1; rank < ranks; ++rank) sum.add_(rows[rank]);
}

}  // namespace

// Sums of two do not depend on their order, and integers not on any.
bool OrderedGloo::NeedsOrder(const Tensors& tensors, const c10d::ReduceOp& op) const {
  if (getSize() <= 2 || op != c10d::ReduceOp::SUM) return false;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_floating_point() || !tensor.is_contiguous() || !tensor.is_cpu()) return false;
  }
  return true;
}

OrderedGloo::WorkPtr OrderedGloo::SumParts(const at::Tensor& output, const at::Tensor& input) {
  at::Tensor sent = input.view(-1), received = at::empty_like(sent);
  std::vector<int64_t> even;
  WorkPtr exchange = alltoall_base(received, sent, even, even, {});
  auto finish = [output, received, ranks = int64_t{getSize()}] {
    AddInOrder(output, received, ranks);
  };
  return c10::make_intrusive<FinishedByWaiter>(std::vector{std::move(exchange)}, finish);
}

// Every rank sums up its part, and then all get all parts.
OrderedGloo::WorkPtr OrderedGloo::SumWhole(const at::Tensor& tensor) {
  const int64_t ranks = getSize(), count = tensor.numel();
  const int64_t part = (count + ranks - 1) / ranks;
  at::Tensor padded = at::zeros({part * ranks}, tensor.options());
  padded.narrow(0, 0, count).copy_(tensor.view(-1));
  at::Tensor own = at::empty({part}, tensor.options());
  WorkPtr sum = SumParts(own, padded);
  auto finish = [this, tensor, padded, own, count]() mutable {
    _allgather_base(padded, own, {})->wait();
    tensor.view(-1).copy_(padded.narrow(0, 0, count));
  };
  return c10::make_intrusive<FinishedByWaiter>(std::vector{std::move(sum)}, std::move(finish));
}

OrderedGloo::WorkPtr OrderedGloo::allreduce(Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
  if (tensors.size() != 1 || !NeedsOrder(tensors, options.reduceOp)) {
    return ProcessGroupGloo::allreduce(tensors, options);
  }
  return SumWhole(tensors[0]);
}

OrderedGloo::WorkPtr OrderedGloo::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  if (!NeedsOrder(tensors, options.reduceOp)) {
    return ProcessGroupGloo::allreduce_coalesced(tensors, options);
  }
  std::vector<WorkPtr> works;
  for (const at::Tensor& tensor : tensors) works.push_back(SumWhole(tensor));
  return c10::make_intrusive<FinishedByWaiter>(std::move(works), nullptr);
}

OrderedGloo::WorkPtr OrderedGloo::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) {
  Tensors outputs = {output}, inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

OrderedGloo::WorkPtr OrderedGloo::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  if (!NeedsOrder(inputs, options.reduceOp) || !NeedsOrder(outputs, options.reduceOp)) {
    return ProcessGroupGloo::reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) works.push_back(SumParts(outputs[i], inputs[i]));
  return c10::make_intrusive<FinishedByWaiter>(std::move(works), nullptr);
}

}  // namespace gt
