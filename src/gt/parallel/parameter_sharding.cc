#include "gt/parallel/parameter_sharding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "gt/dist/collectives.h"
#include "gt/parallel/reshard.h"
#include "gt/torch_bridge/scope.h"
#include "gt/trace/recorder.h"

namespace gt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Rows of each part but the last ones.
int64_t RowsPerPart(int64_t rows, int64_t parts) { return (rows + parts - 1) / parts; }

}  // namespace

std::vector<int64_t> ParameterSharding::BlockSizes(const std::vector<int64_t>& whole) const {
  std::vector<int64_t> sizes = whole;
  sizes[static_cast<size_t>(split.dim)] /= split.parts;
  return sizes;
}

TensorBox ParameterSharding::Box(const std::vector<int64_t>& whole) const {
  TensorBox box = TensorBox::All(whole);
  box.sizes = BlockSizes(whole);
  auto split_dim = static_cast<size_t>(split.dim), shard_dim = static_cast<size_t>(shard.dim);
  box.offset[split_dim] = split.index * box.sizes[split_dim];
  int64_t rows = box.sizes[shard_dim], step = RowsPerPart(rows, shard.parts);
  int64_t begin = std::min(rows, step * shard.index), end = std::min(rows, begin + step);
  box.offset[shard_dim] += begin;
  box.sizes[shard_dim] = end - begin;
  return box;
}

namespace {

// A ParameterSharding with its sizes worked out once. Kept by the parameter's preparation.
class SharedParameter {
 public:
  SharedParameter(const ParameterSharding& share, const std::vector<int64_t>& whole)
      : share_(share), rows_(share.BlockSizes(whole)[static_cast<size_t>(share.shard.dim)]) {
    step_ = RowsPerPart(rows_, share.shard.parts);
    int64_t begin = std::min(rows_, step_ * share.shard.index);
    own_ = std::min(rows_, begin + step_) - begin;
  }

  // Casts first, so that half as many bytes travel.
  at::Tensor Gather(const at::Tensor& stored) const {
    at::Tensor part = stored.to(share_.compute);
    if (share_.shard_group == nullptr) return part;
    part = PadRows(ToFront(part), step_ - own_).contiguous();
    at::Tensor block = AllGather(part, share_.shard_group);
    if (int64_t all = step_ * share_.shard.parts; all != rows_) block = block.narrow(0, 0, rows_);
    return FromFront(block).contiguous();
  }

  at::Tensor ReduceGradient(const at::Tensor& gradient, at::ScalarType stored) const {
    at::Tensor sum = gradient.to(at::kFloat);
    if (share_.shard_group != nullptr) {
      int64_t all = step_ * share_.shard.parts;
      sum = PadRows(ToFront(sum), all - rows_).contiguous();
      sum = ReduceScatter(sum, share_.shard_group);
      if (own_ != step_) sum = sum.narrow(0, 0, own_);
      sum = FromFront(sum).contiguous();
    }
    return AllReduceSum(sum, share_.replica_group).to(stored);
  }

 private:
  at::Tensor ToFront(const at::Tensor& x) const {
    return share_.shard.dim == 0 ? x : x.movedim(share_.shard.dim, 0);
  }
  at::Tensor FromFront(const at::Tensor& x) const {
    return share_.shard.dim == 0 ? x : x.movedim(0, share_.shard.dim);
  }
  static at::Tensor PadRows(const at::Tensor& x, int64_t missing) {
    if (missing == 0) return x;
    std::vector<int64_t> padding(2 * static_cast<size_t>(x.dim()), 0);
    padding.back() = missing;  // after the first dimension, which is named last
    return at::constant_pad_nd(x, padding);
  }

  ParameterSharding share_;
  int64_t rows_;  // of the block
  int64_t step_;  // of a part
  int64_t own_;   // of this rank's part
};

class PrepareFunction : public torch::autograd::Function<PrepareFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& stored,
                            const SharedParameter* shared) {
    ctx->saved_data["shared"] = reinterpret_cast<int64_t>(shared);
    ctx->saved_data["module"] = CurrentScope().module.str();
    ctx->saved_data["dtype"] = static_cast<int64_t>(stored.scalar_type());
    return shared->Gather(stored);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    Scope scope = CurrentScope();
    scope.module = Name(ctx->saved_data["module"].toStringRef());
    ScopeGuard guard(scope);
    const auto* shared =
        reinterpret_cast<const SharedParameter*>(ctx->saved_data["shared"].toInt());
    auto dtype = static_cast<at::ScalarType>(ctx->saved_data["dtype"].toInt());
    return {shared->ReduceGradient(gradients[0], dtype), {}};
  }
};

}  // namespace

nn::Preparation Prepare(const ParameterSharding& share, const std::vector<int64_t>& whole) {
  at::ScalarType compute = share.compute;
  if (share.shard_group == nullptr && share.replica_group == nullptr) {
    return [compute](const at::Tensor& stored) { return stored.to(compute); };
  }
  auto shared = std::make_shared<SharedParameter>(share, whole);
  bool gathers =
      share.shard_group != nullptr;  // otherwise the block may be the stored tensor itself
  return [shared, gathers](const at::Tensor& stored) {
    at::Tensor block = PrepareFunction::apply(stored, shared.get());
    if (gathers && Recorder::Active() == nullptr) {
      ReshardUnit::Gathered(block, [shared, stored, scope = CurrentScope()] {
        ScopeGuard guard(scope);
        return shared->Gather(stored.detach());
      });
    }
    return block;
  };
}

}  // namespace gt
