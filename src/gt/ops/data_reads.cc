// Reading numbers out of tensors while the step runs. What is read becomes symbols of the graph,
// one for each number: token counts that later nodes use as sizes.
#include <fmt/format.h>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/view_rules.h"

namespace gt {
namespace {

void CheckInteger(const RuleContext& ctx, const TensorType& self) {
  if (IsIntegral(self.dtype)) return;
  if (self.dtype == DType::kBool) {
    ctx.Reject(
        "a boolean read from a tensor would decide a branch, which fixes one batch's answer into "
        "the "
        "graph; compute the choice with where() instead");
  }
  ctx.Reject(
      fmt::format("a {} number read from a tensor cannot stand in the graph, only integers can (as "
                  "sizes); keep "
                  "it in a tensor of rank 0 and compute with that",
                  DTypeName(self.dtype)));
}

void ReadIntsRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  CheckInteger(ctx, self);
  if (self.rank() > 1) ctx.Reject("reads tensors of at most one dimension; flatten it first");
  Dim length = self.sizes.empty() ? Dim(1) : self.sizes[0];
  ctx.BindSymbols(static_cast<int>(rules::PinnedCount(ctx, length, "how many numbers are read")));
}

void LocalScalarRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  CheckInteger(ctx, self);
  rules::RequireEqual(ctx, self.numel(), 1, "item() needs a tensor of one element");
  ctx.BindSymbols(1);
}

}  // namespace

void RegisterDataReads(OperatorTable& table) {
  OperatorGroup reads(table, {.work = Work::kHost,
                              .order = DimOrder::kUnknown,
                              .flops = rules::NoFlops,
                              .host = HostPart::kAlways,
                              .reads_data = true});
  // All elements of a vector in one go, so that the device is waited for once.
  reads.Add("gt::read_ints(Tensor self) -> ()", ReadIntsRule);
  reads.Add("aten::_local_scalar_dense(Tensor self) -> Scalar", LocalScalarRule);
}

}  // namespace gt
