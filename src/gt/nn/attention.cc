#include "gt/nn/attention.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>

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

}  // namespace

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

}  // namespace gt::nn
