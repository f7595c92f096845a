#include "gt/nn/blocks.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gt/kernels/row_operators.h"
#include "gt/torch_bridge/generator.h"

namespace gt::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// One operator forward and one backward, on every device that has kernels for them.
class FusedRmsNorm : public torch::autograd::Function<FusedRmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [out, rstd] = RowRmsNorm(x, weight, epsilon);
    ctx->save_for_backward({x, weight, rstd});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    tensor_list saved = ctx->get_saved_variables();
    auto [x, weight] = RowRmsNormBackward(gradients[0], saved[0], saved[2], saved[1]);
    return {x, weight, {}};
  }
};

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, Init init) {
  AddParameter("weight", weight_, {out_features, in_features}, init);
}

at::Tensor Linear::forward(const at::Tensor& x) { return at::linear(x, weight_()); }

Embedding::Embedding(int64_t count, int64_t width, Init init) {
  set_role(ModuleRole::kEmbedding);
  AddParameter("weight", weight_, {count, width}, init);
}

at::Tensor Embedding::forward(const at::Tensor& indices) {
  if (!kept_) return at::embedding(weight_(), indices);
  at::Tensor local = indices - kept_->first;
  at::Tensor elsewhere = at::logical_or(at::lt(local, 0), at::ge(local, kept_->count));
  at::Tensor found = at::embedding(weight_(), local.masked_fill(elsewhere, 0));
  return found.masked_fill(elsewhere.unsqueeze(-1), 0.0);
}

Dropout::Dropout(double share) : share_(share) {}

at::Tensor Dropout::forward(const at::Tensor& x) {
  if (!is_training() || share_ == 0) return x;
  // One byte for each element, where a draw in x's type would take two or four.
  at::Tensor kept =
      at::empty_like(x, x.options().dtype(at::kBool)).bernoulli_(1 - share_, CurrentGenerator());
  return x * kept * (1 / (1 - share_));
}

RmsNorm::RmsNorm(int64_t width, double epsilon) : epsilon_(epsilon) {
  set_role(ModuleRole::kNorm);
  AddParameter("weight", weight_, {width}, Init::Ones());
}

at::Tensor RmsNorm::forward(const at::Tensor& x) {
  at::Tensor weight = weight_();
  if (x.is_cuda() && x.scalar_type() == weight.scalar_type()) {
    return FusedRmsNorm::apply(x, weight, epsilon_);
  }
  at::Tensor wide = x.to(at::kFloat);
  at::Tensor scale = at::rsqrt(at::mean(wide.pow(2), {-1}, /*keepdim=*/true) + epsilon_);
  return (wide * scale).to(x.scalar_type()) * weight;
}

SwiGlu::SwiGlu(int64_t width, int64_t hidden, Init in, Init out)
    : w1_(AddChild<Linear>("w1", width, hidden, in)),
      w2_(AddChild<Linear>("w2", hidden, width, out)),
      w3_(AddChild<Linear>("w3", width, hidden, out)) {
  set_role(ModuleRole::kFeedForward);
}

at::Tensor SwiGlu::forward(const at::Tensor& x) { return w2_(at::silu(w1_(x)) * w3_(x)); }

}  // namespace gt::nn
