#include "gt/fusion/element_code.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

namespace gt::fusion {
namespace {

bool IsFloatHeld(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}
bool IsInteger(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

std::string FloatText(double value) {
  const auto number = static_cast<float>(value);
  if (std::isnan(number)) return "__int_as_float(0x7fffffff)";
  if (std::isinf(number)) {
    return number > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)";
  }
  std::string text = fmt::format("{:.9g}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string Rounded(DType dtype, const std::string& value) {
  if (dtype == DType::kBFloat16) return fmt::format("RoundBf16({})", value);
  if (dtype == DType::kFloat16) return fmt::format("RoundHalf({})", value);
  return value;
}

// As c10::convert. Nothing for pairs that are left to ATen.
std::optional<std::string> Converted(const std::string& value, DType from, DType to) {
  if (from == to) return value;
  if (from == DType::kComplex64 || to == DType::kComplex64) return std::nullopt;
  if (to == DType::kBool) return fmt::format("({} != 0)", value);
  if (IsFloatHeld(to)) {
    if (from == DType::kBool) return fmt::format("({} ? 1.0f : 0.0f)", value);
    if (IsInteger(from)) return Rounded(to, fmt::format("(float){}", value));
    if (from == DType::kFloat16 && to == DType::kFloat32) return fmt::format("Widened({})", value);
    return Rounded(to, value);
  }
  if (IsInteger(to)) return fmt::format("({}){}", CodeType(to), value);
  return std::nullopt;
}

// One call of an operator: its arguments as text.
class Call {
 public:
  Call(const Node& node, std::span<const std::string> operands)
      : node_(node), operands_(operands) {}

  DType result() const { return node_.result()->type().dtype; }
  bool IsTensor(int arg) const { return std::holds_alternative<OperandRef>(node_.arg(arg)); }
  bool IsNone(int arg) const { return std::holds_alternative<std::monostate>(node_.arg(arg)); }
  const Node& node() const { return node_; }

  DType TensorDType(int arg) const {
    return node_.operand(std::get<OperandRef>(node_.arg(arg)).index)->type().dtype;
  }

  std::optional<double> Number(int arg) const {
    const Argument& argument = node_.arg(arg);
    if (const auto* number = std::get_if<double>(&argument)) return *number;
    if (const auto* flag = std::get_if<bool>(&argument)) return *flag ? 1.0 : 0.0;
    if (const auto* dim = std::get_if<Dim>(&argument); dim != nullptr && dim->is_const()) {
      return static_cast<double>(*dim->as_const());
    }
    return std::nullopt;
  }

  // The argument in the dtype that the kernel computes in. Numbers are converted to the type in which
  // that dtype is held and not rounded to it.
  std::string In(int arg, DType common) {
    if (IsTensor(arg)) {
      const int32_t index = std::get<OperandRef>(node_.arg(arg)).index;
      auto text = Converted(operands_[static_cast<size_t>(index)],
                            node_.operand(index)->type().dtype, common);
      if (!text) failed_ = true;
      return text.value_or("");
    }
    return NumberIn(arg, common);
  }

  std::string NumberIn(int arg, DType common) {
    const std::optional<double> number = Number(arg);
    if (!number) failed_ = true;
    if (failed_) return "";
    if (IsFloatHeld(common)) return FloatText(*number);
    if (IsInteger(common)) {
      const auto* dim = std::get_if<Dim>(&node_.arg(arg));
      if (dim == nullptr) failed_ = true;
      return dim == nullptr
                 ? ""
                 : fmt::format("{}{}", *dim->as_const(), common == DType::kInt64 ? "LL" : "");
    }
    if (common == DType::kBool) return *number != 0 ? "true" : "false";
    failed_ = true;
    return "";
  }

  std::optional<std::string> Done(std::string text) const {
    if (failed_) return std::nullopt;
    return text;
  }
  std::optional<std::string> Float(const std::string& text) const {
    if (!IsFloatHeld(result())) return std::nullopt;
    return Done(Rounded(result(), text));
  }
  // Of more than one operation: the compiler may contract among them, not with what follows.
  std::optional<std::string> Formula(const std::string& text) const {
    return Float(result() == DType::kFloat32 ? fmt::format("Keep({})", text) : text);
  }

 private:
  const Node& node_;
  std::span<const std::string> operands_;
  bool failed_ = false;
};

using Code = std::optional<std::string>;
using Maker = Code (*)(Call& call);

// One operand, computed in floating point.
template <const char* const* kText>
Code Function(Call& call) {
  return call.Float(fmt::format(fmt::runtime(*kText), call.In(0, call.result())));
}
template <const char* const* kText>
Code FormulaOf(Call& call) {
  return call.Formula(fmt::format(fmt::runtime(*kText), call.In(0, call.result())));
}
constexpr const char* kAbs = "fabsf({})";
constexpr const char* kExp = "expf({})";
constexpr const char* kLog = "logf({})";
constexpr const char* kSqrt = "sqrtf({})";
constexpr const char* kRsqrt = "rsqrtf({})";
constexpr const char* kTanh = "tanhf({})";
constexpr const char* kSin = "sinf({})";
constexpr const char* kCos = "cosf({})";
constexpr const char* kReciprocal = "__fdiv_rn(1.0f, {})";
constexpr const char* kSigmoid = "Sigmoid({})";
constexpr const char* kSilu = "Silu({})";

Code Neg(Call& call) {
  const std::string x = call.In(0, call.result());
  if (call.result() == DType::kComplex64)
    return call.Done(fmt::format("Complex{{-{0}.x, -{0}.y}}", x));
  if (IsInteger(call.result())) return call.Done(fmt::format("(-{})", x));
  return call.Float(fmt::format("(-{})", x));
}

std::string Sum(DType dtype, const std::string& a, const std::string& b, double alpha) {
  if (IsInteger(dtype)) {
    return alpha == 1 ? fmt::format("({} + {})", a, b)
                      : fmt::format("({} + {} * {})", a, static_cast<int64_t>(alpha), b);
  }
  // ATen computes a + alpha * b in one expression, which the compiler contracts.
  return alpha == 1 ? fmt::format("__fadd_rn({}, {})", a, b)
                    : fmt::format("__fmaf_rn({}, {}, {})", FloatText(alpha), b, a);
}

template <int kFirst, int kSecond, int kSign>
Code Add(Call& call) {
  const std::optional<double> alpha = call.Number(2);
  const DType dtype = call.result();
  // ATen multiplies by alpha also where it is 1, and a complex product makes NaN of infinities.
  if (!alpha || dtype == DType::kBool || dtype == DType::kComplex64) return std::nullopt;
  const std::string a = call.In(kFirst, dtype), b = call.In(kSecond, dtype);
  const std::string sum = Sum(dtype, a, b, *alpha * kSign);
  return IsInteger(dtype) ? call.Done(sum) : call.Float(sum);
}

Code Mul(Call& call) {
  const DType dtype = call.result();
  const std::string a = call.In(0, dtype), b = call.In(1, dtype);
  if (dtype == DType::kComplex64) {
    if (!call.IsTensor(0) || !call.IsTensor(1)) return std::nullopt;
    return call.Done(fmt::format("ComplexMul({}, {})", a, b));
  }
  if (dtype == DType::kBool) return call.Done(fmt::format("({} && {})", a, b));
  if (IsInteger(dtype)) return call.Done(fmt::format("({} * {})", a, b));
  return call.Float(fmt::format("__fmul_rn({}, {})", a, b));
}

Code Div(Call& call) {
  const DType dtype = call.result();
  if (!IsFloatHeld(dtype)) return std::nullopt;
  const std::string a = call.In(0, dtype);
  if (call.IsTensor(1)) return call.Float(fmt::format("__fdiv_rn({}, {})", a, call.In(1, dtype)));
  // Of a number ATen takes the reciprocal once and multiplies.
  const std::optional<double> by = call.Number(1);
  if (!by) return std::nullopt;
  return call.Float(fmt::format("__fmul_rn({}, {})", a, FloatText(1.0f / static_cast<float>(*by))));
}

Code Pow(Call& call) {
  if (call.Number(1) != 2.0 || call.TensorDType(0) != call.result()) return std::nullopt;
  const std::string x = call.In(0, call.result());
  return call.Float(fmt::format("__fmul_rn({0}, {0})", x));
}

template <bool kLargest>
Code Extreme(Call& call) {
  if (!call.IsTensor(0) || !call.IsTensor(1) || !IsFloatHeld(call.result())) return std::nullopt;
  const std::string a = call.In(0, call.result()), b = call.In(1, call.result());
  return call.Done(fmt::format("{}({}, {})", kLargest ? "Maximum" : "Minimum", a, b));
}

// Limits are converted to the tensor's dtype.
Code Clamp(Call& call) {
  const DType dtype = call.result();
  if (call.TensorDType(0) != dtype || !IsFloatHeld(dtype)) return std::nullopt;
  std::string text = call.In(0, dtype);
  const auto& args = call.node().op().schema.args;
  for (int arg = 1; arg < static_cast<int>(args.size()); ++arg) {
    if (call.IsNone(arg)) continue;
    const std::string limit = Rounded(dtype, call.NumberIn(arg, dtype));
    const bool is_min = args[static_cast<size_t>(arg)].name == "min";
    text = fmt::format("{}({}, {})", is_min ? "ClampMin" : "ClampMax", text, limit);
  }
  return call.Done(text);
}
Code Relu(Call& call) {
  if (!IsFloatHeld(call.result())) return std::nullopt;
  return call.Done(fmt::format("ClampMin({}, 0.0f)", call.In(0, call.result())));
}

template <const char* const* kOperator>
Code Compare(Call& call) {
  if (!call.IsTensor(0)) return std::nullopt;
  const DType dtype = call.TensorDType(0);
  if (!IsFloatHeld(dtype) && !IsInteger(dtype) && dtype != DType::kBool) return std::nullopt;
  if (call.IsTensor(1) && call.TensorDType(1) != dtype) return std::nullopt;
  std::string other = call.In(1, dtype);
  if (!call.IsTensor(1) && IsFloatHeld(dtype)) other = Rounded(dtype, other);
  return call.Done(fmt::format("({} {} {})", call.In(0, dtype), *kOperator, other));
}
constexpr const char* kEq = "==";
constexpr const char* kNe = "!=";
constexpr const char* kLt = "<";
constexpr const char* kLe = "<=";
constexpr const char* kGt = ">";
constexpr const char* kGe = ">=";
constexpr const char* kAnd = "&&";
constexpr const char* kOr = "||";

template <const char* const* kOperator>
Code Logical(Call& call) {
  return call.Done(
      fmt::format("({} {} {})", call.In(0, DType::kBool), *kOperator, call.In(1, DType::kBool)));
}
Code LogicalNot(Call& call) { return call.Done(fmt::format("(!{})", call.In(0, DType::kBool))); }

Code SiluBackward(Call& call) {
  const DType dtype = call.result();
  return call.Formula(fmt::format("SiluBackward({}, {})", call.In(0, dtype), call.In(1, dtype)));
}
// In the tensor's own dtype, operation by operation: left to ATen for half precision.
Code SigmoidBackward(Call& call) {
  if (call.result() != DType::kFloat32) return std::nullopt;
  return call.Formula(fmt::format("SigmoidBackward({}, {})", call.In(0, DType::kFloat32),
                                  call.In(1, DType::kFloat32)));
}
Code TanhBackward(Call& call) {
  if (call.result() != DType::kFloat32) return std::nullopt;
  return call.Formula(fmt::format("TanhBackward({}, {})", call.In(0, DType::kFloat32),
                                  call.In(1, DType::kFloat32)));
}
Code ThresholdBackward(Call& call) {
  const DType dtype = call.result();
  if (!IsFloatHeld(dtype)) return std::nullopt;
  return call.Done(fmt::format("({} <= {} ? 0.0f : {})", call.In(1, dtype),
                               Rounded(dtype, call.NumberIn(2, dtype)), call.In(0, dtype)));
}

Code Where(Call& call) {
  if (call.TensorDType(0) != DType::kBool) return std::nullopt;
  const DType dtype = call.result();
  const auto side = [&](int arg) {
    const std::string text = call.In(arg, dtype);
    return call.IsTensor(arg) ? text : Rounded(dtype, text);
  };
  return call.Done(fmt::format("({} ? {} : {})", call.In(0, DType::kBool), side(1), side(2)));
}
Code MaskedFill(Call& call) {
  const DType dtype = call.result();
  if (call.TensorDType(0) != dtype) return std::nullopt;
  const std::string value = Rounded(dtype, call.NumberIn(2, dtype));
  return call.Done(
      fmt::format("({} ? {} : {})", call.In(1, DType::kBool), value, call.In(0, dtype)));
}

Code FloorDivide(Call& call) {
  const DType dtype = call.result();
  if (!IsInteger(dtype) || call.IsTensor(1) || call.Number(1).value_or(0) <= 0) return std::nullopt;
  if (call.TensorDType(0) != dtype) return std::nullopt;
  return call.Done(fmt::format("FloorDivide({}, {})", call.In(0, dtype), call.In(1, dtype)));
}

Code Cast(Call& call) {
  const Node& node = call.node();
  if (node.operand(0)->type().device != node.result()->type().device) return std::nullopt;
  return call.Done(call.In(0, call.result()));
}

const std::unordered_map<std::string_view, Maker>& Makers() {
  static const std::unordered_map<std::string_view, Maker> makers = {
      {"aten::abs", Function<&kAbs>},
      {"aten::exp", Function<&kExp>},
      {"aten::log", Function<&kLog>},
      {"aten::sqrt", Function<&kSqrt>},
      {"aten::rsqrt", Function<&kRsqrt>},
      {"aten::tanh", Function<&kTanh>},
      {"aten::sin", Function<&kSin>},
      {"aten::cos", Function<&kCos>},
      {"aten::reciprocal", Function<&kReciprocal>},
      {"aten::sigmoid", FormulaOf<&kSigmoid>},
      {"aten::silu", FormulaOf<&kSilu>},
      {"aten::silu_backward", SiluBackward},
      {"aten::sigmoid_backward", SigmoidBackward},
      {"aten::tanh_backward", TanhBackward},
      {"aten::threshold_backward", ThresholdBackward},
      {"aten::neg", Neg},
      {"aten::relu", Relu},
      {"aten::add.Tensor", Add<0, 1, 1>},
      {"aten::add.Scalar", Add<0, 1, 1>},
      {"aten::sub.Tensor", Add<0, 1, -1>},
      {"aten::sub.Scalar", Add<0, 1, -1>},
      {"aten::rsub.Tensor", Add<1, 0, -1>},
      {"aten::rsub.Scalar", Add<1, 0, -1>},
      {"aten::mul.Tensor", Mul},
      {"aten::mul.Scalar", Mul},
      {"aten::div.Tensor", Div},
      {"aten::div.Scalar", Div},
      {"aten::pow.Tensor_Scalar", Pow},
      {"aten::maximum", Extreme<true>},
      {"aten::minimum", Extreme<false>},
      {"aten::clamp", Clamp},
      {"aten::clamp_min", Clamp},
      {"aten::clamp_max", Clamp},
      {"aten::eq.Tensor", Compare<&kEq>},
      {"aten::eq.Scalar", Compare<&kEq>},
      {"aten::ne.Tensor", Compare<&kNe>},
      {"aten::ne.Scalar", Compare<&kNe>},
      {"aten::lt.Tensor", Compare<&kLt>},
      {"aten::lt.Scalar", Compare<&kLt>},
      {"aten::le.Tensor", Compare<&kLe>},
      {"aten::le.Scalar", Compare<&kLe>},
      {"aten::gt.Tensor", Compare<&kGt>},
      {"aten::gt.Scalar", Compare<&kGt>},
      {"aten::ge.Tensor", Compare<&kGe>},
      {"aten::ge.Scalar", Compare<&kGe>},
      {"aten::logical_and", Logical<&kAnd>},
      {"aten::logical_or", Logical<&kOr>},
      {"aten::logical_not", LogicalNot},
      {"aten::where.self", Where},
      {"aten::masked_fill.Scalar", MaskedFill},
      {"aten::floor_divide.Scalar", FloorDivide},
      {"aten::_to_copy", Cast},
      {"aten::clone", Cast},
  };
  return makers;
}

bool IsCodedView(const Node& node) {
  const Operator& op = node.op();
  const std::string& name = op.name.str();
  if (op.view == ViewKind::kReshape || op.view == ViewKind::kSameOrder) {
    return op.is_view();  // aten::reshape may copy
  }
  static const std::unordered_map<std::string_view, bool> known = {
      {"aten::transpose.int", true},   {"aten::t", true},
      {"aten::permute", true},         {"aten::expand", true},
      {"aten::slice.Tensor", true},    {"aten::select.int", true},
      {"aten::split.Tensor", true},    {"aten::split_with_sizes", true},
      {"aten::unbind.int", true},      {"aten::view_as_real", true},
      {"aten::view_as_complex", true}, {"aten::_conj", true},
      {"aten::alias", true},           {"aten::detach", true},
  };
  return known.contains(name);
}

// One dimension of a few elements, not the one that is contiguous in memory: each thread of ATen's kernel
// then adds up its elements in four lanes.
bool IsShortSum(const Node& node) {
  constexpr int64_t kMostTerms = 16;
  const TensorType& from = node.operand(0)->type();
  const TensorType& to = node.result()->type();
  const auto* dims = std::get_if<Shape>(&node.arg(1));
  if (dims == nullptr || dims->size() != 1 || !(*dims)[0].is_const()) return false;
  if (from.dtype != to.dtype || !IsFloatHeld(to.dtype)) return false;
  int64_t dim = *(*dims)[0].as_const();
  if (dim < 0) dim += from.rank();
  const std::optional<int64_t> terms = from.sizes[static_cast<size_t>(dim)].as_const();
  if (!terms || *terms < 2 || *terms > kMostTerms || dim + 1 >= from.rank()) return false;
  // The last dimension is the contiguous one, before and after.
  return from.strides.back().Is(1) && to.strides.back().Is(1) && !from.sizes.back().Is(1) &&
         !from.strides[static_cast<size_t>(dim)].Is(0);
}

bool IsCodedIndexSelect(const Node& node) {
  const auto* dim = std::get_if<Dim>(&node.arg(1));
  return dim != nullptr && dim->is_const() && node.operand(0)->type().rank() > 0 &&
         node.operand(1)->type().rank() == 1 && IsInteger(node.operand(1)->type().dtype);
}

bool IsCodedCat(const Node& node) {
  const auto* dim = std::get_if<Dim>(&node.arg(1));
  if (dim == nullptr || !dim->is_const() || node.operand_count() > 8) return false;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const TensorType& type = node.operand(i)->type();
    // libtorch also takes empty tensors of another rank.
    if (type.dtype != node.result()->type().dtype || type.rank() != node.result()->type().rank()) {
      return false;
    }
  }
  return true;
}

// Of a sum of losses without weights, as training has it.
bool IsOneHot(const Node& node) {
  if (node.op().name.str() != "aten::nll_loss_backward") return false;
  constexpr int kSumOfLosses = 2;
  const TensorType& scores = node.operand(1)->type();
  const Value* weight = node.TensorArg(3);
  const auto* reduction = std::get_if<Dim>(&node.arg(4));
  const auto* ignored = std::get_if<Dim>(&node.arg(5));
  return scores.rank() == 2 && scores.dtype == DType::kFloat32 && weight == nullptr &&
         reduction != nullptr && reduction->Is(kSumOfLosses) && ignored != nullptr &&
         ignored->is_const() && node.operand(2)->type().dtype == DType::kInt64 &&
         node.operand(2)->type().rank() == 1;
}

bool IsOneHotSoftmax(const Node& node) {
  const Node* gradient = node.operand(0)->producer();
  const TensorType& type = node.result()->type();
  const auto* dim = std::get_if<Dim>(&node.arg(2));
  return gradient != nullptr && IsOneHot(*gradient) && type.rank() == 2 &&
         type.dtype == DType::kFloat32 && dim != nullptr && (dim->Is(1) || dim->Is(-1));
}

bool HasCodeTypes(const Node& node) {
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    if (!HasCodeType(node.operand(i)->type().dtype)) return false;
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    if (!HasCodeType(node.result(i)->type().dtype)) return false;
  }
  return node.operand_count() > 0 && node.result_count() > 0;
}

}  // namespace

CodeKind CodeKindOf(const Node& node) {
  if (!HasCodeTypes(node)) return CodeKind::kNone;
  const std::string& name = node.op().name.str();
  if (node.op().is_view()) return IsCodedView(node) ? CodeKind::kView : CodeKind::kNone;
  if (name == "aten::cat") return IsCodedCat(node) ? CodeKind::kCat : CodeKind::kNone;
  if (name == "aten::index_select") {
    return IsCodedIndexSelect(node) ? CodeKind::kIndexSelect : CodeKind::kNone;
  }
  if (name == "aten::sum.dim_IntList") return IsShortSum(node) ? CodeKind::kSum : CodeKind::kNone;
  if (name == "aten::nll_loss_backward") {
    return IsOneHot(node) ? CodeKind::kOneHot : CodeKind::kNone;
  }
  if (name == "aten::_log_softmax_backward_data") {
    return IsOneHotSoftmax(node) ? CodeKind::kOneHotSoftmax : CodeKind::kNone;
  }
  const std::vector<std::string> names(static_cast<size_t>(node.operand_count()), "x");
  return ElementCode(node, names) ? CodeKind::kElement : CodeKind::kNone;
}

bool IsCheap(const Node& node) {
  static const std::unordered_map<std::string_view, bool> cheap = {
      {"aten::_to_copy", true},           {"aten::clone", true},      {"aten::add.Tensor", true},
      {"aten::add.Scalar", true},         {"aten::sub.Tensor", true}, {"aten::sub.Scalar", true},
      {"aten::mul.Tensor", true},         {"aten::mul.Scalar", true}, {"aten::neg", true},
      {"aten::floor_divide.Scalar", true}};
  return node.op().is_view() || cheap.contains(node.op().name.str());
}

std::optional<std::string> ElementCode(const Node& node, std::span<const std::string> operands) {
  const auto found = Makers().find(node.op().name.str());
  if (found == Makers().end()) return std::nullopt;
  Call call(node, operands);
  return found->second(call);
}

bool HasCodeType(DType dtype) {
  return IsFloatHeld(dtype) || IsInteger(dtype) || dtype == DType::kBool ||
         dtype == DType::kComplex64;
}

std::string_view CodeType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool";
    case DType::kInt32:
      return "int";
    case DType::kInt64:
      return "long long";
    case DType::kComplex64:
      return "Complex";
    default:
      return "float";
  }
}

std::string_view StorageType(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return "Bf16";
    case DType::kFloat16:
      return "Half";
    default:
      return CodeType(dtype);
  }
}

std::string Loaded(DType dtype, const std::string& stored) {
  if (dtype == DType::kBFloat16 || dtype == DType::kFloat16)
    return fmt::format("Float({})", stored);
  return stored;
}

std::string Stored(DType dtype, const std::string& value) {
  // Values are rounded where they are made, so that nothing is left to round here.
  if (dtype == DType::kBFloat16) return fmt::format("ExactBf16({})", value);
  if (dtype == DType::kFloat16) return fmt::format("ExactHalf({})", value);
  return value;
}

std::string_view KernelPrelude() {
  return R"(struct Bf16 { unsigned short bits; };
struct Half { unsigned short bits; };
struct __align__(8) Complex { float x, y; };

__device__ __forceinline__ float Float(Bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ Bf16 ToBf16(float x) {
  Bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}
__device__ __forceinline__ float Float(Half x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  // The instruction forgets what else a NaN says; a copy in half precision must not.
  const unsigned kept = (x.bits & 0x8000u) << 16 | 0x7f800000u | (x.bits & 0x3ffu) << 13;
  return r != r ? __uint_as_float(kept) : r;
}
// A conversion to float is the instruction alone.
__device__ __forceinline__ float Widened(float x) {
  return x != x ? __uint_as_float(0x7fffffffu) : x;
}
__device__ __forceinline__ Half ToHalf(float x) {
  Half r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}
__device__ __forceinline__ Bf16 ExactBf16(float x) {
  return Bf16{(unsigned short)(__float_as_uint(x) >> 16)};
}
__device__ __forceinline__ Half ExactHalf(float x) {
  const unsigned bits = __float_as_uint(x);
  return x != x ? Half{(unsigned short)(bits >> 16 & 0x8000u | 0x7c00u | bits >> 13 & 0x3ffu)} : ToHalf(x);
}
__device__ __forceinline__ float RoundBf16(float x) { return Float(ToBf16(x)); }
__device__ __forceinline__ float RoundHalf(float x) { return Float(ToHalf(x)); }
// The compiler contracts nothing across it.
__device__ __forceinline__ float Keep(float x) {
  asm("" : "+f"(x));
  return x;
}

template <typename T, int N>
struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T lane[N];
  __device__ __forceinline__ T& operator[](int k) { return lane[k]; }
  __device__ __forceinline__ const T& operator[](int k) const { return lane[k]; }
};
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> Load(const T* from) {
  return *reinterpret_cast<const Vec<T, N>*>(from);
}
template <typename T, int N>
__device__ __forceinline__ void Store(T* to, const Vec<T, N>& values) {
  *reinterpret_cast<Vec<T, N>*>(to) = values;
}
#define LANES(n) _Pragma("unroll") for (int k = 0; k < n; ++k)

// As in ATen's kernels.
__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float Silu(float x) { return x / (1.0f + expf(-x)); }
__device__ __forceinline__ float SiluBackward(float dy, float x) {
  const float s = 1.0f / (1.0f + expf(-x));
  return dy * s * (1.0f + x * (1.0f - s));
}
__device__ __forceinline__ float SigmoidBackward(float a, float b) { return a * (1.0f - b) * b; }
__device__ __forceinline__ float TanhBackward(float a, float b) { return a * (1.0f - b * b); }
// Of the two products of each part, one is rounded; which, the compiler of ATen's kernel has chosen.
__device__ __forceinline__ Complex ComplexMul(Complex x, Complex y) {
  const float a = x.x, b = x.y, c = y.x, d = y.y;
  return Complex{COMPLEX_FORM & 1 ? __fmaf_rn(-b, d, __fmul_rn(a, c)) : __fmaf_rn(a, c, -__fmul_rn(b, d)),
                 COMPLEX_FORM & 2 ? __fmaf_rn(b, c, __fmul_rn(a, d)) : __fmaf_rn(a, d, __fmul_rn(b, c))};
}
__device__ __forceinline__ float LogSoftmaxBackward(float dy, float y, float sum) {
  return dy - expf(y) * sum;
}
__device__ __forceinline__ float Maximum(float a, float b) {
  return a != a ? a : b != b ? b : fmaxf(a, b);
}
__device__ __forceinline__ float Minimum(float a, float b) {
  return a != a ? a : b != b ? b : fminf(a, b);
}
__device__ __forceinline__ float ClampMin(float x, float low) { return x != x ? x : fmaxf(x, low); }
__device__ __forceinline__ float ClampMax(float x, float high) { return x != x ? x : fminf(x, high); }
template <typename T>
__device__ __forceinline__ T FloorDivide(T a, T b) {
  const T q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
)";
}

}  // namespace gt::fusion
