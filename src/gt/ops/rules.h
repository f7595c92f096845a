// What shape rules have in common: dtype promotion, broadcasting, and where libtorch puts the
// elements of a new tensor. Everything here reproduces libtorch's answer exactly, strides of
// size-one dimensions included, because a graph whose strides differ from what the kernels produce
// would plan views that do not exist. Sizes are Dims: each decision asks the ShapeEnv, which
// answers from structure if it can and leaves a guard if it cannot.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "gt/ir/operator.h"
#include "gt/ir/shape_env.h"
#include "gt/ir/type.h"

namespace gt::rules {

// libtorch's limit (TensorIterator and dim bit sets use 64).
inline constexpr int kMaxRank = 64;
// What integers become where an operator needs floating point, and what a floating-point number
// counts as.
inline constexpr DType kDefaultFloat = DType::kFloat32;

// Dtypes.

// The smallest dtype that both fit into, by libtorch's table. Rejects float8 mixed with anything
// else, as libtorch does.
DType PromoteTypes(const RuleContext& ctx, DType a, DType b);

bool IsIntegralOrBool(DType dtype);
// bool and integers become kDefaultFloat, others stay.
DType FloatFor(DType dtype);

// Promotion among the arguments of one call: tensors with dimensions outrank tensors without, which
// outrank numbers; a lower rank only counts if it brings a higher category (bool < integer < float
// < complex).
class Promotion {
 public:
  explicit Promotion(const RuleContext& ctx) : ctx_(ctx) {}
  void AddTensor(const TensorType& tensor);
  void AddNumber(const Argument& number);
  // Whatever is at the schema position: a tensor, a number, or nothing.
  void Add(int arg);
  DType Result() const;

 private:
  void Merge(std::optional<DType>& into, DType dtype);
  const RuleContext& ctx_;
  std::optional<DType> dimensioned_, zero_dim_, number_;
};
DType ResultType(const RuleContext& ctx, std::initializer_list<int> args);
// bool, i64 or f32, as a 0-dim tensor made of this number would have (doubles count as the default
// float).
DType NumberType(const Argument& number);

// Dimension indices.

// A dimension counted from the end becomes one counted from the front; out of range is rejected. A
// 0-dim tensor counts as having one dimension, as in libtorch.
int64_t NormalizeDim(const RuleContext& ctx, int64_t dim, int64_t rank);
// The set of dimensions as bits. An empty list means all of them if `empty_is_all`. Duplicates are
// rejected.
uint64_t DimMask(const RuleContext& ctx, std::span<const Dim> dims, int64_t rank,
                 bool empty_is_all);
Shape ReducedSizes(const Shape& sizes, uint64_t mask, bool keepdim);

// Layout.

// The predicates libtorch keeps on every tensor. Whether a symbolic size is one may be asked, since
// dimensions of size one have strides that mean nothing but steer how others are sorted. Whether a
// stride happens to equal what density wants is not asked: it is true only if it holds for all
// values. Taking a tensor as not dense that is dense at some sizes gives the same strides there
// (dense strides in sorted order are those strides), and a guard would pin the size or forbid it.
// A tensor without elements is dense whatever its strides are.
bool IsContiguous(ShapeEnv& env, const Shape& sizes, const Shape& strides);
bool IsContiguous(ShapeEnv& env, const TensorType& type);
bool IsChannelsLast(ShapeEnv& env, const Shape& sizes, const Shape& strides);  // 4-d only
bool IsNonOverlappingAndDense(ShapeEnv& env, const Shape& sizes, const Shape& strides);

// Whether some size is zero; asks, so that an answer from hints leaves a guard.
bool HasNoElements(ShapeEnv& env, const Shape& sizes);

// Dense strides that keep the order of the given ones (at::infer_dense_strides).
Shape DenseStrides(ShapeEnv& env, const Shape& sizes, const Shape& strides);
// What empty_like, clone and to() give a result under torch.preserve_format: the strides as they
// are if the tensor is dense, else dense ones in the same order.
Shape PreservedStrides(ShapeEnv& env, const TensorType& type);
// As above for any memory format: preserve or contiguous (also when none is given and `fallback`
// says so).
Shape StridesInFormat(ShapeEnv& env, const TensorType& like, std::optional<MemoryFormat> format,
                      MemoryFormat fallback);

TensorType Contiguous(RuleContext& ctx, DType dtype, Device device, Shape sizes);
// A row-major result of these sizes, with the dtype and device of `like`.
void ReturnContiguous(RuleContext& ctx, const TensorType& like, Shape sizes);

// Broadcasting.

// Rejects shapes that do not fit; leaves guards for sizes that must be equal.
Shape Broadcast(RuleContext& ctx, const Shape& a, const Shape& b);
// Fails unless the two sizes are equal; a guard is left where they are only equal by hint.
void RequireEqual(RuleContext& ctx, const Dim& a, const Dim& b, const char* what);
// Fails unless `from` broadcasts to exactly `to`: an operand that is added to, or written into,
// something of that shape.
void RequireBroadcastsTo(RuleContext& ctx, const Shape& from, const Shape& to, const char* what);
// The strides that Tensor::expand gives (0 where a dimension is repeated). `sizes` must be a
// broadcast of the tensor's.
Shape ExpandedStrides(RuleContext& ctx, const TensorType& tensor, const Shape& sizes);

// TensorIterator.

// The inputs of one pointwise kernel and the layout libtorch's TensorIterator gives its result. Up
// to 8 inputs; the order of inputs matters, since it breaks ties between layouts.
class Pointwise {
 public:
  explicit Pointwise(RuleContext& ctx) : ctx_(ctx) {}
  // Argument at a schema position: a tensor, or a number (which is a 0-dim tensor on the CPU). None
  // adds nothing.
  Pointwise& Add(int arg);
  Pointwise& AddTensor(const TensorType& tensor);
  Pointwise& AddNumber();

  // As Add, for operators that call to(dtype) on an argument before the kernel sees it: a converted
  // tensor is dense, which shows in the layout of the result.
  Pointwise& AddConverted(int arg, DType dtype);
  // For operators that leave promotion to TensorIterator. On the CPU it converts inputs of another
  // dtype than `common` as to() does; on other devices the kernel converts element by element and
  // the layout is that of the inputs.
  Pointwise& ConvertTo(DType common);

  // Shape, strides and device of the result.
  TensorType Result(DType dtype);
  // The shape alone; computed on demand.
  const Shape& sizes();

 private:
  static constexpr int kMaxInputs = 8;
  const TensorType& Converted(const TensorType& input, DType dtype);
  void ComputeShape();
  Shape ComputeStrides();

  RuleContext& ctx_;
  int count_ = 0;
  std::array<const TensorType*, kMaxInputs> inputs_{};
  std::array<TensorType, 4> converted_;
  int converted_count_ = 0;
  bool have_shape_ = false;
  bool same_shape_ = true;
  Shape shape_;
};

// The common cases. `args` are schema positions of tensors or numbers.
enum class Compute : uint8_t {
  kSame,   // result dtype is the promoted one
  kFloat,  // integers become floating point first (exp, div, sigmoid)
  kBool,   // comparisons: computed in the promoted dtype, result bool
};
TensorType PointwiseResult(RuleContext& ctx, std::initializer_list<int> args, Compute compute);

// Order of dimensions from innermost to outermost as TensorIterator sorts them, for kernels that
// sort on their own. `strides` holds one Shape per operand; broadcast dimensions have stride 0.
void SortDimensions(ShapeEnv& env, const Shape& sizes, std::span<const Shape* const> strides,
                    std::span<int8_t> permutation);
// -1, 0 or 1. Data-bound sizes count as at least 2, like in IsOne; what is still open then is an
// error. A comparison of input sizes that holds as soon as they are at least 2 leaves just that as
// its guard.
int CompareStrides(ShapeEnv& env, const Dim& a, const Dim& b);

// Costs.

Dim NoFlops(const CostContext& ctx);
// Operations for each element of the argument at a schema position.
template <int kArg, int kPerElement>
Dim ElementFlops(const CostContext& ctx) {
  return Dim(kPerElement) * ctx.Tensor(kArg).numel();
}

}  // namespace gt::rules
