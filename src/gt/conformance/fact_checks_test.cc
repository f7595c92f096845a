#include "gt/conformance/fact_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gt::conformance {
namespace {

at::Tensor Resolved(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg().contiguous();
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = Resolved(a), y = Resolved(b);
  return x.nbytes() == y.nbytes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

bool IsFloat(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
}

std::string CheckView(const ObservedCall& call) {
  const ViewKind kind = call.op.view;
  if (kind == ViewKind::kNone || kind == ViewKind::kReinterpret) return "";
  const at::Tensor& base = call.operands[0];
  for (const at::Tensor& view : call.results) {
    if (view.scalar_type() != base.scalar_type() || view.is_conj() != base.is_conj() ||
        view.is_neg() != base.is_neg()) {
      return "the view shows other values than those of its argument";
    }
    const bool keeps_order = kind == ViewKind::kReshape || kind == ViewKind::kSameOrder;
    if (keeps_order && !SameBits(view.reshape(-1), base.reshape(-1))) {
      return "the view's elements are not in their row-major order";
    }
  }
  return "";
}

// A tensor of this type whose elements are those of `storage`, or its first ones.
at::Tensor LaidOutAs(const at::Tensor& like, const at::Tensor& storage) {
  return at::as_strided(storage.to(like.scalar_type()), like.sizes(), like.strides(), 0);
}

int64_t StorageElements(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += std::max<int64_t>(tensor.size(d) - 1, 0) * tensor.stride(d);
  }
  return last + 1;
}

std::string CheckFill(const ObservedCall& call) {
  if (call.op.work != Work::kFill || call.op.random) return "";
  if (call.op.order == DimOrder::kConstant) {
    for (const at::Tensor& result : call.results) {
      if (result.numel() == 0) continue;
      const at::Tensor first = result.reshape(-1).slice(0, 0, 1).expand(result.numel());
      if (!SameBits(result.reshape(-1), first)) return "its elements are not all equal";
    }
  }
  if (call.operands.empty()) return "";
  Tensors others = call.operands;
  others[0] = LaidOutAs(others[0], at::zeros({StorageElements(others[0])}));
  const Tensors results = call.repeat(others);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!SameBits(results[i], call.results[i])) return "it reads elements of its first argument";
  }
  return "";
}

// Whether one tensor takes the place of every argument that the declaration is about.
bool LinearityApplies(const ObservedCall& call) {
  const Tensors& operands = call.operands;
  if (operands.empty() || !std::all_of(operands.begin(), operands.end(), IsFloat) ||
      !std::all_of(call.results.begin(), call.results.end(), IsFloat)) {
    return false;
  }
  int64_t references = 0;
  for (const Argument& arg : call.args) references += std::holds_alternative<OperandRef>(arg);
  if (references != static_cast<int64_t>(operands.size())) return false;  // x * x
  if (call.op.linearity == Linearity::kAllOperands) return operands.size() > 1;
  return call.args[0] == Argument(OperandRef{0});  // not a number divided by it
}

// f(a + b) + f(0) = f(a) + f(b): padding with another number than 0 adds a constant.
std::string CheckLinearity(const ObservedCall& call) {
  if (call.op.linearity == Linearity::kNone || !LinearityApplies(call)) return "";
  Tensors zero = call.operands, a = zero, b = zero, sum = zero;
  const size_t varied = call.op.linearity == Linearity::kAllOperands ? call.operands.size() : 1;
  for (size_t i = 0; i < varied; ++i) {
    const at::Tensor& operand = call.operands[i];
    const int64_t count = StorageElements(operand);
    const at::Tensor x = at::randint(-3, 4, {count}, at::kDouble);
    const at::Tensor y = at::randint(-3, 4, {count}, at::kDouble);
    zero[i] = LaidOutAs(operand, x - x);
    a[i] = LaidOutAs(operand, x);
    b[i] = LaidOutAs(operand, y);
    sum[i] = LaidOutAs(operand, x + y);
  }
  const Tensors of_zero = call.repeat(zero), of_a = call.repeat(a), of_b = call.repeat(b),
                of_sum = call.repeat(sum);
  for (size_t i = 0; i < of_sum.size(); ++i) {
    const auto wide = [](const at::Tensor& tensor) {
      return tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble);
    };
    const at::Tensor left = wide(of_sum[i]) + wide(of_zero[i]);
    const at::Tensor right = wide(of_a[i]) + wide(of_b[i]);
    if (!at::isfinite(left).all().item<bool>() || !at::isfinite(right).all().item<bool>()) continue;
    if (!at::allclose(left, right, /*rtol=*/0.03, /*atol=*/0.05)) return "it is not linear";
  }
  return "";
}

}  // namespace

std::string CheckFacts(const ObservedCall& call) {
  for (auto* check : {CheckView, CheckFill, CheckLinearity}) {
    if (std::string problem = check(call); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace gt::conformance
