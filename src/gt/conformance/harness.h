// Compares the rules of ops/ with libtorch itself. For each operator a generator makes random valid
// calls; each call is run by libtorch on real tensors and by the rule on types, and the results
// must agree in number, dtype, device, sizes, strides (all of them, also of size-one and empty
// dimensions), aliasing, and for views the offset. Three variants:
//   static    all extents are numbers;
//   symbolic  some extents are input symbols. The rule's answer, evaluated at the extents it was
//             hinted with, must be libtorch's; and at other extents that satisfy the guards it
//             left, it must be libtorch's too. A rule that bakes a hint into its answer fails
//             here, and so does one that pins a symbol by a guard without need;
//   data      some extents are data symbols. The rule must not ask about them; strides are compared
//             where these extents are at least 2 (rules take them as neither 0 nor 1).
// In the static variant the facts that the operator declares are checked as well (fact_checks.h), and
// its sharding rule is proved (sharding_checks.h).
//
// A file of cases registers generators like this (arguments in schema order, missing ones are left
// at their defaults):
//
//   Conform kMul("aten::mul.Tensor", [](Case& c) {
//     Shape shape = c.RandomShape(0, 4);
//     c.Tensor(c.Pick(kAllTypes), c.BroadcastOperand(shape));
//     c.Tensor(c.Pick(kAllTypes), c.BroadcastOperand(shape));
//   });
//
// Environment: GT_CONFORMANCE_SEED=n, GT_CONFORMANCE_ITERATIONS=n (calls per operator and variant),
// GT_SLOW=1 for ten times as many, GT_CONFORMANCE_DEVICE=cuda to run on a GPU (rules know where the
// kernels of the two devices lay results out differently). A failure prints the seed and iteration
// that repeat it alone.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/operator.h"
#include "gt/ir/shape_env.h"
#include "gt/ir/type.h"

namespace gt::conformance {

enum class Variant : uint8_t { kStatic, kSymbolic, kData };

// What the elements of a generated tensor are.
enum class Fill : uint8_t {
  kPlain,  // floats around 0; integers 1 to 3, so that dividing by them is fine; random booleans
  kUnit,   // floats in (0, 1), for probabilities
  kIndex,  // integers in [0, bound)
  kSame,   // every element is `bound`
  kEnds,   // where groups end: ascending integers up to `bound`, which is the last
};

enum class LayoutChoice : uint8_t {
  kAny,         // kRegular, or strides that follow no pattern
  kRegular,     // permuted, sliced, stepped over, expanded, or plain
  kDense,       // permuted or plain
  kContiguous,  // plain
};

struct TensorOptions {
  LayoutChoice layout = LayoutChoice::kAny;
  Fill fill = Fill::kPlain;
  Dim bound = 1;
};

// One random call, built by a generator. Extents are Dims: numbers, or symbols hinted with the
// number drawn.
class Case {
 public:
  Case(const Operator& op, Variant variant, uint64_t seed);

  // Random choices.
  int64_t Random(int64_t low, int64_t high);  // both included
  bool Chance(double probability = 0.5);
  template <typename T>
  T Pick(std::initializer_list<T> options) {
    return options.begin()[Random(0, static_cast<int64_t>(options.size()) - 1)];
  }
  template <typename T, size_t n>
  T Pick(const T (&options)[n]) {
    return options[Random(0, static_cast<int64_t>(n) - 1)];
  }

  // A random extent: mostly 2 to 5, sometimes 1, now and then 0. In the symbolic variants it may be
  // a symbol.
  Dim Extent() { return Extent(0, 5); }
  // Within bounds, which a symbol keeps as its range. `high` is a bound of the drawn value only,
  // unless `capped`.
  Dim Extent(int64_t low, int64_t high, bool capped = false);
  // An extent that must equal this one: the same Dim, or another symbol with the same hint, so that
  // the rule has to find out and leave a guard.
  Dim MustEqual(const Dim& extent);
  // The number that was drawn for an extent. Use it only to pick arguments that must be plain
  // numbers.
  int64_t Drawn(const Dim& extent) const { return env_.Hint(extent); }

  Shape RandomShape(int min_rank, int max_rank);
  // The shape of an operand that broadcasts to `shape`: leading dimensions may be missing, others
  // be 1.
  Shape BroadcastOperand(const Shape& shape);
  // Every dimension through MustEqual.
  Shape MustEqual(const Shape& shape);
  // A dimension index of a tensor of that rank, possibly counted from the end.
  Dim RandomDim(int64_t rank);
  // A random subset of dimensions, in random order and spelling; `min_count` of them at least.
  Shape RandomDims(int64_t rank, int64_t min_count = 0);

  // Adds an operand and passes it as the next argument.
  Case& Tensor(DType dtype, const Shape& sizes, const TensorOptions& options = {});
  // Adds an operand with exactly this layout.
  Case& Tensor(const TensorType& type, const Dim& offset, const Dim& storage_elements,
               const TensorOptions& options = {});
  // Passes the operand that was added last once more (x * x).
  Case& SameTensor();
  // Passes the tensors that `add` adds as one list argument. A None() inside is a missing element.
  Case& TensorList(const std::function<void(Case&)>& add);
  // Any argument that is not a tensor. A number may be given where the schema says Tensor.
  Case& Arg(Argument argument);
  Case& None() { return Arg(std::monostate()); }
  Case& Int(Dim value) { return Arg(std::move(value)); }
  Case& Ints(Shape values) { return Arg(std::move(values)); }
  Case& Float(double value) { return Arg(value); }
  Case& Bool(bool value) { return Arg(value); }
  // A random number: integer, floating-point or boolean.
  Case& RandomNumber();
  // Leaves the argument at its default.
  Case& Default();

  // This call is one of few where a symbol may legitimately be pinned to its hint (a kernel that
  // wants a fixed extent).
  void AllowPinned() { pinned_allowed_ = true; }
  // The result may or may not share memory with an argument. Say why at the call.
  void IgnoreAliasing() { aliasing_ignored_ = true; }

  struct Operand {
    TensorType type;
    Dim offset;
    Dim storage;
    TensorOptions options;
  };
  const Operator& op() const { return op_; }
  // Where the operands live.
  static Device device();
  static bool on_cuda() { return device().kind == DeviceKind::kCuda; }
  Variant variant() const { return variant_; }
  const TensorType& operand_type(int i) const { return operands_[i].type; }
  ShapeEnv& env() { return env_; }
  const ShapeEnv& env() const { return env_; }
  const std::vector<Operand>& operands() const { return operands_; }
  const std::vector<Argument>& args() const { return args_; }

 private:
  friend class Runner;
  Dim NewSymbol(int64_t hint, int64_t low, int64_t high);
  void PushOperand(Operand operand);
  Case& ArbitraryTensor(DType dtype, const Shape& sizes, const TensorOptions& options);

  const Operator& op_;
  Variant variant_;
  std::mt19937_64 random_;
  ShapeEnv env_;
  std::vector<Operand> operands_;
  std::vector<Argument> args_;
  OperandList* list_ = nullptr;
  bool pinned_allowed_ = false;
  bool aliasing_ignored_ = false;
};

struct ConformOptions {
  bool data_variant = true;  // false: the rule needs to know its sizes; say why at the registration
  double share = 1.0;        // fewer iterations for slow operators
};

// Registers a generator and with it a test, Conformance.aten_mul_Tensor. Objects of namespace
// scope.
class Conform {
 public:
  Conform(std::string_view op, void (*generate)(Case&), ConformOptions options = {});
  Conform(std::initializer_list<std::string_view> ops, void (*generate)(Case&),
          ConformOptions options = {});
};
// Operators that have no case, and why.
class Exempt {
 public:
  Exempt(std::initializer_list<std::string_view> ops, std::string_view reason);
};

bool HasCases(std::string_view op);
// Why an operator has no case; empty if it should have one.
std::string_view ExemptionOf(std::string_view op);

inline constexpr DType kRealTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                       DType::kFloat16};
inline constexpr DType kFloatTypes[] = {DType::kFloat32, DType::kFloat64,   DType::kBFloat16,
                                        DType::kFloat16, DType::kComplex64, DType::kComplex128};
inline constexpr DType kIntTypes[] = {DType::kUInt8, DType::kInt8, DType::kInt16, DType::kInt32,
                                      DType::kInt64};
inline constexpr DType kAllTypes[] = {DType::kFloat32, DType::kFloat64,   DType::kBFloat16,
                                      DType::kFloat16, DType::kBool,      DType::kUInt8,
                                      DType::kInt8,    DType::kInt16,     DType::kInt32,
                                      DType::kInt64,   DType::kComplex64, DType::kComplex128};
inline constexpr DType kNonComplexTypes[] = {
    DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kBool,
    DType::kUInt8,   DType::kInt8,    DType::kInt16,    DType::kInt32,   DType::kInt64};
// Without bool.
inline constexpr DType kNumberTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                         DType::kFloat16, DType::kUInt8,   DType::kInt8,
                                         DType::kInt16,   DType::kInt32,   DType::kInt64};

}  // namespace gt::conformance
