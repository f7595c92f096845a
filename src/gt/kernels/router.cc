#include "gt/kernels/router.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "gt/fusion/router_kernels.h"
#include "gt/kernels/kernel_table.h"

namespace gt {
namespace {

using at::Tensor;
using fusion::RouterForm;

// By parts.

Tensor ScoresOf(const Tensor& logits, bool sigmoid) {
  return sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
}

// The largest of each row in a total order: of equal ones the first.
Tensor BestOfRows(const Tensor& x, int64_t count) {
  const Tensor order = std::get<1>(at::sort(x, /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  return order.narrow(-1, 0, count).contiguous();
}

Tensor OnlyBestGroups(const Tensor& choice, int64_t groups, int64_t kept) {
  const int64_t size = choice.size(1) / groups;
  const Tensor grouped = choice.view({choice.size(0), groups, size});
  const Tensor best = std::get<0>(at::topk(grouped, std::min<int64_t>(2, size), -1)).sum(-1);
  const Tensor allowed =
      at::scatter(at::zeros_like(best, at::kBool), 1, BestOfRows(best, kept), true);
  return grouped
      .masked_fill(allowed.logical_not().unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .view(choice.sizes());
}

std::tuple<Tensor, Tensor> RouteByParts(const Tensor& logits, const std::optional<Tensor>& bias,
                                        const RouterOptions& options) {
  const Tensor scores = ScoresOf(logits, options.sigmoid).contiguous();
  Tensor choice = bias ? scores + *bias : scores;
  if (options.groups > 1) choice = OnlyBestGroups(choice, options.groups, options.kept_groups);
  const Tensor experts = BestOfRows(choice, options.top_k);
  Tensor weights = scores.gather(1, experts);
  if (options.normalize) {
    weights = weights / (weights.sum(-1, /*keepdim=*/true) + fusion::kRouterEpsilon);
  }
  if (options.scale != 1.0) weights = weights * options.scale;
  return {RowMajor(weights), RowMajor(experts)};
}

Tensor RouteBackwardByParts(const Tensor& grad, const Tensor& logits, const Tensor& experts,
                            const RouterOptions& options) {
  const Tensor scores = ScoresOf(logits, options.sigmoid).contiguous();
  Tensor slope = options.scale == 1.0 ? grad : grad * options.scale;
  if (options.normalize) {
    const Tensor chosen = scores.gather(1, experts);
    const Tensor sum = chosen.sum(-1, /*keepdim=*/true) + fusion::kRouterEpsilon;
    slope = (slope - (slope * (chosen / sum)).sum(-1, /*keepdim=*/true)) / sum;
  }
  const Tensor slopes = at::scatter_add(at::zeros_like(scores), 1, experts, slope);
  return RowMajor(options.sigmoid
                      ? at::sigmoid_backward(slopes, scores)
                      : at::_softmax_backward_data(slopes, scores, 1, scores.scalar_type()));
}

// By kernels.

// Null where there is none for it.
DeviceFunction* RouterKernel(const RouterForm& form, bool backward, const Tensor& logits,
                             int64_t top_k, int64_t groups) {
  const bool fits = logits.is_cuda() && logits.scalar_type() == at::kFloat && logits.numel() > 0 &&
                    logits.size(1) <= fusion::kMostRoutedExperts && top_k > 0 &&
                    top_k <= fusion::kMostRouterChoices && groups <= fusion::kMostRouterChoices;
  if (!fits) return nullptr;
  static auto* kernels = new KernelTable<std::pair<bool, decltype(form.Key())>>();
  return kernels->Find({backward, form.Key()}, logits.device(), [&] {
    return backward ? fusion::RouterBackwardSource(form) : fusion::RouterSource(form);
  });
}

RouterForm FormOf(const Tensor& logits, const RouterOptions& options) {
  return {.sigmoid = options.sigmoid,
          .normalized = options.normalize,
          .vectors = static_cast<int>((logits.size(1) + 31) / 32)};
}

int64_t RouterBlocks(const Tensor& logits) {
  constexpr int64_t kEach = fusion::kRouterThreads / 32;
  return (logits.size(0) + kEach - 1) / kEach;
}

std::tuple<Tensor, Tensor> RouteRows(const Tensor& logits, const std::optional<Tensor>& bias,
                                     int64_t top_k, bool sigmoid, int64_t groups,
                                     int64_t kept_groups, bool normalize, double scale) {
  const RouterOptions options = {top_k, sigmoid, groups, kept_groups, normalize, scale};
  RouterForm form = FormOf(logits, options);
  form.biased = bias.has_value();
  form.grouped = groups > 1;
  DeviceFunction* kernel = RouterKernel(form, /*backward=*/false, logits, top_k, groups);
  if (kernel == nullptr) return RouteByParts(logits, bias, options);
  const Rows rows = RowsOf(logits);
  const Tensor correction = bias ? bias->to(at::kFloat).contiguous() : Tensor();
  const int64_t tokens = logits.size(0);
  Tensor weights = at::empty({tokens, top_k}, logits.options());
  Tensor experts = at::empty({tokens, top_k}, logits.options().dtype(at::kLong));
  LaunchKernel(*kernel, RouterBlocks(logits), fusion::kRouterThreads, logits.device(),
               InPointer(rows.tensor), bias ? InPointer(correction) : nullptr, OutPointer(weights),
               OutPointer(experts), static_cast<long long>(tokens),
               static_cast<long long>(rows.stride), static_cast<int>(logits.size(1)),
               static_cast<int>(top_k), static_cast<int>(groups), static_cast<int>(kept_groups),
               static_cast<float>(scale));
  return {weights, experts};
}

Tensor RouteRowsBackward(const Tensor& grad, const Tensor& logits, const Tensor& experts,
                         bool sigmoid, bool normalize, double scale) {
  const RouterOptions options = {
      .top_k = experts.size(1), .sigmoid = sigmoid, .normalize = normalize, .scale = scale};
  DeviceFunction* kernel =
      RouterKernel(FormOf(logits, options), /*backward=*/true, logits, options.top_k, /*groups=*/1);
  if (kernel == nullptr) return RouteBackwardByParts(grad, logits, experts, options);
  const Rows rows = RowsOf(logits);
  const Tensor slope = grad.contiguous(), chosen = experts.contiguous();
  Tensor result = at::empty(logits.sizes(), logits.options());
  LaunchKernel(*kernel, RouterBlocks(logits), fusion::kRouterThreads, logits.device(),
               InPointer(slope), InPointer(rows.tensor), InPointer(chosen), OutPointer(result),
               static_cast<long long>(logits.size(0)), static_cast<long long>(rows.stride),
               static_cast<int>(logits.size(1)), static_cast<int>(options.top_k),
               static_cast<float>(scale));
  return result;
}

template <typename Function>
auto FindTyped(const char* name, Function* /*like*/) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace

std::tuple<Tensor, Tensor> Route(const Tensor& logits, const std::optional<Tensor>& bias,
                                 const RouterOptions& options) {
  static const auto op = FindTyped("gt::router", RouteRows);
  return op.call(logits, bias, options.top_k, options.sigmoid, options.groups, options.kept_groups,
                 options.normalize, options.scale);
}

Tensor RouteBackward(const Tensor& grad, const Tensor& logits, const Tensor& experts,
                     const RouterOptions& options) {
  static const auto op = FindTyped("gt::router_backward", RouteRowsBackward);
  return op.call(grad, logits, experts, options.sigmoid, options.normalize, options.scale);
}

TORCH_LIBRARY_FRAGMENT(gt, library) {
  library.def(
      "router(Tensor logits, Tensor? bias, int top_k, bool sigmoid, int groups, int kept_groups, "
      "bool normalize, float scale) -> (Tensor weights, Tensor experts)");
  library.def(
      "router_backward(Tensor grad_out, Tensor logits, Tensor experts, bool sigmoid, bool "
      "normalize, float scale) -> Tensor");
}

TORCH_LIBRARY_IMPL(gt, CompositeExplicitAutograd, library) {
  library.impl("router", RouteRows);
  library.impl("router_backward", RouteRowsBackward);
}

}  // namespace gt
