// Operators on rows (exec/row_operators.h) beside libtorch's operators that do the same, on a GPU, at the sizes of
// the models in bench/peers: microseconds a call, and the share of 4.8 TB/s that reading and writing each tensor
// once would need.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "gt/exec/row_operators.h"
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
  fmt::print("{:<44} {:8.1f} us  libtorch {:8.1f} us  {:5.2f}x  {:3.0f} %\n", name, mine, other,
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
