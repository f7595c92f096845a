#include "gt/nn/attention.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <limits>

#include "gt/base/error.h"

namespace gt::nn {
namespace {

// Kernels see [batch, heads, length, width] from here on. Heads and widths are plain numbers, also
// where other extents are symbols.
int64_t Heads(const at::Tensor& x) { return x.sym_size(1).guard_int(__FILE__, __LINE__); }
int64_t Width(const at::Tensor& x) { return x.sym_size(3).guard_int(__FILE__, __LINE__); }

at::Tensor PadWidth(const at::Tensor& x, int64_t width) {
  int64_t missing = width - Width(x);
  return missing == 0 ? x : at::constant_pad_nd(x, {0, missing});
}

// Each key head repeated for the query heads that read it, for kernels that cannot share.
at::Tensor ForEveryHead(const at::Tensor& shared, int64_t heads) {
  int64_t group = heads / Heads(shared);
  if (group == 1) return shared;
  auto sizes = shared.sym_sizes();
  return shared.unsqueeze(2)
      .expand_symint({sizes[0], sizes[1], group, sizes[2], sizes[3]})
      .reshape_symint({sizes[0], heads, sizes[2], sizes[3]});
}

// libtorch's flash kernel for the CPU wants one width and equally many heads. Channels of zeros
// change neither scores nor the values that are kept.
at::Tensor OnCpu(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                 double scale) {
  int64_t heads = Heads(query), width = std::max(Width(query), Width(value));
  at::Tensor out = at::scaled_dot_product_attention(
      PadWidth(query, width), PadWidth(ForEveryHead(key, heads), width),
      PadWidth(ForEveryHead(value, heads), width), /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true, scale);
  return out.narrow(3, 0, Width(value));
}

// Kernels are chosen here and not by libtorch, so that a step for a GPU can be captured on a machine
// that has none. cuDNN's is the fastest for half-precision numbers, but its backward is not
// deterministic.
at::Tensor OnGpu(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                 double scale) {
  bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  int64_t query_width = Width(query), value_width = Width(value);
  bool aligned = query_width % 8 == 0 && value_width % 8 == 0;
  bool deterministic = at::globalContext().deterministicAlgorithms();
  bool cudnn_width =
      (query_width <= 128 && value_width <= 128) || (query_width == 192 && value_width == 128);
  if (half && aligned && cudnn_width && !deterministic) {
    return std::get<0>(at::_scaled_dot_product_cudnn_attention(
        query, key, value, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0.0,
        /*is_causal=*/true, /*return_debug_mask=*/false, scale));
  }
  int64_t width = std::max(query_width, value_width);
  if (half && width <= 256) {
    width = (width + 7) / 8 * 8;
    at::Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention(
        PadWidth(query, width), PadWidth(key, width), PadWidth(value, width), /*dropout_p=*/0.0,
        /*is_causal=*/true, /*return_debug_mask=*/false, scale));
    return out.narrow(3, 0, value_width);
  }
  int64_t heads = Heads(query);
  return std::get<0>(at::_scaled_dot_product_efficient_attention(
      query, ForEveryHead(key, heads), ForEveryHead(value, heads), /*attn_bias=*/{},
      /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, /*is_causal=*/true, scale));
}

// Queries that are the last of the keys' positions: query i sees all keys but those after
// position keys - queries + i. [batch, heads, length, width]
at::Tensor LastQueries(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       double scale) {
  c10::SymInt queries = query.sym_size(2), keys = key.sym_size(2);
  auto positions = query.options().dtype(at::kLong);
  at::Tensor row = at::arange(keys - queries, keys, positions).unsqueeze(1);
  at::Tensor hidden = at::gt(at::arange(keys, positions).unsqueeze(0), row);
  at::Tensor mask = at::zeros_symint({queries, keys}, query.options())
                        .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  int64_t heads = Heads(query), width = std::max(Width(query), Width(value));
  at::Tensor k = ForEveryHead(key, heads), v = ForEveryHead(value, heads);
  if (query.is_cuda()) {
    at::Tensor bias = mask.expand_symint({query.sym_size(0), query.sym_size(1), queries, keys});
    // The kernel loads eight half-precision numbers at a time and does not look where they begin.
    auto even = [](const at::Tensor& x) { return PadWidth(x, (Width(x) + 7) / 8 * 8); };
    at::Tensor out = std::get<0>(at::_scaled_dot_product_efficient_attention(
        even(query), even(k), even(v), bias, /*compute_log_sumexp=*/true,
        /*dropout_p=*/0.0, /*is_causal=*/false, scale));
    return Width(v) % 8 == 0 ? out : out.narrow(3, 0, Width(v));
  }
  at::Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      PadWidth(query, width), PadWidth(k, width), PadWidth(v, width), /*dropout_p=*/0.0,
      /*is_causal=*/false, mask, scale));
  return out.narrow(3, 0, Width(value));
}

// cuDNN plans for the sizes that it meets, and each token brings a new number of keys: on an H200 most of
// a token's time went there.
class WithoutCudnn {
 public:
  WithoutCudnn() { at::globalContext().setSDPUseCuDNN(false); }
  ~WithoutCudnn() { at::globalContext().setSDPUseCuDNN(before_); }
  WithoutCudnn(const WithoutCudnn&) = delete;
  WithoutCudnn& operator=(const WithoutCudnn&) = delete;

 private:
  bool before_ = at::globalContext().userEnabledCuDNNSDP();
};

// Stretches gathered in the order of ranks, brought into that of the sequence.
at::Tensor InSequence(const at::Tensor& gathered, int64_t parts) {
  c10::SymInt stretch = gathered.sym_size(1) / (2 * parts);
  std::vector<at::Tensor> ordered;
  for (int64_t i = 0; i < 2 * parts; ++i) {
    int64_t place = i < parts ? 2 * i : 2 * (2 * parts - 1 - i) + 1;
    ordered.push_back(gathered.narrow_symint(1, stretch * place, stretch));
  }
  return at::cat(ordered, 1);
}

}  // namespace

void DotProductAttention::ShardSequence(SequenceSharding spread) {
  if (flex_) {
    Fail(ErrorCode::kUnsupportedParallelism,
         "--parallelism.context_parallel_degree {} needs --model.attn sdpa: FlexAttention's "
         "functions of positions do not know yet that sequences are spread over ranks",
         spread.parts);
  }
  spread_ = std::move(spread);
}

at::Tensor DotProductAttention::OverRanks(const at::Tensor& query, const at::Tensor& key,
                                          const at::Tensor& value) {
  at::Tensor k = InSequence(spread_->gather(key), spread_->parts).transpose(1, 2);
  at::Tensor v = InSequence(spread_->gather(value), spread_->parts).transpose(1, 2);
  c10::SymInt stretch = query.sym_size(1) / 2;
  std::vector<at::Tensor> out;
  for (int64_t half = 0; half < 2; ++half) {
    int64_t number = half == 0 ? spread_->index : 2 * spread_->parts - 1 - spread_->index;
    c10::SymInt seen = stretch * (number + 1);
    out.push_back(LastQueries(query.narrow_symint(1, stretch * half, stretch).transpose(1, 2),
                              k.narrow_symint(2, 0, seen), v.narrow_symint(2, 0, seen), scale_)
                      .transpose(1, 2));
  }
  return at::cat(out, 1);
}

DotProductAttention::DotProductAttention(const AttentionConfig& config, double scale)
    : config_(config), scale_(scale) {
  if (config.backend == AttentionBackend::kSdpa) {
    if (config.mask == AttentionMask::kBlockCausal) {
      Fail(ErrorCode::kConflictingOptions,
           "--model.attn_mask_type block_causal needs --model.attn flex: libtorch's fused kernels "
           "know no documents");
    }
    return;
  }
  flex_.emplace(config.mask == AttentionMask::kBlockCausal ? DocumentFunctions()
                                                           : CausalFunctions());
}

at::Tensor DotProductAttention::forward(const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value, const AttentionInputs& inputs) {
  if (spread_) return OverRanks(query, key, value);
  if (inputs.cache != nullptr) {
    at::Tensor keys = inputs.cache->Extend(*this, "key", key);
    at::Tensor values = inputs.cache->Extend(*this, "value", value);
    if (!inputs.cache->first_pass()) return OverSlots(query, keys, values, *inputs.cache);
  }
  at::Tensor q = query.transpose(1, 2), k = key.transpose(1, 2), v = value.transpose(1, 2);
  at::Tensor out;
  if (flex_) {
    std::vector<at::Tensor> captures;
    if (config_.mask == AttentionMask::kBlockCausal) captures.push_back(inputs.documents);
    out = (*flex_)(q, k, v, scale_, captures);
  } else {
    out = query.is_cuda() ? OnGpu(q, k, v, scale_) : OnCpu(q, k, v, scale_);
  }
  return out.transpose(1, 2);
}

at::Tensor DotProductAttention::OverSlots(const at::Tensor& query, const at::Tensor& keys,
                                          const at::Tensor& values,
                                          const KeyValueCache& cache) const {
  int64_t batch = query.size(0), length = query.size(1), heads = query.size(2);
  int64_t kv_heads = keys.size(1), group = heads / kv_heads;
  // Query heads that share a key head become more queries of that head, so that nothing of what is
  // kept has to be copied for them: [batch, kv heads, length * group, width].
  at::Tensor q = query.reshape({batch, length, kv_heads, group, query.size(3)})
                     .transpose(1, 2)
                     .reshape({batch, kv_heads, length * group, query.size(3)});
  std::optional<at::Tensor> mask;
  if (cache.visible().defined()) {
    mask = cache.visible()
               .unsqueeze(3)
               .expand({batch, 1, length, group, keys.size(2)})
               .reshape({batch, 1, length * group, keys.size(2)});
  }
  // Nothing here is captured, so libtorch may choose the kernel.
  WithoutCudnn any_other;
  at::Tensor out = at::scaled_dot_product_attention(q, keys, values, mask, /*dropout_p=*/0.0,
                                                    /*is_causal=*/false, scale_);
  return out.reshape({batch, kv_heads, length, group, values.size(3)})
      .transpose(1, 2)
      .reshape({batch, length, heads, values.size(3)});
}

}  // namespace gt::nn
