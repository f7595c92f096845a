// Operators on rows (kernels/row_operators.h) and the router (kernels/router.h) beside libtorch's operators that do the same, on a GPU, at the sizes of
// the models in bench/peers: microseconds a call, and the share of 4.8 TB/s that reading and writing each tensor
// once would need.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "gt/kernels/expert_order.h"
#include "gt/kernels/router.h"
#include "gt/kernels/row_operators.h"
#include "gt/torch_bridge/device.h"

namespace {

using at::Tensor;

const c10::Device kGpu(c10::kCUDA, 0);

double Microseconds(const std::function<void()>& body) {
  constexpr int kRuns = 20;
  const c10::impl::VirtualGuardImpl guard(kGpu.type());
  c10::Event start(kGpu.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event stop(kGpu.type(), c10::EventFlag::BACKEND_DEFAULT);
  for (int i = 0; i < 3; ++i) body();
  start.record(guard.getStream(kGpu));
  for (int i = 0; i < kRuns; ++i) body();
  stop.record(guard.getStream(kGpu));
  stop.synchronize();
  return 1e3 * start.elapsedTime(stop) / kRuns;
}

void Compare(const std::string& name, double megabytes, const std::function<void()>& ours,
             const std::function<void()>& libtorchs) {
  const double mine = Microseconds(ours), other = Microseconds(libtorchs);
  fmt::print("{:<52} {:8.1f} us  libtorch {:8.1f} us  {:5.2f}x  {:3.0f} %\n", name, mine, other,
             other / mine, 100 * megabytes / 4.8 / mine);
  std::fflush(stdout);
}

Tensor Random(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions(kGpu).dtype(at::kBFloat16));
}

template <typename... Args>
void Call(const char* op, Args&&... args) {
  torch::jit::Stack stack = {std::forward<Args>(args)...};
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(&stack);
}

void Norms(int64_t rows, int64_t width, int64_t row_stride) {
  const Tensor x = Random({rows, row_stride}).narrow(1, 0, width), weight = Random({width});
  const Tensor grad = Random({rows, width}), other = Random({rows, width});
  auto [out, rstd] = gt::RowRmsNorm(x, weight, 1e-6);
  const double megabytes = 2e-6 * static_cast<double>(rows * width);
  const std::string size = fmt::format("{} x {}", rows, width);
  const Tensor& root = rstd;
  auto libtorchs = [&] { at::_fused_rms_norm(x, {width}, weight, 1e-6); };
  auto libtorchs_backward = [&] {
    return std::get<0>(at::_fused_rms_norm_backward(grad, x, {width}, root, weight, {true, true}));
  };
  Compare(
      "rms_norm " + size, 2 * megabytes, [&] { gt::RowRmsNorm(x, weight, 1e-6); }, libtorchs);
  Compare(
      "add_rms_norm " + size, 4 * megabytes,
      [&] { Call("gt::add_rms_norm", x, other, weight, 1e-6); },
      [&] { at::_fused_rms_norm(at::add(x, other), {width}, weight, 1e-6); });
  Compare(
      "rms_norm_backward " + size, 3 * megabytes,
      [&] { gt::RowRmsNormBackward(grad, x, root, weight); }, libtorchs_backward);
  Compare(
      "rms_norm_backward, added, " + size, 4 * megabytes,
      [&] { Call("gt::rms_norm_backward", grad, x, root, weight, other); },
      [&] { at::add(libtorchs_backward(), other); });
}

// As a model is written without an operator of our own.
std::tuple<Tensor, Tensor> RoutedByLibtorch(const Tensor& logits, const Tensor& bias,
                                            const gt::RouterOptions& options) {
  const Tensor scores = options.sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
  Tensor choice = bias.defined() ? scores + bias : scores;
  if (options.groups > 1) {
    const Tensor grouped = choice.view({choice.size(0), options.groups, -1});
    const Tensor best = std::get<0>(at::topk(grouped, 2, -1)).sum(-1);
    const Tensor kept = std::get<1>(at::topk(best, options.kept_groups, -1, true, false));
    const Tensor allowed = at::scatter(at::zeros_like(best, at::kBool), 1, kept, true);
    choice =
        grouped.masked_fill(allowed.logical_not().unsqueeze(-1), -INFINITY).view(choice.sizes());
  }
  const Tensor experts = std::get<1>(at::topk(choice, options.top_k, -1, true, false));
  Tensor weights = scores.gather(1, experts);
  if (options.normalize) weights = weights / (weights.sum(-1, true) + 1e-20);
  if (options.scale != 1.0) weights = weights * options.scale;
  return {weights, experts};
}

// As autograd does, which keeps scores, weights and their sum.
struct Kept {
  Tensor scores, weights, sum;
};
Tensor GradientByLibtorch(const Tensor& grad, const Kept& kept, const Tensor& experts,
                          const gt::RouterOptions& options) {
  Tensor slope = options.scale == 1.0 ? grad : grad * options.scale;
  if (options.normalize) {
    const Tensor of_sum = (-slope * (kept.weights / kept.sum / kept.sum)).sum(-1, true);
    slope = slope / kept.sum + of_sum.expand(slope.sizes());
  }
  const Tensor slopes = at::zeros_like(kept.scores).scatter_add_(1, experts, slope);
  return options.sigmoid ? at::sigmoid_backward(slopes, kept.scores)
                         : at::_softmax_backward_data(slopes, kept.scores, 1, at::kFloat);
}

void Routers(const std::string& model, int64_t experts, bool biased,
             const gt::RouterOptions& options) {
  const int64_t tokens = 8192;
  const auto on_gpu = at::TensorOptions(kGpu).dtype(at::kFloat);
  const Tensor logits = at::randn({tokens, experts}, on_gpu);
  const Tensor bias = biased ? 0.1 * at::randn({experts}, on_gpu) : Tensor();
  const auto given = biased ? std::optional(bias) : std::nullopt;
  const Tensor chosen = std::get<1>(gt::Route(logits, given, options));
  const Tensor grad = at::randn(chosen.sizes(), on_gpu);
  Kept kept;
  kept.scores = options.sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
  kept.weights = kept.scores.gather(1, chosen);
  kept.sum = kept.weights.sum(-1, true);
  const std::string size = fmt::format("{}, {} x {}, {}", model, tokens, experts, options.top_k);
  const double rows = 4e-6 * static_cast<double>(logits.numel());
  const double choices = 12e-6 * static_cast<double>(chosen.numel());
  Compare(
      "router " + size, rows + choices, [&] { gt::Route(logits, given, options); },
      [&] { RoutedByLibtorch(logits, bias, options); });
  Compare(
      "router_backward " + size, 2 * rows + choices,
      [&] { gt::RouteBackward(grad, logits, chosen, options); },
      [&] { GradientByLibtorch(grad, kept, chosen, options); });
  // Numbers are read twice; the rest is written once.
  Compare(
      "expert_order " + size, 4 * 8e-6 * static_cast<double>(chosen.numel()),
      [&] { gt::ExpertOrder(chosen, experts); },
      [&] {
        const Tensor order = std::get<1>(at::sort(chosen.view({-1}), /*stable=*/true, 0, false));
        const Tensor positions = at::arange(order.numel(), order.options());
        at::scatter(at::zeros_like(order), 0, order, positions);
        at::scatter(at::zeros_like(logits, at::kBool), 1, chosen, true).sum(0);
      });
}

}  // namespace

int main() {
  if (!gt::CudaUsable()) {
    fmt::print("there is no GPU\n");
    return 0;
  }
  const at::NoGradGuard no_gradients;
  Norms(8192, 4096, 4096);
  Norms(8192, 2048, 2048);
  Norms(8192, 512, 576);

  Routers("deepseek_v3 16B", 64, false, {.top_k = 6});
  Routers("deepseek_v3 671B", 256, true,
          {.top_k = 8,
           .sigmoid = true,
           .groups = 8,
           .kept_groups = 4,
           .normalize = true,
           .scale = 2.5});
  Routers("qwen3 30B-A3B", 128, false, {.top_k = 8, .normalize = true});

  const int64_t tokens = 8192, k = 6, width = 2048;
  const Tensor rows = Random({tokens * k, width}), gradient = Random({tokens, 1, width});
  const Tensor index = at::randperm(tokens * k, at::TensorOptions(kGpu).dtype(at::kLong));
  const Tensor slots = rows.index_select(0, index).view({tokens, k, width});
  const double megabytes = 2e-6 * static_cast<double>(tokens * (k + 1) * width);
  auto product = [&] { return (slots * gradient.to(at::kFloat)).sum(2); };
  Compare(
      "row_dots 8192 x 6 x 2048", megabytes, [&] { gt::RowDots(slots, gradient); }, product);
  Compare(
      "row_dots_at 8192 x 6 x 2048", megabytes,
      [&] {
        Call("gt::row_dots_at", rows, index.view({tokens, k}), gradient);
      },
      [&] { rows.index_select(0, index), product(); });

  for (int64_t classes : {32000, 128256}) {
    const int64_t part = 2048;
    const Tensor logits = Random({part, classes});
    const Tensor labels = at::randint(classes, {part}, at::TensorOptions(kGpu).dtype(at::kLong));
    const Tensor log_sum = gt::RowLogSumExp(logits), ones = at::ones_like(log_sum);
    const double size = 2e-6 * static_cast<double>(part * classes);
    Compare(
        fmt::format("log_sum_exp {} x {} (log_softmax)", part, classes), size,
        [&] { gt::RowLogSumExp(logits); }, [&] { at::log_softmax(logits, 1, at::kFloat); });
    const Tensor scores = at::log_softmax(logits, 1, at::kFloat);
    Compare(
        fmt::format("cross_entropy_backward {} x {}", part, classes), 2 * size,
        [&] { gt::CrossEntropyBackward(ones, ones, logits, labels, log_sum, -100); },
        [&] { at::_log_softmax_backward_data(scores, scores, 1, at::kFloat).to(at::kBFloat16); });
  }
  return 0;
}
