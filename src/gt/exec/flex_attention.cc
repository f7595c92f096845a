// The kernels of gt::flex_attention: attention with any score and mask function, block by block with
// a running softmax, so that scores exist for one block of queries and keys at a time. Written in
// terms of libtorch's operators and therefore the same on every device. Blocks in which the mask
// allows no pair are skipped. (A plain causal mask needs none of this: --model.attn sdpa takes
// libtorch's fused kernels.)
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "gt/base/error.h"
#include "gt/torch_bridge/graph_object.h"

namespace gt {

c10::IValue ToIValue(const GraphRef& graph) {
  return graph == nullptr ? c10::IValue() : c10::IValue(c10::make_intrusive<GraphObject>(graph));
}

c10::intrusive_ptr<GraphObject> ToGraphObject(const c10::IValue& value) {
  return value.isNone() ? c10::intrusive_ptr<GraphObject>() : value.toCustomClass<GraphObject>();
}

namespace {

using at::Tensor;
using GraphHandle = c10::intrusive_ptr<GraphObject>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kQueryBlock = 128;
constexpr int64_t kKeyBlock = 512;

// What the functions say about all pairs of one call. Positions have four dimensions, [batch, heads,
// queries, keys], each with the one extent that is its own.
class Functions {
 public:
  Functions(const Tensor& query, const Tensor& key, std::vector<Tensor> captures, GraphHandle score,
            GraphHandle score_backward, GraphHandle mask)
      : captures_(std::move(captures)),
        score_(std::move(score)),
        score_backward_(std::move(score_backward)),
        mask_(std::move(mask)) {
    auto positions = [&](int64_t count, int64_t dim) {
      std::vector<int64_t> shape(4, 1);
      shape[static_cast<size_t>(dim)] = count;
      return at::arange(count, query.options().dtype(at::kInt)).view(shape);
    };
    batch_ = positions(query.size(0), 0);
    head_ = positions(query.size(1), 1);
    query_ = positions(query.size(2), 2);
    key_ = positions(key.size(2), 3);
  }

  void Select(int64_t query_start, int64_t queries, int64_t key_start, int64_t keys) {
    block_ = {batch_, head_, query_.narrow(2, query_start, queries),
              key_.narrow(3, key_start, keys)};
  }

  // Which pairs of the selected block count; undefined: all do. `any` tells whether there is one.
  Tensor Mask(bool* any) const {
    *any = true;
    if (mask_ == nullptr) return {};
    Tensor allowed = Call(*mask_, {});
    *any = allowed.any().item<bool>();
    return *any && allowed.all().item<bool>() ? Tensor() : allowed;
  }

  Tensor Score(const Tensor& score) const {
    return score_->function.is_identity() ? score : Call(*score_, {score});
  }

  // The gradient of the score, from that of what Score() made of it.
  Tensor ScoreBackward(const Tensor& gradient, const Tensor& score) const {
    if (score_->function.is_identity()) return gradient;
    return Call(*score_backward_, {gradient, score}).expand_as(score);
  }

 private:
  Tensor Call(const GraphObject& graph, std::vector<Tensor> numbers) const {
    numbers.insert(numbers.end(), block_.begin(), block_.end());
    numbers.insert(numbers.end(), captures_.begin(), captures_.end());
    return graph.function(numbers);
  }

  std::vector<Tensor> captures_;
  GraphHandle score_, score_backward_, mask_;
  Tensor batch_, head_, query_, key_;
  std::vector<Tensor> block_;
};

// Query heads that share a key head become more rows of that head: [batch, kv heads, group * rows,
// width].
Tensor FoldGroups(const Tensor& rows, int64_t kv_heads) {
  return rows.reshape({rows.size(0), kv_heads, -1, rows.size(3)});
}

Tensor Unfold(const Tensor& folded, int64_t heads) {
  int64_t rows = folded.size(1) * folded.size(2) / heads;
  return folded.view({folded.size(0), heads, rows, folded.size(3)});
}

// Blocks are made smaller when there are so many heads that scores of one would take much memory.
int64_t QueryBlock(const Tensor& query) {
  constexpr int64_t kMostScores = int64_t{1} << 24;
  int64_t rows = kMostScores / (query.size(0) * query.size(1) * kKeyBlock);
  return std::clamp<int64_t>(rows, 16, kQueryBlock);
}

Tensor LengthMajorLike(const Tensor& rows, int64_t width) {
  return at::empty({rows.size(0), rows.size(2), rows.size(1), width}, rows.options())
      .transpose(1, 2);
}

std::tuple<Tensor, Tensor> FlexForward(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const std::vector<Tensor>& captures,
                                       const GraphHandle& score_mod,
                                       const std::optional<GraphHandle>& mask_mod, double scale,
                                       bool /*enable_gqa*/) {
  Functions functions(query, key, captures, score_mod, {}, mask_mod.value_or(GraphHandle()));
  int64_t heads = query.size(1), kv_heads = key.size(1);
  Tensor out = LengthMajorLike(query, value.size(3));
  Tensor logsumexp =
      at::empty({query.size(0), heads, query.size(2)}, query.options().dtype(at::kFloat));
  Tensor wide_key = key.to(at::kFloat), wide_value = value.to(at::kFloat);
  int64_t step = QueryBlock(query);
  for (int64_t i = 0; i < query.size(2); i += step) {
    int64_t queries = std::min(step, query.size(2) - i);
    Tensor rows = FoldGroups(query.narrow(2, i, queries).to(at::kFloat) * scale, kv_heads);
    Tensor most, sum, total;  // running maximum, sum of exponentials, weighted sum of values
    for (int64_t j = 0; j < key.size(2); j += kKeyBlock) {
      int64_t keys = std::min(kKeyBlock, key.size(2) - j);
      functions.Select(i, queries, j, keys);
      bool any = false;
      Tensor allowed = functions.Mask(&any);
      if (!any) continue;
      Tensor scores = Unfold(rows.matmul(wide_key.narrow(2, j, keys).mT()), heads);
      scores = functions.Score(scores);
      if (allowed.defined()) scores = scores.masked_fill(allowed.logical_not(), -kInfinity);
      Tensor highest = scores.amax(-1, /*keepdim=*/true);
      if (most.defined()) highest = at::maximum(highest, most);
      // A row without any allowed pair so far has no maximum to subtract.
      Tensor base = highest.masked_fill(highest == -kInfinity, 0.0);
      Tensor weights = (scores - base).exp_();
      Tensor part =
          Unfold(FoldGroups(weights, kv_heads).matmul(wide_value.narrow(2, j, keys)), heads);
      if (most.defined()) {
        Tensor shrink = (most - base).exp_();
        sum = sum * shrink + weights.sum(-1, true);
        total = total * shrink + part;
      } else {
        sum = weights.sum(-1, true);
        total = part;
      }
      most = highest;
    }
    Tensor out_rows = out.narrow(2, i, queries), sum_rows = logsumexp.narrow(2, i, queries);
    if (!most.defined()) {
      out_rows.zero_();
      sum_rows.fill_(-kInfinity);
      continue;
    }
    Tensor nothing = sum == 0;
    out_rows.copy_(total / sum.masked_fill(nothing, 1.0));
    sum_rows.copy_((most + sum.log()).squeeze(-1));
  }
  return {out, logsumexp};
}

std::tuple<Tensor, Tensor, Tensor> FlexBackward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& logsumexp, const std::vector<Tensor>& captures,
    const GraphHandle& score_mod, const GraphHandle& score_mod_backward,
    const std::optional<GraphHandle>& mask_mod, double scale, bool /*enable_gqa*/) {
  Functions functions(query, key, captures, score_mod, score_mod_backward,
                      mask_mod.value_or(GraphHandle()));
  int64_t heads = query.size(1), kv_heads = key.size(1);
  Tensor grad_query = LengthMajorLike(query, query.size(3));
  Tensor wide_key = key.to(at::kFloat), wide_value = value.to(at::kFloat);
  Tensor key_sum = at::zeros_like(wide_key, at::MemoryFormat::Contiguous);
  Tensor value_sum = at::zeros_like(wide_value, at::MemoryFormat::Contiguous);
  int64_t step = QueryBlock(query);
  for (int64_t i = 0; i < query.size(2); i += step) {
    int64_t queries = std::min(step, query.size(2) - i);
    Tensor rows = FoldGroups(query.narrow(2, i, queries).to(at::kFloat) * scale, kv_heads);
    Tensor grad_rows = grad_out.narrow(2, i, queries).to(at::kFloat);
    Tensor along = (grad_rows * out.narrow(2, i, queries).to(at::kFloat)).sum(-1, true);
    Tensor folded_grad = FoldGroups(grad_rows, kv_heads);
    Tensor denominator = logsumexp.narrow(2, i, queries).unsqueeze(-1);
    denominator = denominator.masked_fill(denominator == -kInfinity, kInfinity);
    Tensor query_sum = at::zeros_like(rows);
    for (int64_t j = 0; j < key.size(2); j += kKeyBlock) {
      int64_t keys = std::min(kKeyBlock, key.size(2) - j);
      functions.Select(i, queries, j, keys);
      bool any = false;
      Tensor allowed = functions.Mask(&any);
      if (!any) continue;
      Tensor block_key = wide_key.narrow(2, j, keys), block_value = wide_value.narrow(2, j, keys);
      Tensor raw = Unfold(rows.matmul(block_key.mT()), heads);
      Tensor scores = functions.Score(raw);
      if (allowed.defined()) scores = scores.masked_fill(allowed.logical_not(), -kInfinity);
      Tensor weights = (scores - denominator).exp_();
      value_sum.narrow(2, j, keys).add_(FoldGroups(weights, kv_heads).mT().matmul(folded_grad));
      Tensor grad_weights = Unfold(folded_grad.matmul(block_value.mT()), heads);
      Tensor grad_scores = weights * (grad_weights - along);
      grad_scores = functions.ScoreBackward(grad_scores, raw);
      // A score function may have any slope where the mask hides its result.
      if (allowed.defined() && !score_mod->function.is_identity()) {
        grad_scores = grad_scores.masked_fill(allowed.logical_not(), 0.0);
      }
      Tensor folded = FoldGroups(grad_scores, kv_heads);
      query_sum.add_(folded.matmul(block_key));
      key_sum.narrow(2, j, keys).add_(folded.mT().matmul(rows));  // rows carry the scale
    }
    grad_query.narrow(2, i, queries).copy_(Unfold(query_sum, heads) * scale);
  }
  auto finished = [](const Tensor& sum, const Tensor& like) {
    Tensor result = LengthMajorLike(like, like.size(3));
    result.copy_(sum);
    return result;
  };
  return {grad_query, finished(key_sum, key), finished(value_sum, value)};
}

TORCH_LIBRARY(gt, library) {
  library.class_<GraphObject>("Graph");
  library.def(
      "flex_attention(Tensor query, Tensor key, Tensor value, Tensor[] captures, "
      "__torch__.torch.classes.gt.Graph score_mod, __torch__.torch.classes.gt.Graph? mask_mod, "
      "float scale, bool enable_gqa=False) -> (Tensor out, Tensor logsumexp)");
  library.def(
      "flex_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor "
      "out, "
      "Tensor logsumexp, Tensor[] captures, __torch__.torch.classes.gt.Graph score_mod, "
      "__torch__.torch.classes.gt.Graph score_mod_backward, "
      "__torch__.torch.classes.gt.Graph? mask_mod, float scale, bool enable_gqa=False) -> "
      "(Tensor grad_query, Tensor grad_key, Tensor grad_value)");
}

TORCH_LIBRARY_IMPL(gt, CompositeExplicitAutograd, library) {
  library.impl("flex_attention", FlexForward);
  library.impl("flex_attention_backward", FlexBackward);
}

}  // namespace
}  // namespace gt
