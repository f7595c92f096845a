// Communication between ranks: libtorch's functional collectives. Each starts an exchange and
// returns immediately; the values of its result may be read only after wait_tensor.
#include <fmt/format.h>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/view_rules.h"

namespace gt {
namespace {

using rules::ReturnContiguous;

// These send the memory as it is. libtorch fails on anything else, on every rank, while the step
// runs.
void CheckContiguous(RuleContext& ctx, const TensorType& input) {
  rules::RequireContiguous(ctx, input.sizes, input.strides,
                           "the tensor must be contiguous; call contiguous() on it first");
}

int64_t GroupSize(const RuleContext& ctx, int arg) {
  int64_t size = ctx.ConstInt(arg);
  if (size < 1) ctx.Reject("the group must have at least one rank");
  return size;
}

void Gather(RuleContext& ctx, const TensorType& input, int64_t group_size) {
  CheckContiguous(ctx, input);
  Shape sizes = input.sizes;
  if (sizes.empty()) {
    sizes.emplace_back(group_size);
  } else {
    sizes[0] *= group_size;
  }
  ReturnContiguous(ctx, input, std::move(sizes));
}

void ReduceScatter(RuleContext& ctx, const TensorType& input, int64_t group_size) {
  CheckContiguous(ctx, input);
  if (input.sizes.empty()) ctx.Reject("a tensor without dimensions cannot be scattered");
  Shape sizes = input.sizes;
  sizes[0] = FloorDiv(sizes[0], group_size);
  rules::RequireEqual(ctx, sizes[0] * Dim(group_size), input.sizes[0],
                      "the first dimension must divide evenly among the ranks");
  ReturnContiguous(ctx, input, std::move(sizes));
}

void AllGatherRule(RuleContext& ctx) { Gather(ctx, ctx.Tensor(0), GroupSize(ctx, 1)); }

void AllGatherCoalescedRule(RuleContext& ctx) {
  for (const TensorType* input : ctx.Tensors(0)) Gather(ctx, *input, GroupSize(ctx, 1));
}

void ReduceScatterRule(RuleContext& ctx) { ReduceScatter(ctx, ctx.Tensor(0), GroupSize(ctx, 2)); }

void ReduceScatterCoalescedRule(RuleContext& ctx) {
  for (const TensorType* input : ctx.Tensors(0)) ReduceScatter(ctx, *input, GroupSize(ctx, 2));
}

// all_reduce and broadcast work on a contiguous copy.
void SameSizesRule(RuleContext& ctx) { ReturnContiguous(ctx, ctx.Tensor(0), ctx.Tensor(0).sizes); }

void AllReduceCoalescedRule(RuleContext& ctx) {
  for (const TensorType* input : ctx.Tensors(0)) ReturnContiguous(ctx, *input, input->sizes);
}

void AllToAllRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(0);
  CheckContiguous(ctx, input);
  if (input.sizes.empty()) ctx.Reject("a tensor without dimensions has no rows to exchange");
  const Shape &received = ctx.Ints(1), &sent = ctx.Ints(2);
  if (received.size() != sent.size()) ctx.Reject("needs as many output splits as input splits");
  rules::RequireEqual(ctx, Sum(sent), input.sizes[0], "the input splits must add up to the rows");
  Shape sizes = input.sizes;
  sizes[0] = Sum(received);
  ReturnContiguous(ctx, input, std::move(sizes));
}

void CollectiveWaitRule(RuleContext& ctx) { ctx.Return(ctx.Tensor(0)); }

}  // namespace

void RegisterCollectives(OperatorTable& table) {
  // The host counts and watches collectives one by one.
  auto add = [&table](const char* schema, ShapeRule rule, Collective kind, DimOrder order,
                      RecomputeClass recompute = RecomputeClass::kLarge) -> Operator& {
    Operator& op = table.Add(schema, rule,
                             {.work = Work::kCollective,
                              .order = order,
                              .flops = rules::NoFlops,
                              .recompute = recompute,
                              .host = HostPart::kAlways,
                              .collective = kind});
    op.group_arg = op.schema.Find("group_name");
    return op;
  };
  add("_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, str group_name) -> "
      "Tensor",
      AllGatherRule, Collective::kAllGather, DimOrder::kAcrossRanks);
  add("_c10d_functional::all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, "
      "str group_name) -> Tensor[]",
      AllGatherCoalescedRule, Collective::kAllGather, DimOrder::kAcrossRanks);
  add("_c10d_functional::reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, "
      "str group_name) -> Tensor",
      ReduceScatterRule, Collective::kReduceScatter, DimOrder::kAcrossRanks,
      RecomputeClass::kExchange);
  add("_c10d_functional::reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, "
      "int group_size, str group_name) -> Tensor[]",
      ReduceScatterCoalescedRule, Collective::kReduceScatter, DimOrder::kAcrossRanks,
      RecomputeClass::kExchange);
  add("_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor",
      SameSizesRule, Collective::kAllReduce, DimOrder::kKept);
  add("_c10d_functional::all_reduce_coalesced(Tensor[] inputs, str reduce_op, str group_name) -> "
      "Tensor[]",
      AllReduceCoalescedRule, Collective::kAllReduce, DimOrder::kKept);
  add("_c10d_functional::all_to_all_single(Tensor input, SymInt[] output_split_sizes, "
      "SymInt[] input_split_sizes, str group_name) -> Tensor",
      AllToAllRule, Collective::kAllToAll, DimOrder::kAcrossRanks, RecomputeClass::kExchange);
  add("_c10d_functional::broadcast(Tensor input, int src, str group_name) -> Tensor", SameSizesRule,
      Collective::kBroadcast, DimOrder::kKept);
  // Returns its argument, yet is no view: its position decides when the program waits.
  add("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor", CollectiveWaitRule,
      Collective::kWait, DimOrder::kKept)
      .aliasing = Aliasing::kAlways;
}

}  // namespace gt
