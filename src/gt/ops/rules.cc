#include "gt/ops/rules.h"

#include <algorithm>
#include <numeric>

#include "gt/base/error.h"
#include "gt/ops/view_rules.h"

namespace gt::rules {
namespace {

bool IsFloat8(DType dtype) { return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2; }

// Rank 0, as every number has it where a kernel takes tensors.
const TensorType& NumberOperand() {
  static const TensorType kNumber{};
  return kNumber;
}

// `size`, at least 1: what strides are multiplied with when libtorch lays out a new row-major
// tensor.
Dim Padded(const ShapeEnv& env, const Dim& size) {
  if (auto value = size.as_const()) return std::max<int64_t>(*value, 1);
  int64_t low = size.as_symbol() ? env.symbol(*size.as_symbol()).low : env.Bounds(size).low;
  return low >= 1 ? size : Max(size, Dim(1));
}

}  // namespace

DType PromoteTypes(const RuleContext& ctx, DType a, DType b) {
  if (a == b) return a;
  if (IsFloat8(a) || IsFloat8(b)) {
    ctx.Reject(fmt::format("{} and {} do not promote to a common dtype; convert one of them",
                           DTypeName(a), DTypeName(b)));
  }
  if (IsComplex(a) || IsComplex(b)) {
    bool wide = RealOf(a) == DType::kFloat64 || RealOf(b) == DType::kFloat64;
    return wide ? DType::kComplex128 : DType::kComplex64;
  }
  if (IsFloating(a) || IsFloating(b)) {
    if (!IsFloating(a)) return b;
    if (!IsFloating(b)) return a;
    // Neither of the two half formats holds the other.
    bool halves = ItemSize(a) == 2 && ItemSize(b) == 2;
    return halves ? DType::kFloat32 : (ItemSize(a) > ItemSize(b) ? a : b);
  }
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  bool bytes = ItemSize(a) == 1 && ItemSize(b) == 1;  // u8 and i8
  return bytes ? DType::kInt16 : (ItemSize(a) > ItemSize(b) ? a : b);
}

bool IsIntegralOrBool(DType dtype) { return dtype == DType::kBool || IsIntegral(dtype); }

DType FloatFor(DType dtype) { return IsIntegralOrBool(dtype) ? kDefaultFloat : dtype; }

DType NumberType(const Argument& number) {
  if (std::holds_alternative<bool>(number)) return DType::kBool;
  if (std::holds_alternative<Dim>(number)) return DType::kInt64;
  return kDefaultFloat;
}

void Promotion::Merge(std::optional<DType>& into, DType dtype) {
  into = into ? PromoteTypes(ctx_, *into, dtype) : dtype;
}

void Promotion::AddTensor(const TensorType& tensor) {
  Merge(tensor.rank() > 0 ? dimensioned_ : zero_dim_, tensor.dtype);
}

void Promotion::AddNumber(const Argument& number) { Merge(number_, NumberType(number)); }

void Promotion::Add(int arg) {
  if (ctx_.IsNone(arg) && ctx_.op().schema.args[static_cast<size_t>(arg)].optional) return;
  if (ctx_.IsNumber(arg)) {
    AddNumber(ctx_.arg(arg));
  } else {
    AddTensor(ctx_.Tensor(arg));
  }
}

DType Promotion::Result() const {
  auto combine = [this](std::optional<DType> high, std::optional<DType> low) {
    if (!high || !low) return high ? high : low;
    if (IsComplex(*high)) return high;
    if (IsFloating(*high)) {
      if (!IsComplex(*low)) return high;
      if (*high == DType::kFloat16)
        ctx_.Reject("complex numbers of half precision are not supported");
      return std::optional(*high == DType::kFloat64 ? DType::kComplex128 : DType::kComplex64);
    }
    if (*high == DType::kBool || IsFloating(*low) || IsComplex(*low)) {
      return std::optional(PromoteTypes(ctx_, *high, *low));
    }
    return high;
  };
  std::optional<DType> result = combine(dimensioned_, combine(zero_dim_, number_));
  if (!result) ctx_.Reject("needs at least one tensor or number");
  return *result;
}

DType ResultType(const RuleContext& ctx, std::initializer_list<int> args) {
  Promotion promotion(ctx);
  for (int arg : args) promotion.Add(arg);
  return promotion.Result();
}

int64_t NormalizeDim(const RuleContext& ctx, int64_t dim, int64_t rank) {
  int64_t count = std::max<int64_t>(rank, 1);
  if (dim < -count || dim >= count) {
    ctx.Reject(fmt::format("dimension {} is out of range for a tensor of rank {}", dim, rank));
  }
  return dim < 0 ? dim + count : dim;
}

uint64_t DimMask(const RuleContext& ctx, std::span<const Dim> dims, int64_t rank,
                 bool empty_is_all) {
  if (dims.empty() && empty_is_all) return rank >= 64 ? ~0ull : (1ull << rank) - 1;
  uint64_t mask = 0;
  for (const Dim& dim : dims) {
    if (!dim.is_const()) ctx.Reject("a dimension index must be a plain number");
    uint64_t bit = 1ull << NormalizeDim(ctx, *dim.as_const(), rank);
    if (mask & bit) ctx.Reject(fmt::format("dimension {} is listed twice", *dim.as_const()));
    mask |= bit;
  }
  return mask;
}

Shape ReducedSizes(const Shape& sizes, uint64_t mask, bool keepdim) {
  Shape reduced;
  reduced.reserve(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!(mask >> i & 1)) {
      reduced.push_back(sizes[i]);
    } else if (keepdim) {
      reduced.emplace_back(1);
    }
  }
  return reduced;
}

namespace {

// Equal wherever the tensor they belong to has elements: libtorch clamps strides of empty
// dimensions in some places and not in others. This is asked for every dimension of every operand,
// so the expensive proof (by declared facts) is left for graphs that have any.
bool SameStride(const ShapeEnv& env, const Dim& a, const Dim& b) {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return false;
  bool clamped = !a.is_polynomial() || !b.is_polynomial();
  if (clamped && WithoutClamps(a) == WithoutClamps(b)) return true;
  return !env.facts().empty() && env.KnownEqual(a, b).value_or(false);
}

bool IsEmpty(const Shape& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const Dim& size) { return size.Is(0); });
}

// By range, without asking; sizes bound by data count as at least 2, as in IsOne.
bool NoSizeBelowTwo(const ShapeEnv& env, const Shape& sizes) {
  for (const Dim& size : sizes) {
    if (auto value = size.as_const()) {
      if (*value < 2) return false;
    } else if (auto symbol = size.as_symbol()) {
      if (env.symbol(*symbol).low < 2 && env.symbol(*symbol).kind != Symbol::Kind::kData)
        return false;
    } else if (env.Bounds(size).low < 2 && !env.HasDataSymbol(size)) {
      return false;
    }
  }
  return true;
}

// A tensor without elements has strides that reach nothing. With numbers they are still computed as
// libtorch does; it is not worth a guard on a symbol.
bool LayoutIsMoot(const Shape& sizes) {
  return IsEmpty(sizes) &&
         std::any_of(sizes.begin(), sizes.end(), [](const Dim& size) { return !size.is_const(); });
}

// Whether walking the dimensions in this order (innermost first) meets each stride as the product
// of the sizes before it: libtorch's loop for contiguous and channels-last. Sizes of one may have
// any stride.
template <typename Order>
bool IsDenseInOrder(ShapeEnv& env, const Shape& sizes, const Shape& strides, Order order) {
  Dim expected = 1;
  for (size_t k = 0; k < sizes.size(); ++k) {
    size_t i = order(k);
    if (sizes[i].Is(1)) continue;
    if (!SameStride(env, strides[i], expected)) {
      if (sizes[i].is_const() || !env.IsOne(sizes[i])) return false;
      continue;
    }
    if (k + 1 < sizes.size()) expected *= Padded(env, sizes[i]);
  }
  return true;
}

}  // namespace

bool HasNoElements(ShapeEnv& env, const Shape& sizes) {
  if (IsEmpty(sizes)) return true;
  return std::any_of(sizes.begin(), sizes.end(),
                     [&env](const Dim& size) { return !size.is_const() && env.IsEmptySize(size); });
}

bool IsContiguous(ShapeEnv& env, const Shape& sizes, const Shape& strides) {
  if (IsEmpty(sizes)) return true;
  size_t last = sizes.size();
  return IsDenseInOrder(env, sizes, strides, [last](size_t k) { return last - 1 - k; });
}

bool IsContiguous(ShapeEnv& env, const TensorType& type) {
  return IsContiguous(env, type.sizes, type.strides);
}

bool IsChannelsLast(ShapeEnv& env, const Shape& sizes, const Shape& strides) {
  if (sizes.size() != 4) return false;
  static constexpr size_t kOrder[] = {1, 3, 2, 0};
  return IsDenseInOrder(env, sizes, strides, [](size_t k) { return kOrder[k]; });
}

bool IsNonOverlappingAndDense(ShapeEnv& env, const Shape& sizes, const Shape& strides) {
  if (IsContiguous(env, sizes, strides)) return true;
  std::array<int8_t, kMaxRank> left;
  int count = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].Is(1)) left[count++] = static_cast<int8_t>(i);
  }
  // Dimensions are taken from the innermost outwards: the next one is the one whose stride is the
  // product so far. Strides grow strictly, so at most one fits, and the order in which candidates
  // are tried does not matter.
  Dim expected = 1;
  while (count > 0) {
    int next = 0;
    while (next < count && !SameStride(env, strides[left[next]], expected)) ++next;
    if (next == count) {
      next = 0;
      while (next < count && (sizes[left[next]].is_const() || !env.IsOne(sizes[left[next]])))
        ++next;
      if (next == count) return false;
    }
    expected *= Padded(env, sizes[left[next]]);
    left[next] = left[--count];
  }
  return true;
}

namespace {

// Whether `large` is a multiple of `small` and more than once as large, for all values of the
// symbols. Strides of one tensor usually are; the interval of a difference of products is too wide
// to see that 16 * s0 * s1 exceeds 16 * s1, the quotient is not.
bool KnownMultiple(const ShapeEnv& env, const Dim& small, const Dim& large) {
  if (small.is_const() ? *small.as_const() <= 0 : env.Bounds(small).low <= 0) return false;
  Dim quotient = FloorDiv(large, small);
  if (env.Bounds(quotient).low <= 1) return false;
  return quotient * small == large;
}

// -1, 1, or 0 for not known. Both must be positive.
int KnownOrder(const ShapeEnv& env, const Dim& a, const Dim& b) {
  if (KnownMultiple(env, a, b) || env.KnownLess(a, b).value_or(false)) return -1;
  if (KnownMultiple(env, b, a) || env.KnownLess(b, a).value_or(false)) return 1;
  return 0;
}

// Whether every symbol may be taken to be at least 2: data symbols always (as in IsOne), input
// symbols if they are, which leaves a guard unless their range says so.
bool AllAtLeastTwo(ShapeEnv& env, const Dim& dim) {
  bool all = true;
  dim.ForEachSymbol([&](SymbolId id) {
    const Symbol& symbol = env.symbol(id);
    if (symbol.low >= 2 || symbol.kind == Symbol::Kind::kData) return;
    all = all && env.Less(1, Dim::Symbol(id));
  });
  return all;
}

// The expression over symbols moved so that their ranges start at 2; clamps at 1 are then never
// reached.
Dim FromTwo(const ShapeEnv& env, const Dim& dim) {
  return WithoutClamps(dim).Substitute([&env](SymbolId id) {
    int64_t low = env.symbol(id).low;
    return low < 2 ? Dim::Symbol(id) + Dim(2 - low) : Dim::Symbol(id);
  });
}

}  // namespace

int CompareStrides(ShapeEnv& env, const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) {
    int64_t x = *a.as_const(), y = *b.as_const();
    return x < y ? -1 : x > y;
  }
  if (a == b) return 0;
  if (int order = KnownOrder(env, a, b)) return order;
  // Sizes of zero and one are where layouts become ambiguous. Settling that first answers nearly
  // every comparison, with the plain guard 1 < s0 instead of one for each pair of strides.
  if (AllAtLeastTwo(env, a) && AllAtLeastTwo(env, b)) {
    Dim x = FromTwo(env, a), y = FromTwo(env, b);
    if (x == y) return 0;
    if (int order = KnownOrder(env, x, y)) return order;
  }
  if (env.Less(a, b)) return -1;
  return env.Equal(a, b) ? 0 : 1;
}

void SortDimensions(ShapeEnv& env, const Shape& sizes, std::span<const Shape* const> strides,
                    std::span<int8_t> permutation) {
  int rank = static_cast<int>(sizes.size());
  for (int i = 0; i < rank; ++i) permutation[i] = static_cast<int8_t>(rank - 1 - i);
  auto is_zero = [&env](const Dim& stride) {
    return stride.is_const() ? stride.Is(0) : env.EqualOrUnknown(stride, 0);
  };
  // Positive if `inner` must be outside `outer`, negative if the order is right, 0 if no operand
  // cares.
  auto compare = [&](int inner, int outer) {
    for (const Shape* operand : strides) {
      const Dim& a = (*operand)[inner];
      const Dim& b = (*operand)[outer];
      if (is_zero(a) || is_zero(b)) continue;
      if (int order = CompareStrides(env, a, b)) return order;
      // Equal strides: the larger dimension is outside.
      if (sizes[inner] != sizes[outer] && CompareStrides(env, sizes[inner], sizes[outer]) > 0) {
        return 1;
      }
    }
    return 0;
  };
  // libtorch's insertion sort, step by step: with ambiguous comparisons the outcome depends on the
  // algorithm.
  for (int i = 1; i < rank; ++i) {
    int moving = i;
    for (int j = i - 1; j >= 0; --j) {
      int order = compare(permutation[j], permutation[moving]);
      if (order > 0) {
        std::swap(permutation[j], permutation[moving]);
        moving = j;
      } else if (order < 0) {
        break;
      }
    }
  }
}

Shape DenseStrides(ShapeEnv& env, const Shape& sizes, const Shape& strides) {
  size_t rank = sizes.size();
  if (rank == 0) return {};
  if (rank == 1) return {Dim(1)};
  if (LayoutIsMoot(sizes)) return ContiguousStrides(sizes, env);
  std::array<int8_t, kMaxRank> order;
  const Shape* operand = &strides;
  SortDimensions(env, sizes, {&operand, 1}, {order.data(), rank});
  Shape dense(rank);
  Dim stride = 1;
  for (size_t i = 0; i < rank; ++i) {
    dense[order[i]] = stride;
    if (i + 1 < rank) stride *= Padded(env, sizes[order[i]]);
  }
  return dense;
}

Shape PreservedStrides(ShapeEnv& env, const TensorType& type) {
  if (IsNonOverlappingAndDense(env, type.sizes, type.strides)) return type.strides;
  return DenseStrides(env, type.sizes, type.strides);
}

Shape StridesInFormat(ShapeEnv& env, const TensorType& like, std::optional<MemoryFormat> format,
                      MemoryFormat fallback) {
  return format.value_or(fallback) == MemoryFormat::kPreserve ? PreservedStrides(env, like)
                                                              : ContiguousStrides(like.sizes, env);
}

void ReturnContiguous(RuleContext& ctx, const TensorType& like, Shape sizes) {
  ctx.Return(ContiguousType(like.dtype, like.device, std::move(sizes), ctx.env()));
}

TensorType Contiguous(RuleContext& ctx, DType dtype, Device device, Shape sizes) {
  return ContiguousType(dtype, device, std::move(sizes), ctx.env());
}

namespace {

// One dimension of a broadcast; sets `differ` if the two sizes are not the same.
const Dim& BroadcastSize(RuleContext& ctx, const Dim& a, const Dim& b, bool& differ) {
  if (a == b) return a;
  ShapeEnv& env = ctx.env();
  if (a.Is(1) || b.Is(1)) {
    const Dim& other = a.Is(1) ? b : a;
    differ |= !env.IsOne(other);
    return other;
  }
  if (env.IsOne(a)) {
    differ |= !env.IsOne(b);
    return b;
  }
  if (env.IsOne(b)) {
    differ = true;
    return a;
  }
  if (!env.Equal(a, b)) {
    ctx.Reject(fmt::format("sizes {} and {} do not broadcast", env.Print(a), env.Print(b)));
  }
  return a.is_const() ? a : b;
}

}  // namespace

Shape Broadcast(RuleContext& ctx, const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  size_t offset = longer.size() - shorter.size();
  bool differ = false;
  for (size_t i = 0; i < shorter.size(); ++i) {
    if (result[offset + i] != shorter[i]) {
      result[offset + i] = Dim(BroadcastSize(ctx, longer[offset + i], shorter[i], differ));
    }
  }
  return result;
}

void RequireEqual(RuleContext& ctx, const Dim& a, const Dim& b, const char* what) {
  if (a == b || ctx.env().Equal(a, b)) return;
  ctx.Reject(fmt::format("{}: {} is not {}", what, ctx.env().Print(a), ctx.env().Print(b)));
}

void RequireBroadcastsTo(RuleContext& ctx, const Shape& from, const Shape& to, const char* what) {
  if (from == to) return;
  if (from.size() > to.size()) ctx.Reject(what);
  size_t offset = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == to[offset + i] || ctx.env().IsOne(from[i])) continue;
    RequireEqual(ctx, from[i], to[offset + i], what);
  }
}

Shape ExpandedStrides(RuleContext& ctx, const TensorType& tensor, const Shape& sizes) {
  size_t offset = sizes.size() - tensor.sizes.size();
  Shape strides(sizes.size(), Dim(0));
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    const Dim& from = tensor.sizes[i];
    const Dim& to = sizes[offset + i];
    bool repeated = from != to && ctx.env().IsOne(from) && !ctx.env().IsOne(to);
    strides[offset + i] = repeated ? Dim(0) : tensor.strides[i];
  }
  return strides;
}

Pointwise& Pointwise::Add(int arg) {
  if (ctx_.IsNone(arg)) return *this;
  return ctx_.IsNumber(arg) ? AddNumber() : AddTensor(ctx_.Tensor(arg));
}

Pointwise& Pointwise::AddTensor(const TensorType& tensor) {
  GT_CHECK(count_ < kMaxInputs, "a pointwise operator has more than {} inputs", kMaxInputs);
  inputs_[count_++] = &tensor;
  return *this;
}

Pointwise& Pointwise::AddNumber() { return AddTensor(NumberOperand()); }

const TensorType& Pointwise::Converted(const TensorType& input, DType dtype) {
  // A 0-dim tensor has no layout that could change.
  if (input.dtype == dtype || input.rank() == 0) return input;
  TensorType& converted = converted_[converted_count_++];
  converted = {dtype, input.device, input.sizes, PreservedStrides(ctx_.env(), input)};
  return converted;
}

Pointwise& Pointwise::AddConverted(int arg, DType dtype) {
  if (ctx_.IsNone(arg)) return *this;
  return ctx_.IsNumber(arg) ? AddNumber() : AddTensor(Converted(ctx_.Tensor(arg), dtype));
}

Pointwise& Pointwise::ConvertTo(DType common) {
  for (int i = 0; i < count_; ++i) {
    if (inputs_[i]->device.kind == DeviceKind::kCpu) inputs_[i] = &Converted(*inputs_[i], common);
  }
  return *this;
}

void Pointwise::ComputeShape() {
  have_shape_ = true;
  bool any_scalar = false, any_dimensioned = false;
  bool first = true;
  for (int i = 0; i < count_; ++i) {
    const Shape& sizes = inputs_[i]->sizes;
    (sizes.empty() ? any_scalar : any_dimensioned) = true;
    if (first || shape_.empty()) {
      shape_ = sizes;
      first = false;
      continue;
    }
    if (sizes.empty()) continue;
    if (sizes.size() != shape_.size()) {
      same_shape_ = false;
      shape_ = Broadcast(ctx_, shape_, sizes);
      continue;
    }
    bool differ = false;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (shape_[d] != sizes[d]) shape_[d] = Dim(BroadcastSize(ctx_, shape_[d], sizes[d], differ));
    }
    if (differ) same_shape_ = false;
  }
  if (any_scalar && any_dimensioned) same_shape_ = false;
}

const Shape& Pointwise::sizes() {
  if (!have_shape_) ComputeShape();
  return shape_;
}

Shape Pointwise::ComputeStrides() {
  ShapeEnv& env = ctx_.env();
  size_t rank = shape_.size();
  if (rank == 0) return {};
  std::span<const TensorType* const> inputs(inputs_.data(), static_cast<size_t>(count_));
  // The case that nearly always applies. Where no size is 0 or 1, strides of a dense tensor are
  // distinct, so the first input decides the order of all dimensions alone, and dense strides in
  // that order are its own.
  const TensorType* leader = nullptr;
  for (int i = 0; i < count_ && leader == nullptr; ++i) {
    if (inputs[i]->rank() > 0) leader = inputs[i];
  }
  if (leader->sizes == shape_ && NoSizeBelowTwo(env, shape_) &&
      IsNonOverlappingAndDense(env, shape_, leader->strides)) {
    return leader->strides;
  }
  // One predicate after the other over all inputs, as libtorch's fast path does it.
  if (same_shape_) {
    auto all = [&](auto&& holds) {
      return std::all_of(inputs.begin(), inputs.end(), [&](const TensorType* input) {
        return holds(input->sizes, input->strides);
      });
    };
    bool contiguous = all([&](const Shape& sizes, const Shape& strides) {
      return IsContiguous(env, sizes, strides);
    });
    if (contiguous) return ContiguousStrides(shape_, env);
    bool channels_last = rank == 4 && all([&](const Shape& sizes, const Shape& strides) {
                           return IsChannelsLast(env, sizes, strides);
                         });
    if (channels_last) {
      Shape strides(4);
      strides[1] = 1;
      strides[3] = Padded(env, shape_[1]);
      strides[2] = strides[3] * Padded(env, shape_[3]);
      strides[0] = strides[2] * Padded(env, shape_[2]);
      return strides;
    }
    bool dense = all([&](const Shape& sizes, const Shape& strides) {
      return IsNonOverlappingAndDense(env, sizes, strides);
    });
    if (dense) {
      const Shape& last = inputs.back()->strides;
      bool equal = all([&](const Shape&, const Shape& strides) {
        for (size_t d = 0; d < rank; ++d) {
          if (!SameStride(env, strides[d], last[d])) return false;
        }
        return true;
      });
      if (equal) return last;
    }
  }
  if (LayoutIsMoot(shape_)) return ContiguousStrides(shape_, env);
  // Strides of each input over the common shape: 0 where it is broadcast. Inputs without dimensions
  // have no say.
  std::array<Shape, kMaxInputs> spread;
  std::array<const Shape*, kMaxInputs> operands;
  size_t operand_count = 0;
  for (const TensorType* input : inputs) {
    if (input->rank() == 0) continue;
    bool as_is = input->sizes == shape_;
    if (!as_is) spread[operand_count] = ExpandedStrides(ctx_, *input, shape_);
    operands[operand_count] = as_is ? &input->strides : &spread[operand_count];
    ++operand_count;
  }
  std::array<int8_t, kMaxRank> order;
  SortDimensions(env, shape_, {operands.data(), operand_count}, {order.data(), rank});
  bool row_major = true;
  for (size_t i = 0; i < rank; ++i) row_major &= order[i] == static_cast<int8_t>(rank - 1 - i);
  if (row_major) return ContiguousStrides(shape_, env);
  // Unlike a row-major allocation, a permuted one multiplies by sizes as they are, zero included.
  Shape strides(rank);
  Dim stride = 1;
  for (size_t i = 0; i < rank; ++i) {
    strides[order[i]] = stride;
    if (i + 1 < rank) stride *= shape_[order[i]];
  }
  return strides;
}

TensorType Pointwise::Result(DType dtype) {
  if (!have_shape_) ComputeShape();
  // A 0-dim CPU tensor may accompany tensors of another device; it has no say in where the result
  // lives.
  const TensorType* placed = nullptr;
  for (int i = 0; i < count_; ++i) {
    const TensorType* input = inputs_[i];
    if (input == &NumberOperand()) continue;
    bool weak = input->rank() == 0 && input->device.kind == DeviceKind::kCpu;
    if (!placed || (placed->rank() == 0 && placed->device.kind == DeviceKind::kCpu && !weak)) {
      placed = input;
    }
  }
  TensorType result;
  result.dtype = dtype;
  if (placed) result.device = placed->device;
  result.strides = ComputeStrides();
  result.sizes = std::move(shape_);
  return result;
}

TensorType PointwiseResult(RuleContext& ctx, std::initializer_list<int> args, Compute compute) {
  Pointwise pointwise(ctx);
  Promotion promotion(ctx);
  for (int arg : args) {
    pointwise.Add(arg);
    promotion.Add(arg);
  }
  DType common = promotion.Result();
  if (compute == Compute::kFloat) common = FloatFor(common);
  pointwise.ConvertTo(common);
  return pointwise.Result(compute == Compute::kBool ? DType::kBool : common);
}

Dim NoFlops(const CostContext&) { return 0; }

}  // namespace gt::rules
