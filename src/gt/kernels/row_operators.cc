#include "gt/kernels/row_operators.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "gt/fusion/row_kernels.h"
#include "gt/kernels/kernel_table.h"
#include "gt/torch_bridge/convert.h"

namespace gt {
namespace {

using at::Tensor;
using fusion::RowKernel;
using fusion::RowShape;

// What a kernel's text depends on.
enum class Kind : uint8_t {
  kNorm,
  kNormBackward,
  kColumnSum,
  kLogSumExp,
  kCrossEntropyBackward,
  kDots
};
struct KernelId {
  Kind kind;
  DType dtype = DType::kFloat32, other = DType::kFloat32;
  RowShape shape = {};
  bool flag = false;  // something is added, or rows are looked up

  auto Key() const {
    return std::tuple(kind, dtype, other, shape.threads, shape.lanes, shape.vectors, flag);
  }
  RowKernel Text() const {
    switch (kind) {
      case Kind::kNorm:
        return fusion::RmsNormSource(dtype, shape, flag);
      case Kind::kNormBackward:
        return fusion::RmsNormBackwardSource(dtype, shape, flag);
      case Kind::kColumnSum:
        return fusion::ColumnSumSource(dtype);
      case Kind::kLogSumExp:
        return fusion::LogSumExpSource(dtype, shape.lanes);
      case Kind::kCrossEntropyBackward:
        return fusion::CrossEntropyBackwardSource(dtype, shape.lanes);
      case Kind::kDots:
        return fusion::RowDotsSource(dtype, other, shape.lanes, flag);
    }
    return {};
  }
};

DeviceFunction* Find(const KernelId& id, c10::Device device) {
  static auto* kernels = new KernelTable<decltype(id.Key())>();
  return kernels->Find(id.Key(), device, [&id] { return id.Text(); });
}

// How many elements are loaded at a time must follow from sizes and strides alone, because it decides the order
// of sums: what begins elsewhere is copied to where it can be loaded so.
void Align(Tensor& tensor, int lanes) {
  const auto bytes = static_cast<uintptr_t>(lanes) * tensor.element_size();
  if (reinterpret_cast<uintptr_t>(InPointer(tensor)) % bytes == 0) return;
  // All memory from its first element to its last: it may show some of it several times.
  int64_t extent = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) extent += (tensor.size(d) - 1) * tensor.stride(d);
  const Tensor memory = tensor.as_strided({extent}, {1}).clone();
  tensor = memory.as_strided(tensor.sizes(), tensor.strides(), 0);
}

int LanesFor(DType dtype, int64_t width, std::initializer_list<int64_t> strides) {
  int lanes = 16 / ItemSize(dtype);
  auto fits = [&](int64_t number) { return number % lanes == 0; };
  while (lanes > 1 && !(fits(width) && std::all_of(strides.begin(), strides.end(), fits))) {
    lanes /= 2;
  }
  return lanes;
}

bool OnGpu(const Tensor& x) {
  return x.is_cuda() && fusion::HasRowKernels(FromTorch(x.scalar_type()));
}

at::ScalarType WideType(at::ScalarType type) { return type == at::kDouble ? type : at::kFloat; }

// Norms.

Tensor StatisticsLike(const Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = 1;
  return at::empty(sizes, x.options().dtype(WideType(x.scalar_type())));
}

std::tuple<Tensor, Tensor> NormByParts(const Tensor& x, const Tensor& weight, double eps) {
  if (x.is_cuda()) return at::_fused_rms_norm(x, {x.size(-1)}, weight, eps);
  const Tensor wide = x.to(WideType(x.scalar_type()));
  const Tensor rstd = at::rsqrt(at::mean(wide * wide, {-1}, /*keepdim=*/true) + eps);
  const Tensor out = wide * rstd * weight.to(wide.scalar_type());
  return {RowMajor(out.to(x.scalar_type())), RowMajor(rstd)};
}

// Null where there is no kernel for it.
DeviceFunction* NormKernel(KernelId& id, const Tensor& x, const Tensor& weight, int64_t alignment) {
  if (!OnGpu(x) || weight.scalar_type() != x.scalar_type() || x.numel() == 0) return nullptr;
  const auto shape = fusion::RowShapeFor(x.size(-1), alignment, FromTorch(x.scalar_type()));
  if (!shape) return nullptr;
  id.dtype = FromTorch(x.scalar_type());
  id.shape = *shape;
  return Find(id, x.device());
}

// The sum is there if something is added.
std::tuple<Tensor, Tensor, Tensor> NormOf(const Tensor& x, const Tensor* added,
                                          const Tensor& weight, double eps) {
  Rows rows = RowsOf(x), more = added == nullptr ? rows : RowsOf(*added);
  const int64_t alignment = std::gcd(rows.stride, more.stride);
  KernelId id{.kind = Kind::kNorm, .flag = added != nullptr};
  DeviceFunction* kernel = NormKernel(id, x, weight, alignment);
  if (kernel == nullptr) {
    const Tensor sum = added == nullptr ? x : RowMajor(at::add(x, *added));
    auto [out, rstd] = NormByParts(sum, weight, eps);
    return {sum, out, rstd};
  }
  Tensor factor = weight.contiguous();
  Align(rows.tensor, id.shape.lanes);
  Align(more.tensor, id.shape.lanes);
  Align(factor, id.shape.lanes);
  Tensor out = at::empty(x.sizes(), x.options()), rstd = StatisticsLike(x);
  const Tensor sum = added == nullptr ? out : at::empty(x.sizes(), x.options());
  const auto width = static_cast<int>(x.size(-1));
  LaunchKernel(*kernel, x.numel() / width, id.shape.threads, x.device(), InPointer(rows.tensor),
               InPointer(more.tensor), InPointer(factor), OutPointer(sum), OutPointer(out),
               OutPointer(rstd), static_cast<float>(eps), static_cast<long long>(rows.stride),
               static_cast<long long>(more.stride), width);
  return {sum, out, rstd};
}

std::tuple<Tensor, Tensor> Norm(const Tensor& x, const Tensor& weight, double eps) {
  auto [sum, out, rstd] = NormOf(x, nullptr, weight, eps);
  return {out, rstd};
}

std::tuple<Tensor, Tensor, Tensor> AddNorm(const Tensor& x, const Tensor& other,
                                           const Tensor& weight, double eps) {
  return NormOf(x, &other, weight, eps);
}

std::tuple<Tensor, Tensor> NormBackwardByParts(const Tensor& grad, const Tensor& x,
                                               const Tensor& rstd, const Tensor& weight) {
  if (x.is_cuda()) {
    return at::_fused_rms_norm_backward(grad, x, {x.size(-1)}, rstd, weight, {true, true});
  }
  const at::ScalarType type = WideType(x.scalar_type());
  const Tensor wide = x.to(type), slope = grad.to(type);
  const Tensor scaled = slope * weight.to(type);
  const Tensor mean = at::mean(scaled * wide, {-1}, /*keepdim=*/true);
  const Tensor of_input = rstd * scaled - wide * (rstd * rstd * rstd * mean);
  const Tensor products = slope * wide * rstd;
  const Tensor of_weight = x.dim() == 1 ? products : products.flatten(0, -2).sum(0);
  return {RowMajor(of_input.to(x.scalar_type())), of_weight.to(weight.scalar_type())};
}

std::tuple<Tensor, Tensor> NormBackward(const Tensor& grad, const Tensor& x, const Tensor& rstd,
                                        const Tensor& weight, const std::optional<Tensor>& added) {
  Rows g = RowsOf(grad), rows = RowsOf(x), more = added ? RowsOf(*added) : g;
  const int64_t alignment = std::gcd(std::gcd(g.stride, rows.stride), more.stride);
  KernelId id{.kind = Kind::kNormBackward, .flag = added.has_value()};
  DeviceFunction* kernel = NormKernel(id, x, weight, alignment);
  DeviceFunction* sum =
      kernel == nullptr ? nullptr : Find({.kind = Kind::kColumnSum, .dtype = id.dtype}, x.device());
  if (kernel == nullptr || sum == nullptr || grad.scalar_type() != x.scalar_type()) {
    auto [of_input, of_weight] = NormBackwardByParts(grad, x, rstd, weight);
    if (added) of_input = RowMajor(at::add(of_input, *added));
    return {of_input, of_weight};
  }
  Tensor factor = weight.contiguous();
  for (Tensor* tensor : {&g.tensor, &rows.tensor, &more.tensor, &factor}) {
    Align(*tensor, id.shape.lanes);
  }
  const auto width = static_cast<int>(x.size(-1));
  const int64_t count = x.numel() / width;
  const int64_t blocks = fusion::RmsNormBackwardBlocks(count, id.shape);
  Tensor of_input = at::empty(x.sizes(), x.options());
  const Tensor partial = at::empty({blocks, width}, x.options().dtype(at::kFloat));
  LaunchKernel(*kernel, blocks, id.shape.threads, x.device(), InPointer(g.tensor),
               InPointer(rows.tensor), InPointer(rstd.contiguous()), InPointer(factor),
               InPointer(more.tensor), OutPointer(of_input), OutPointer(partial),
               static_cast<long long>(count), static_cast<long long>(g.stride),
               static_cast<long long>(rows.stride), static_cast<long long>(more.stride), width);
  Tensor of_weight = at::empty({width}, weight.options());
  LaunchKernel(*sum, (width + 31) / 32, fusion::kColumnThreads, x.device(), InPointer(partial),
               OutPointer(of_weight), static_cast<long long>(blocks), width);
  return {of_input, of_weight};
}

// Products of rows.

Tensor DotsByParts(const Tensor& a, const Tensor& b) {
  const bool wide = a.scalar_type() == at::kDouble || b.scalar_type() == at::kDouble;
  return RowMajor((a * b.to(wide ? at::kDouble : at::kFloat)).sum(-1));
}

// Rows by two strides: [outer, inner, width].
struct TwoStrides {
  int64_t outer = 0, inner = 0;
};

Tensor DotsOf(const Tensor& a, const Tensor& b, int64_t count, int64_t inner, TwoStrides a_rows,
              TwoStrides b_rows, const Tensor* index, at::IntArrayRef sizes) {
  const DType a_type = FromTorch(a.scalar_type()), b_type = FromTorch(b.scalar_type());
  const int64_t width = a.size(-1);
  const DType wider = ItemSize(a_type) > ItemSize(b_type) ? a_type : b_type;
  KernelId id{.kind = Kind::kDots, .dtype = a_type, .other = b_type, .flag = index != nullptr};
  id.shape.lanes = LanesFor(wider, width, {a_rows.outer, a_rows.inner, b_rows.outer, b_rows.inner});
  DeviceFunction* kernel = Find(id, a.device());
  if (kernel == nullptr) return {};
  Tensor left = a, right = b;
  Align(left, id.shape.lanes);
  Align(right, id.shape.lanes);
  Tensor result = at::empty(sizes, a.options().dtype(at::kFloat));
  constexpr int64_t kEach = fusion::kRowThreads / 32;
  LaunchKernel(*kernel, (count + kEach - 1) / kEach, fusion::kRowThreads, a.device(),
               InPointer(left), InPointer(right), index == nullptr ? nullptr : InPointer(*index),
               OutPointer(result), static_cast<long long>(count), static_cast<long long>(inner),
               static_cast<long long>(a_rows.outer), static_cast<long long>(a_rows.inner),
               static_cast<long long>(b_rows.outer), static_cast<long long>(b_rows.inner),
               static_cast<int>(width));
  return result;
}

Tensor Dots(const Tensor& a, const Tensor& b) {
  if (!OnGpu(a) || !OnGpu(b) || a.numel() == 0 || b.numel() == 0) return DotsByParts(a, b);
  const std::vector<int64_t> sizes = at::infer_size(a.sizes(), b.sizes());
  Tensor left = a.expand(sizes), right = b.expand(sizes);
  // Dimensions before the last two count as one if they can.
  auto as_matrices = [&](const Tensor& x) {
    const Tensor rows = x.stride(-1) == 1 && x.dim() <= 3 ? x : x.contiguous();
    return rows.dim() == 1   ? rows.view({1, 1, -1})
           : rows.dim() == 2 ? rows.unsqueeze(1)
           : rows.dim() == 3 ? rows
                             : rows.view({-1, rows.size(-2), rows.size(-1)});
  };
  left = as_matrices(left);
  right = as_matrices(right);
  const Tensor result = DotsOf(left, right, left.size(0) * left.size(1), left.size(1),
                               {left.stride(0), left.stride(1)}, {right.stride(0), right.stride(1)},
                               nullptr, at::IntArrayRef(sizes).slice(0, sizes.size() - 1));
  return result.defined() ? result : DotsByParts(a, b);
}

// Row i of what is multiplied is row index[i] of `a`.
Tensor DotsOfRows(const Tensor& a, const Tensor& index, const Tensor& b) {
  auto by_parts = [&] {
    std::vector<int64_t> sizes = index.sizes().vec();
    sizes.push_back(a.size(1));
    return Dots(a.index_select(0, index.reshape({-1})).view(sizes), b);
  };
  const bool simple = OnGpu(a) && OnGpu(b) && index.dim() == 2 && b.dim() == 3 &&
                      a.stride(1) == 1 && b.stride(2) == 1 && index.is_contiguous() &&
                      index.scalar_type() == at::kLong && index.numel() > 0 && a.size(1) > 0;
  if (!simple) return by_parts();
  const Tensor right = b.expand({index.size(0), index.size(1), b.size(2)});
  // The stride of what would be looked up is its width: the same lanes as without looking up.
  const Tensor left = a.stride(0) == a.size(1) ? a : a.contiguous();
  const Tensor result =
      DotsOf(left, right, index.numel(), index.size(1), {left.stride(0), left.stride(0)},
             {right.stride(0), right.stride(1)}, &index, index.sizes());
  return result.defined() ? result : by_parts();
}

// Cross entropy.

Tensor LogSumExp(const Tensor& self) {
  const auto by_parts = [&] {
    return RowMajor(at::logsumexp(self.to(WideType(self.scalar_type())), {-1}));
  };
  if (!OnGpu(self) || self.numel() == 0) return by_parts();
  Rows rows = RowsOf(self);
  const DType dtype = FromTorch(self.scalar_type());
  KernelId id{.kind = Kind::kLogSumExp, .dtype = dtype};
  id.shape.lanes = LanesFor(dtype, self.size(-1), {rows.stride});
  DeviceFunction* kernel = Find(id, self.device());
  if (kernel == nullptr) return by_parts();
  Align(rows.tensor, id.shape.lanes);
  Tensor result =
      at::empty(self.sizes().slice(0, self.sizes().size() - 1), self.options().dtype(at::kFloat));
  LaunchKernel(*kernel, result.numel(), fusion::kLogSumThreads, self.device(),
               InPointer(rows.tensor), OutPointer(result), static_cast<long long>(rows.stride),
               static_cast<int>(self.size(-1)));
  return result;
}

Tensor EntropyBackwardByParts(const Tensor& grad, const Tensor& scale, const Tensor& self,
                              const Tensor& target, const Tensor& log_sum) {
  const Tensor wide = self.to(log_sum.scalar_type());
  const Tensor slope = at::exp(wide - log_sum.unsqueeze(1)) * scale.unsqueeze(1);
  const Tensor classes = at::arange(self.size(1), target.options());
  const Tensor right = at::eq(classes.unsqueeze(0), target.unsqueeze(1));
  return RowMajor(at::where(right, slope - grad.unsqueeze(1), slope).to(self.scalar_type()));
}

Tensor EntropyBackward(const Tensor& grad, const Tensor& scale, const Tensor& self,
                       const Tensor& target, const Tensor& log_sum, int64_t /*ignore_index*/) {
  const bool simple = OnGpu(self) && self.numel() > 0 && target.scalar_type() == at::kLong &&
                      log_sum.scalar_type() == at::kFloat && grad.scalar_type() == at::kFloat &&
                      scale.scalar_type() == at::kFloat;
  if (!simple) return EntropyBackwardByParts(grad, scale, self, target, log_sum);
  Rows rows = RowsOf(self);
  const DType dtype = FromTorch(self.scalar_type());
  const int64_t width = self.size(1);
  KernelId id{.kind = Kind::kCrossEntropyBackward, .dtype = dtype};
  id.shape.lanes = LanesFor(dtype, width, {rows.stride});
  DeviceFunction* kernel = Find(id, self.device());
  if (kernel == nullptr) return EntropyBackwardByParts(grad, scale, self, target, log_sum);
  Align(rows.tensor, id.shape.lanes);
  Tensor result = at::empty(self.sizes(), self.options());
  const int64_t each = int64_t{fusion::kRowThreads} * id.shape.lanes;
  const int64_t blocks = (width + each - 1) / each;
  const Tensor slope = grad.contiguous(), factor = scale.contiguous();
  const Tensor labels = target.contiguous(), base = log_sum.contiguous();
  LaunchKernel(*kernel, self.size(0) * blocks, fusion::kRowThreads, self.device(), InPointer(slope),
               InPointer(factor), InPointer(rows.tensor), InPointer(labels), InPointer(base),
               OutPointer(result), static_cast<long long>(rows.stride), static_cast<int>(width),
               static_cast<int>(blocks));
  return result;
}

template <typename Signature>
c10::TypedOperatorHandle<Signature> Handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

std::tuple<Tensor, Tensor> RowRmsNorm(const Tensor& input, const Tensor& weight, double eps) {
  static const auto op =
      Handle<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, double)>("gt::rms_norm");
  return op.call(input, weight, eps);
}

std::tuple<Tensor, Tensor> RowRmsNormBackward(const Tensor& grad, const Tensor& input,
                                              const Tensor& rstd, const Tensor& weight) {
  static const auto op =
      Handle<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                        const std::optional<Tensor>&)>("gt::rms_norm_backward");
  return op.call(grad, input, rstd, weight, std::nullopt);
}

Tensor RowDots(const Tensor& a, const Tensor& b) {
  static const auto op = Handle<Tensor(const Tensor&, const Tensor&)>("gt::row_dots");
  return op.call(a, b);
}

Tensor RowLogSumExp(const Tensor& self) {
  static const auto op = Handle<Tensor(const Tensor&)>("gt::log_sum_exp");
  return op.call(self);
}

Tensor CrossEntropyBackward(const Tensor& grad, const Tensor& scale, const Tensor& self,
                            const Tensor& target, const Tensor& log_sum, int64_t ignore_index) {
  static const auto op = Handle<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                       const Tensor&, int64_t)>("gt::cross_entropy_backward");
  return op.call(grad, scale, self, target, log_sum, ignore_index);
}

TORCH_LIBRARY_FRAGMENT(gt, library) {
  library.def("rms_norm(Tensor input, Tensor weight, float eps) -> (Tensor out, Tensor rstd)");
  library.def(
      "add_rms_norm(Tensor self, Tensor other, Tensor weight, float eps) -> (Tensor sum, Tensor "
      "out, Tensor rstd)");
  library.def(
      "rms_norm_backward(Tensor grad_out, Tensor input, Tensor rstd, Tensor weight, Tensor? "
      "added=None) -> (Tensor grad_input, Tensor grad_weight)");
  library.def("row_dots(Tensor self, Tensor other) -> Tensor");
  library.def("row_dots_at(Tensor self, Tensor index, Tensor other) -> Tensor");
  library.def("log_sum_exp(Tensor self) -> Tensor");
  library.def(
      "cross_entropy_backward(Tensor grad_out, Tensor scale, Tensor self, Tensor target, Tensor "
      "log_sum, int ignore_index) -> Tensor");
}

TORCH_LIBRARY_IMPL(gt, CompositeExplicitAutograd, library) {
  library.impl("rms_norm", Norm);
  library.impl("add_rms_norm", AddNorm);
  library.impl("rms_norm_backward", NormBackward);
  library.impl("row_dots", Dots);
  library.impl("row_dots_at", DotsOfRows);
  library.impl("log_sum_exp", LogSumExp);
  library.impl("cross_entropy_backward", EntropyBackward);
}

}  // namespace gt
