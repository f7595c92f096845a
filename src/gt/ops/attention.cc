// Scaled dot-product attention: libtorch's fused kernels, each with the layout its results really
// have, and FlexAttention, which is an operator of our own with the score and mask functions as
// nested graphs.
//
// Dimensions are [batch, heads, length, width] throughout. Kernels that drop attention weights at
// random are rejected: nothing below could tell such a call from one that may be recomputed.
#include <fmt/format.h>

#include <array>

#include "gt/ir/graph.h"
#include "gt/ops/attention_sharding.h"
#include "gt/ops/flex_blocks.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"

namespace gt {
namespace {

using rules::RequireEqual;

enum AttentionDim : size_t { kBatch, kHeads, kLength, kWidth };

struct Qkv {
  const TensorType& query;
  const TensorType& key;
  const TensorType& value;
};

// Query, key and value at three successive arguments, checked against each other.
Qkv CheckedQkv(RuleContext& ctx, int first) {
  Qkv qkv{ctx.Tensor(first), ctx.Tensor(first + 1), ctx.Tensor(first + 2)};
  const auto& [query, key, value] = qkv;
  if (query.rank() != 4 || key.rank() != 4 || value.rank() != 4) {
    ctx.Reject("query, key and value must be [batch, heads, length, width]");
  }
  if (query.dtype != key.dtype || query.dtype != value.dtype) {
    ctx.Reject("query, key and value must have one dtype");
  }
  RequireEqual(ctx, query.sizes[kBatch], key.sizes[kBatch],
               "query and key must have one batch size");
  RequireEqual(ctx, key.sizes[kBatch], value.sizes[kBatch],
               "key and value must have one batch size");
  RequireEqual(ctx, key.sizes[kHeads], value.sizes[kHeads],
               "key and value must have equally many heads");
  RequireEqual(ctx, key.sizes[kLength], value.sizes[kLength], "key and value must be equally long");
  RequireEqual(ctx, query.sizes[kWidth], key.sizes[kWidth], "query and key must be equally wide");
  return qkv;
}

void CheckSameHeads(RuleContext& ctx, const Qkv& qkv) {
  RequireEqual(ctx, qkv.query.sizes[kHeads], qkv.key.sizes[kHeads],
               "query and key must have equally many heads");
}

// Grouped queries: several query heads share a key head.
void CheckGroupedHeads(RuleContext& ctx, const Qkv& qkv) {
  const Dim &heads = qkv.query.sizes[kHeads], &shared = qkv.key.sizes[kHeads];
  if (heads == shared) return;
  RequireEqual(ctx, Mod(heads, shared), 0, "each key head must serve equally many query heads");
}

void CheckSameWidth(RuleContext& ctx, const Qkv& qkv) {
  RequireEqual(ctx, qkv.query.sizes[kWidth], qkv.value.sizes[kWidth],
               "this kernel needs values as wide as queries");
}

void CheckNoDropout(const RuleContext& ctx, int arg) {
  if (ctx.Float(arg) != 0) {
    ctx.Reject(
        "dropout inside the attention kernel is not supported: the graph could not be recomputed "
        "or compared bit by bit. Set dropout_p to 0");
  }
}

// Dense with length outside heads: [batch, length, heads, width] seen through a transpose.
TensorType LengthMajor(RuleContext& ctx, const TensorType& like, Shape sizes) {
  std::swap(sizes[kHeads], sizes[kLength]);
  Shape strides = ContiguousStrides(sizes, ctx.env());
  std::swap(sizes[kHeads], sizes[kLength]);
  std::swap(strides[kHeads], strides[kLength]);
  return {like.dtype, like.device, std::move(sizes), std::move(strides)};
}

// What empty_like gives kernels that work on [batch, length, heads, width], seen through the
// transpose back.
TensorType LikeTransposed(RuleContext& ctx, const TensorType& like) {
  TensorType type = like;
  std::swap(type.sizes[kHeads], type.sizes[kLength]);
  std::swap(type.strides[kHeads], type.strides[kLength]);
  type.strides = rules::PreservedStrides(ctx.env(), type);
  std::swap(type.sizes[kHeads], type.sizes[kLength]);
  std::swap(type.strides[kHeads], type.strides[kLength]);
  return type;
}

TensorType Like(RuleContext& ctx, const TensorType& like) {
  return {like.dtype, like.device, like.sizes, rules::PreservedStrides(ctx.env(), like)};
}

TensorType Scalar(DType dtype, Device device) { return {dtype, device, {}, {}}; }

void CpuFlashRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 0);
  CheckSameWidth(ctx, qkv);
  CheckNoDropout(ctx, 3);
  const TensorType& query = qkv.query;
  ctx.Return(Like(ctx, query));
  // Sums of exponentials are laid out as [batch, length, heads].
  DType sums = query.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  TensorType lse =
      ContiguousType(sums, query.device,
                     {query.sizes[kBatch], query.sizes[kLength], query.sizes[kHeads]}, ctx.env());
  std::swap(lse.sizes[1], lse.sizes[2]);
  std::swap(lse.strides[1], lse.strides[2]);
  ctx.Return(std::move(lse));
}

void CpuFlashBackwardRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 1);
  CheckNoDropout(ctx, 6);
  for (const TensorType* input : {&qkv.query, &qkv.key, &qkv.value}) {
    ctx.Return(LengthMajor(ctx, *input, input->sizes));
  }
}

// Results that only tell the backward kernel how a ragged batch was packed: a dense one has none.
void ReturnNoPacking(RuleContext& ctx, const Qkv& qkv) {
  ctx.ReturnUndefined();
  ctx.ReturnUndefined();
  ctx.ReturnInt(qkv.query.sizes[kLength]);
  ctx.ReturnInt(qkv.key.sizes[kLength]);
}

void FlashRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 0);
  CheckGroupedHeads(ctx, qkv);
  CheckSameWidth(ctx, qkv);
  CheckNoDropout(ctx, 3);
  if (ctx.Bool(5)) ctx.Reject("return_debug_mask is not supported");
  const TensorType& query = qkv.query;
  ctx.Return(LikeTransposed(ctx, query));
  ctx.Return(ContiguousType(DType::kFloat32, query.device,
                            {query.sizes[kBatch], query.sizes[kHeads], query.sizes[kLength]},
                            ctx.env()));
  ReturnNoPacking(ctx, qkv);
  ctx.Return({DType::kUInt64, query.device, {Dim(2)}, {Dim(1)}});
  ctx.Return(Scalar(DType::kUInt64, query.device));
  ctx.Return({query.dtype, query.device, {Dim(0)}, {Dim(1)}});
}

void FlashBackwardRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 1);
  CheckNoDropout(ctx, 10);
  for (const TensorType* input : {&qkv.query, &qkv.key, &qkv.value}) {
    ctx.Return(LikeTransposed(ctx, *input));
  }
}

void EfficientRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 0);
  CheckSameHeads(ctx, qkv);
  CheckNoDropout(ctx, 5);
  const TensorType& query = qkv.query;
  Shape sizes = query.sizes;
  sizes[kWidth] = qkv.value.sizes[kWidth];
  ctx.Return(LengthMajor(ctx, query, std::move(sizes)));
  Dim padded = ctx.Bool(4) ? CeilDiv(query.sizes[kLength], 32) * Dim(32) : Dim(0);
  ctx.Return(ContiguousType(DType::kFloat32, query.device,
                            {query.sizes[kBatch], query.sizes[kHeads], std::move(padded)},
                            ctx.env()));
  // The state of the random generator stays on the host.
  ctx.Return(Scalar(DType::kInt64, Device{}));
  ctx.Return(Scalar(DType::kInt64, Device{}));
}

void EfficientBackwardRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 1);
  CheckNoDropout(ctx, 9);
  const std::vector<bool>& wanted = ctx.Bools(10);
  if (wanted.size() != 4) ctx.Reject("grad_input_mask needs four entries");
  for (const TensorType* input : {&qkv.query, &qkv.key, &qkv.value}) {
    ctx.Return(LengthMajor(ctx, *input, input->sizes));
  }
  const TensorType* bias = ctx.OptionalTensor(4);
  if (bias == nullptr || !wanted[3]) {
    ctx.ReturnUndefined();
    return;
  }
  // Rows are padded to 16 elements and the padding sliced off.
  TensorType grad = *bias;
  grad.sizes.back() = CeilDiv(grad.sizes.back(), 16) * Dim(16);
  grad.strides = ContiguousStrides(grad.sizes, ctx.env());
  grad.sizes.back() = bias->sizes.back();
  ctx.Return(std::move(grad));
}

// cuDNN's output has the query's layout, also where it is not as wide: innermost dimensions are
// filled first.
Shape MatchingStrides(ShapeEnv& env, const TensorType& query, const Shape& sizes) {
  std::array<size_t, 4> order = {0, 1, 2, 3};
  for (size_t i = 1; i < order.size(); ++i) {
    for (size_t j = i; j > 0; --j) {
      if (rules::CompareStrides(env, query.strides[order[j]], query.strides[order[j - 1]]) >= 0)
        break;
      std::swap(order[j], order[j - 1]);
    }
  }
  Shape strides(4);
  Dim stride = 1;
  for (size_t d : order) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

void CudnnRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 0);
  CheckGroupedHeads(ctx, qkv);
  CheckNoDropout(ctx, 5);
  if (ctx.Bool(7)) ctx.Reject("return_debug_mask is not supported");
  const TensorType& query = qkv.query;
  TensorType out = query;
  out.sizes[kWidth] = qkv.value.sizes[kWidth];
  bool same = ctx.env().EqualOrUnknown(out.sizes[kWidth], query.sizes[kWidth]);
  out.strides = same ? rules::PreservedStrides(ctx.env(), query)
                     : MatchingStrides(ctx.env(), query, out.sizes);
  ctx.Return(std::move(out));
  if (ctx.Bool(4)) {
    ctx.Return(ContiguousType(
        DType::kFloat32, query.device,
        {query.sizes[kBatch], query.sizes[kHeads], query.sizes[kLength], Dim(1)}, ctx.env()));
  } else {
    ctx.ReturnUndefined();
  }
  ReturnNoPacking(ctx, qkv);
  ctx.Return(Scalar(DType::kInt64, query.device));
  ctx.Return(Scalar(DType::kInt64, query.device));
  ctx.ReturnUndefined();
}

void CudnnBackwardRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 1);
  CheckNoDropout(ctx, 13);
  for (const TensorType* input : {&qkv.query, &qkv.key, &qkv.value}) ctx.Return(Like(ctx, *input));
}

// A function on single scores. Its inputs are `numbers` f32 scalars, the four positions (batch,
// head, query, key) as i32 scalars, and then every captured tensor, whole; its one output is a
// scalar.
void CheckScoreFunction(const RuleContext& ctx, int arg, int numbers,
                        const std::vector<const TensorType*>& captures, DType result) {
  const auto* function = std::get_if<GraphRef>(&ctx.arg(arg));
  const std::string& name = ctx.op().schema.args[static_cast<size_t>(arg)].name;
  if (function == nullptr || *function == nullptr)
    ctx.Reject(fmt::format("{} must be a graph", name));
  auto inputs = (*function)->inputs();
  size_t fixed = static_cast<size_t>(numbers) + 4;
  if (inputs.size() != fixed + captures.size()) {
    ctx.Reject(fmt::format("{} must take {} scalars and the {} captured tensors, but has {} inputs",
                           name, fixed, captures.size(), inputs.size()));
  }
  for (size_t i = 0; i < fixed; ++i) {
    const TensorType& type = inputs[i]->value.type();
    DType expected = i < static_cast<size_t>(numbers) ? DType::kFloat32 : DType::kInt32;
    if (type.rank() != 0 || type.dtype != expected) {
      ctx.Reject(fmt::format("input {} of {} must be a {} scalar", i, name, DTypeName(expected)));
    }
  }
  for (size_t i = 0; i < captures.size(); ++i) {
    if (inputs[fixed + i]->value.type() != *captures[i]) {
      ctx.Reject(fmt::format("input {} of {} must have the type of captured tensor {}", fixed + i,
                             name, i));
    }
  }
  auto outputs = (*function)->outputs();
  if (outputs.size() != 1 || outputs[0]->value()->type().rank() != 0 ||
      outputs[0]->value()->type().dtype != result) {
    ctx.Reject(fmt::format("{} must return one {} scalar", name, DTypeName(result)));
  }
}

void CheckFlexHeads(RuleContext& ctx, const Qkv& qkv, bool grouped) {
  if (grouped) {
    CheckGroupedHeads(ctx, qkv);
  } else {
    CheckSameHeads(ctx, qkv);
  }
}

// The result is laid out as [batch, length, heads, width], so that joining the heads afterwards
// moves nothing.
void FlexRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 0);
  std::vector<const TensorType*> captures = ctx.Tensors(3);
  CheckScoreFunction(ctx, 4, 1, captures, DType::kFloat32);
  if (!ctx.IsNone(5)) CheckScoreFunction(ctx, 5, 0, captures, DType::kBool);
  CheckFlexHeads(ctx, qkv, ctx.Bool(7));
  const TensorType& query = qkv.query;
  Shape sizes = query.sizes;
  sizes[kWidth] = qkv.value.sizes[kWidth];
  ctx.Return(LengthMajor(ctx, query, std::move(sizes)));
  ctx.Return(ContiguousType(DType::kFloat32, query.device,
                            {query.sizes[kBatch], query.sizes[kHeads], query.sizes[kLength]},
                            ctx.env()));
}

void FlexBackwardRule(RuleContext& ctx) {
  Qkv qkv = CheckedQkv(ctx, 1);
  std::vector<const TensorType*> captures = ctx.Tensors(6);
  CheckScoreFunction(ctx, 7, 1, captures, DType::kFloat32);
  CheckScoreFunction(ctx, 8, 2, captures, DType::kFloat32);
  if (!ctx.IsNone(9)) CheckScoreFunction(ctx, 9, 0, captures, DType::kBool);
  CheckFlexHeads(ctx, qkv, ctx.Bool(11));
  for (const TensorType* input : {&qkv.query, &qkv.key, &qkv.value}) {
    ctx.Return(LengthMajor(ctx, *input, input->sizes));
  }
}

// Every pair of a query and a key counts, masked or not: that is how the field counts (torch's
// counter too), and what a causal kernel saves differs from kernel to kernel.
template <int kFirst>
Dim Pairs(const CostContext& ctx) {
  const TensorType &query = ctx.Tensor(kFirst), &key = ctx.Tensor(kFirst + 1);
  return query.sizes[kBatch] * query.sizes[kHeads] * query.sizes[kLength] * key.sizes[kLength];
}

// What one block of queries and keys takes: scores of all heads, several times over, and rows of queries. Half
// precision is widened first, all keys and values of it. On a GPU calls in half precision take flash kernels,
// which allocate nothing that counts here.
struct FlexBlock {
  Dim scores, queries;  // bytes
  Dim widened;
};
template <int kFirst>
FlexBlock FlexBlockOf(const CostContext& ctx) {
  const TensorType &query = ctx.Tensor(kFirst), &key = ctx.Tensor(kFirst + 1),
                   &value = ctx.Tensor(kFirst + 2);
  const bool half = ItemSize(query.dtype) < ItemSize(DType::kFloat32);
  if (half && query.device.kind != DeviceKind::kCpu) return {0, 0, 0};
  const Dim heads = query.sizes[kBatch] * query.sizes[kHeads], width(ItemSize(DType::kFloat32));
  const Dim most =
      Max(Dim(kLeastFlexQueries),
          Min(Dim(kFlexQueryBlock), FloorDiv(Dim(kMostFlexScores), heads * Dim(kFlexKeyBlock))));
  const Dim rows = heads * Min(query.sizes[kLength], most) * width;
  Dim keys_and_values = key.sizes[kBatch] * key.sizes[kHeads] * key.sizes[kLength] *
                        (key.sizes[kWidth] + value.sizes[kWidth]) * width;
  return {rows * Min(key.sizes[kLength], Dim(kFlexKeyBlock)),
          rows * (query.sizes[kWidth] + value.sizes[kWidth]), half ? keys_and_values : Dim(0)};
}
// Scores before and after the mask, or after it and their exponentials.
Dim FlexScratch(const CostContext& ctx) {
  const FlexBlock block = FlexBlockOf<0>(ctx);
  return Dim(2) * block.scores + block.queries + block.widened;
}
// Scores before and after the mask, weights, their gradients, those less the sum along them, and those of
// scores; sums of the gradients of keys and values in float32.
Dim FlexBackwardScratch(const CostContext& ctx) {
  const FlexBlock block = FlexBlockOf<1>(ctx);
  const TensorType &key = ctx.Tensor(2), &value = ctx.Tensor(3);
  if (block.scores.Is(0)) return 0;
  const Dim sums = key.sizes[kBatch] * key.sizes[kHeads] * key.sizes[kLength] *
                   (key.sizes[kWidth] + value.sizes[kWidth]) * Dim(ItemSize(DType::kFloat32));
  return Dim(6) * block.scores + Dim(2) * block.queries + block.widened + sums;
}

// Scores, and the weighted sum of values.
Dim ForwardFlops(const CostContext& ctx) {
  return Dim(2) * Pairs<0>(ctx) * (ctx.Tensor(0).sizes[kWidth] + ctx.Tensor(2).sizes[kWidth]);
}

// Recomputed scores, gradients of scores, query and key (width of keys), of weights and values
// (width of values).
Dim BackwardFlops(const CostContext& ctx) {
  return Dim(2) * Pairs<1>(ctx) *
         (Dim(3) * ctx.Tensor(1).sizes[kWidth] + Dim(2) * ctx.Tensor(3).sizes[kWidth]);
}

template <int kBias>
void ForwardSharding(ShardingContext& ctx) {
  rules::AddAttentionRows(ctx, {{0, 1, 2}, kBias}, /*backward=*/false);
}

// kOut: where the forward pass's output and logsumexp are.
template <int kOut, int kBias>
void BackwardSharding(ShardingContext& ctx) {
  rules::AddAttentionRows(ctx, {{0, 1, 2, 3, kOut, kOut + 1}, kBias}, /*backward=*/true);
}

}  // namespace

void RegisterAttention(OperatorTable& table) {
  OperatorGroup forward(table, {.work = Work::kAttention,
                                .order = DimOrder::kKept,
                                .flops = ForwardFlops,
                                .recompute = RecomputeClass::kAttention});
  OperatorGroup backward(
      table, {.work = Work::kAttention, .order = DimOrder::kKept, .flops = BackwardFlops});
  forward
      .Add(
          "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor "
          "value, "
          "float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) "
          "-> "
          "(Tensor output, Tensor logsumexp)",
          CpuFlashRule)
      .sharding = ForwardSharding<5>;
  backward
      .Add(
          "aten::_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor "
          "query, "
          "Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool "
          "is_causal, "
          "*, Tensor? attn_mask=None, float? scale=None) -> (Tensor grad_query, Tensor grad_key, "
          "Tensor grad_value)",
          CpuFlashBackwardRule)
      .sharding = BackwardSharding<4, 8>;
  forward
      .Add(
          "aten::_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, "
          "float dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, "
          "float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, "
          "Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor rng_state, Tensor unused, "
          "Tensor debug_attn_mask)",
          FlashRule)
      .sharding = ForwardSharding<-1>;
  backward
      .Add(
          "aten::_scaled_dot_product_flash_attention_backward(Tensor grad_out, Tensor query, "
          "Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor cum_seq_q, "
          "Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, "
          "Tensor philox_seed, Tensor philox_offset, *, float? scale=None) -> (Tensor grad_query, "
          "Tensor grad_key, Tensor grad_value)",
          FlashBackwardRule)
      .sharding = BackwardSharding<4, -1>;
  forward
      .Add(
          "aten::_scaled_dot_product_efficient_attention(Tensor query, Tensor key, Tensor value, "
          "Tensor? attn_bias, bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, "
          "*, "
          "float? scale=None) -> (Tensor output, Tensor log_sumexp, Tensor philox_seed, "
          "Tensor philox_offset)",
          EfficientRule)
      .sharding = ForwardSharding<3>;
  backward
      .Add(
          "aten::_scaled_dot_product_efficient_attention_backward(Tensor grad_out_, Tensor query, "
          "Tensor key, Tensor value, Tensor attn_bias, Tensor out, Tensor logsumexp, "
          "Tensor philox_seed, Tensor philox_offset, float dropout_p, bool[4] grad_input_mask, "
          "bool is_causal=False, *, float? scale=None) -> (Tensor, Tensor, Tensor, Tensor)",
          EfficientBackwardRule)
      .sharding = BackwardSharding<5, 4>;
  forward
      .Add(
          "aten::_scaled_dot_product_cudnn_attention(Tensor query, Tensor key, Tensor value, "
          "Tensor? attn_bias, bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, "
          "bool return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor "
          "logsumexp, "
          "Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor philox_seed, "
          "Tensor philox_offset, Tensor debug_attn_mask)",
          CudnnRule)
      .sharding = ForwardSharding<3>;
  backward
      .Add(
          "aten::_scaled_dot_product_cudnn_attention_backward(Tensor grad_out, Tensor query, "
          "Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor philox_seed, "
          "Tensor philox_offset, Tensor attn_bias, Tensor cum_seq_q, Tensor cum_seq_k, SymInt "
          "max_q, "
          "SymInt max_k, float dropout_p, bool is_causal, *, float? scale=None) -> (Tensor, "
          "Tensor, "
          "Tensor)",
          CudnnBackwardRule)
      .sharding = BackwardSharding<4, 8>;
  // The host looks at the mask to skip blocks without a pair.
  //
  // score_mod(score, batch, head, query, key, captures...) gives the score to use; mask_mod(batch,
  // head, query, key, captures...) whether the pair counts at all.
  Operator& flex = forward.Add(
      "gt::flex_attention(Tensor query, Tensor key, Tensor value, Tensor[] captures, "
      "Graph score_mod, Graph? mask_mod, float scale, bool enable_gqa=False) -> (Tensor out, "
      "Tensor logsumexp)",
      FlexRule);
  flex.host = HostPart::kAlways;
  flex.scratch = FlexScratch;
  flex.sharding = rules::FlexSharding;
  // score_mod_backward(gradient of score_mod's result, score, batch, head, query, key, captures...)
  // gives the gradient of the score. Captured tensors get no gradient.
  Operator& flex_backward = backward.Add(
      "gt::flex_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
      "Tensor out, Tensor logsumexp, Tensor[] captures, Graph score_mod, Graph "
      "score_mod_backward, "
      "Graph? mask_mod, float scale, bool enable_gqa=False) -> (Tensor grad_query, "
      "Tensor grad_key, Tensor grad_value)",
      FlexBackwardRule);
  flex_backward.host = HostPart::kAlways;
  flex_backward.scratch = FlexBackwardScratch;
  flex_backward.sharding = rules::FlexBackwardSharding;
}

}  // namespace gt
