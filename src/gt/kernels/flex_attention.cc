// The kernels of gt::flex_attention: attention with any score and mask function, block by block with
// a running softmax, so that scores exist for one block of queries and keys at a time. Written in
// terms of libtorch's operators and therefore the same on every device. Blocks in which the mask
// allows no pair are skipped. On a GPU, calls in half precision whose functions mean a causal mask, a mask by
// documents or none take libtorch's flash kernels instead (attention_mask.h).
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/kernels/attention_mask.h"
#include "gt/ops/flex_blocks.h"
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

int64_t QueryBlock(const Tensor& query) {
  int64_t rows = kMostFlexScores / (query.size(0) * query.size(1) * kFlexKeyBlock);
  return std::clamp(rows, kLeastFlexQueries, kFlexQueryBlock);
}

Tensor LengthMajorLike(const Tensor& rows, int64_t width) {
  return at::empty({rows.size(0), rows.size(2), rows.size(1), width}, rows.options())
      .transpose(1, 2);
}

std::tuple<Tensor, Tensor> BlockedForward(const Tensor& query, const Tensor& key,
                                          const Tensor& value, const std::vector<Tensor>& captures,
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
    for (int64_t j = 0; j < key.size(2); j += kFlexKeyBlock) {
      int64_t keys = std::min(kFlexKeyBlock, key.size(2) - j);
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

std::tuple<Tensor, Tensor, Tensor> BlockedBackward(
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
    for (int64_t j = 0; j < key.size(2); j += kFlexKeyBlock) {
      int64_t keys = std::min(kFlexKeyBlock, key.size(2) - j);
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

// Masks that libtorch's flash kernels know. They take half precision, and as many keys as queries.

struct FlashCall {
  Tensor query, key, value, documents;
  MaskKind kind = MaskKind::kOther;
  double scale = 1;

  bool causal() const { return kind == MaskKind::kCausal || kind == MaskKind::kCausalDocument; }
  bool has_documents() const { return documents.defined(); }
  int64_t width() const {
    return (std::max(query.size(3), value.size(3)) + 7) / 8 *
           8;  // kernels want one, of whole vectors
  }
};

Tensor PaddedTo(const Tensor& x, int64_t width) {
  return x.size(3) == width ? x : at::constant_pad_nd(x, {0, width - x.size(3)});
}

// [batch, heads, length, width] as rows of all sequences, [batch * length, heads, width], and back.
Tensor Packed(const Tensor& x, int64_t width) {
  return PaddedTo(x, width).transpose(1, 2).reshape({-1, x.size(1), width});
}
Tensor Unpacked(const Tensor& rows, const Tensor& like, int64_t width) {
  return rows.view({like.size(0), like.size(2), rows.size(1), rows.size(2)})
      .transpose(1, 2)
      .narrow(3, 0, width);
}

Tensor InLengthMajor(const Tensor& x) {
  Tensor result = LengthMajorLike(x, x.size(3));
  return result.strides() == x.strides() ? x : result.copy_(x);
}

// Where documents begin among the rows of all sequences. Nothing if one document is in several stretches,
// which the kernel has no word for.
struct Stretches {
  Tensor starts;  // int32, the end last
  int64_t longest = 0;
};
std::optional<Stretches> StretchesOf(const Tensor& documents) {
  const int64_t length = documents.size(1);
  Tensor begins = at::ones(documents.sizes(), documents.options().dtype(at::kBool));
  if (length > 1) {
    const Tensor before = documents.narrow(1, 0, length - 1),
                 after = documents.narrow(1, 1, length - 1);
    if (!at::ge(after, before).all().item<bool>()) return std::nullopt;
    begins.narrow(1, 1, length - 1).copy_(at::ne(after, before));
  }
  const Tensor first = begins.flatten().nonzero().flatten();
  const Tensor end = at::full({1}, documents.numel(), first.options());
  const Tensor starts = at::cat({first, end}).to(at::kInt);
  const int64_t longest = at::diff(starts).max().item<int64_t>();
  return Stretches{starts, longest};
}

std::optional<std::tuple<Tensor, Tensor>> FlashForward(const FlashCall& call) {
  const auto& [query, key, value, documents, kind, scale] = call;
  const int64_t width = call.width();
  if (!call.has_documents()) {
    auto results = at::_scaled_dot_product_flash_attention(
        PaddedTo(query, width), PaddedTo(key, width), PaddedTo(value, width), /*dropout_p=*/0.0,
        call.causal(), /*return_debug_mask=*/false, scale);
    return std::tuple(InLengthMajor(std::get<0>(results).narrow(3, 0, value.size(3))),
                      std::get<1>(results));
  }
  const std::optional<Stretches> stretches = StretchesOf(documents);
  if (!stretches) return std::nullopt;
  auto results = at::_flash_attention_forward(
      Packed(query, width), Packed(key, width), Packed(value, width), stretches->starts,
      stretches->starts, stretches->longest, stretches->longest, /*dropout_p=*/0.0, call.causal(),
      /*return_debug_mask=*/false, scale);
  // The sums are [heads, rows].
  const Tensor sums = std::get<1>(results)
                          .view({query.size(1), query.size(0), query.size(2)})
                          .transpose(0, 1)
                          .contiguous();
  return std::tuple(InLengthMajor(Unpacked(std::get<0>(results), query, value.size(3))), sums);
}

std::optional<std::tuple<Tensor, Tensor, Tensor>> FlashBackward(const FlashCall& call,
                                                                const Tensor& grad_out,
                                                                const Tensor& out,
                                                                const Tensor& logsumexp) {
  const auto& [query, key, value, documents, kind, scale] = call;
  const int64_t width = call.width();
  // The state of a random generator, which nothing is drawn from.
  const Tensor seed = at::zeros({2}, query.options().dtype(at::kUInt64));
  const Tensor unused = at::zeros({}, query.options().dtype(at::kUInt64));
  const auto cut = [](const Tensor& gradient, const Tensor& like) {
    return InLengthMajor(gradient.narrow(3, 0, like.size(3)));
  };
  if (!call.has_documents()) {
    auto [q, k, v] = at::_scaled_dot_product_flash_attention_backward(
        PaddedTo(grad_out, width), PaddedTo(query, width), PaddedTo(key, width),
        PaddedTo(value, width), PaddedTo(out, width), logsumexp, {}, {}, query.size(2), key.size(2),
        /*dropout_p=*/0.0, call.causal(), seed, unused, scale);
    return std::tuple(cut(q, query), cut(k, key), cut(v, value));
  }
  const std::optional<Stretches> stretches = StretchesOf(documents);
  if (!stretches) return std::nullopt;
  const Tensor sums = logsumexp.transpose(0, 1).reshape({query.size(1), -1});
  auto [q, k, v] = at::_flash_attention_backward(
      Packed(grad_out, width), Packed(query, width), Packed(key, width), Packed(value, width),
      Packed(out, width), sums, stretches->starts, stretches->starts, stretches->longest,
      stretches->longest, /*dropout_p=*/0.0, call.causal(), seed, unused, scale);
  return std::tuple(InLengthMajor(Unpacked(q, query, query.size(3))),
                    InLengthMajor(Unpacked(k, key, key.size(3))),
                    InLengthMajor(Unpacked(v, value, value.size(3))));
}

// Before a kind of call first takes the flash kernel on a device, both ways compute a small one of random
// numbers, forward and backward, and must agree.
class FlashAdmission {
 public:
  static bool Admits(const FlashCall& call, const GraphHandle& score, const GraphHandle& mask,
                     size_t captures) {
    static auto* admission = new FlashAdmission();
    const auto key =
        std::tuple(call.query.device().index(), call.kind, call.query.scalar_type(),
                   call.query.size(3), call.value.size(3), call.query.size(1) / call.key.size(1));
    const std::lock_guard lock(admission->mutex_);
    auto [verdict, fresh] = admission->verdicts_.try_emplace(key, false);
    if (!fresh) return verdict->second;
    try {
      verdict->second = Agree(call, score, mask, captures);
    } catch (const c10::Error& error) {
      log::Warn("FlexAttention keeps to blocks: the flash kernel fails: {}",
                Split(error.what_without_backtrace(), '\n').front());
    }
    if (!verdict->second)
      log::Warn("FlexAttention keeps to blocks: the flash kernel gives other results");
    return verdict->second;
  }

 private:
  static bool Agree(const FlashCall& like, const GraphHandle& score, const GraphHandle& mask,
                    size_t captures) {
    constexpr int64_t kBatch = 2, kShared = 2, kLength = 96;
    const int64_t heads = kShared * (like.query.size(1) / like.key.size(1));
    // Of its own: what the job draws must not depend on what is compared here.
    at::Generator random = at::globalContext().defaultGenerator(like.query.device()).clone();
    random.set_current_seed(1);
    const auto draw = [&](int64_t count, int64_t width) {
      return at::randn({kBatch, kLength, count, width}, random, like.query.options())
          .transpose(1, 2);
    };
    FlashCall call = like;
    call.query = draw(heads, like.query.size(3));
    call.key = draw(kShared, like.query.size(3));
    call.value = draw(kShared, like.value.size(3));
    const Tensor numbers = at::cumsum(
        at::eq(at::randint(20, {kBatch, kLength}, random, like.query.options().dtype(at::kInt)), 0),
        1, at::kInt);
    if (like.has_documents()) call.documents = numbers;
    const std::vector<Tensor> given(captures, numbers);
    const bool grouped = heads != kShared;
    auto [out, sums] =
        BlockedForward(call.query, call.key, call.value, given, score, mask, call.scale, grouped);
    auto flash = FlashForward(call);
    const Tensor grad = draw(heads, like.value.size(3));
    auto [q, k, v] = BlockedBackward(grad, call.query, call.key, call.value, out, sums, given,
                                     score, score, mask, call.scale, grouped);
    if (!flash || !Near(std::get<0>(*flash), out) || !Near(std::get<1>(*flash), sums)) return false;
    auto gradients = FlashBackward(call, grad, std::get<0>(*flash), std::get<1>(*flash));
    return gradients && Near(std::get<0>(*gradients), q) && Near(std::get<1>(*gradients), k) &&
           Near(std::get<2>(*gradients), v);
  }

  static bool Near(const Tensor& a, const Tensor& b) {
    if (a.sizes() != b.sizes() || a.strides() != b.strides()) return false;
    const Tensor left = a.to(at::kFloat), right = b.to(at::kFloat);
    const double most = right.abs().max().item<double>();
    return (left - right).abs().max().item<double>() <= 0.03 * most;
  }

  std::mutex mutex_;
  std::map<std::tuple<c10::DeviceIndex, MaskKind, at::ScalarType, int64_t, int64_t, int64_t>, bool>
      verdicts_;
};

// Nothing if the call stays with blocks. Follows from the arguments alone, so that forward and backward, eager
// and captured runs take the same kernels.
std::optional<FlashCall> FlashCallFor(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const std::vector<Tensor>& captures, const GraphHandle& score,
                                      const GraphHandle& mask, double scale) {
  const bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  if (!query.is_cuda() || !half || query.numel() == 0 || query.size(2) != key.size(2)) {
    return std::nullopt;
  }
  if (!score->function.is_identity()) return std::nullopt;
  const MaskMeaning meaning = MeaningOf(mask == nullptr ? nullptr : mask->graph.get());
  if (meaning.kind == MaskKind::kOther) return std::nullopt;
  FlashCall call{query, key, value, {}, meaning.kind, scale};
  constexpr int64_t kWidest = 256;
  if (call.width() > kWidest) return std::nullopt;
  if (meaning.documents >= 0) {
    call.documents = captures[static_cast<size_t>(meaning.documents)];
    if (call.documents.size(0) != query.size(0) || call.documents.size(1) != query.size(2)) {
      return std::nullopt;
    }
  }
  // The small call gives every captured tensor the same type.
  for (const Tensor& capture : captures) {
    if (capture.dim() != 2 || capture.scalar_type() != at::kInt) return std::nullopt;
  }
  if (!FlashAdmission::Admits(call, score, mask, captures.size())) return std::nullopt;
  return call;
}

std::tuple<Tensor, Tensor> FlexForward(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const std::vector<Tensor>& captures,
                                       const GraphHandle& score_mod,
                                       const std::optional<GraphHandle>& mask_mod, double scale,
                                       bool enable_gqa) {
  const GraphHandle mask = mask_mod.value_or(GraphHandle());
  if (auto call = FlashCallFor(query, key, value, captures, score_mod, mask, scale)) {
    if (auto results = FlashForward(*call)) return *results;
  }
  return BlockedForward(query, key, value, captures, score_mod, mask_mod, scale, enable_gqa);
}

std::tuple<Tensor, Tensor, Tensor> FlexBackward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& logsumexp, const std::vector<Tensor>& captures,
    const GraphHandle& score_mod, const GraphHandle& score_mod_backward,
    const std::optional<GraphHandle>& mask_mod, double scale, bool enable_gqa) {
  const GraphHandle mask = mask_mod.value_or(GraphHandle());
  if (auto call = FlashCallFor(query, key, value, captures, score_mod, mask, scale)) {
    if (auto results = FlashBackward(*call, grad_out, out, logsumexp)) return *results;
  }
  return BlockedBackward(grad_out, query, key, value, out, logsumexp, captures, score_mod,
                         score_mod_backward, mask_mod, scale, enable_gqa);
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
