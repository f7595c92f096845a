// Operators that move elements about: looking up and scattering by index tensors, joining, padding,
// repeating.
//
// Sizes that depend on data have no rule here on purpose (nonzero, masked_select, boolean masks as
// indices): what they return would have to be read back during the step. The messages name what to
// write instead.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gt/ops/index_sharding.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/view_rules.h"
#include "gt/ops/view_sharding.h"

namespace gt {
namespace {

using rules::NormalizeDim;
using rules::RequireEqual;
using rules::ReturnContiguous;

void CheckIndexType(const RuleContext& ctx, const TensorType& index) {
  if (index.dtype != DType::kInt64 && index.dtype != DType::kInt32) {
    ctx.Reject(fmt::format("an index must be i64 or i32, not {}", DTypeName(index.dtype)));
  }
}

void CheckSameType(const RuleContext& ctx, const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype) {
    ctx.Reject(fmt::format("the tensors must have one dtype, not {} and {}", DTypeName(a.dtype),
                           DTypeName(b.dtype)));
  }
}

// The clone that functional forms of in-place operators start from.
void ReturnPreserved(RuleContext& ctx, const TensorType& self) {
  ctx.Return({self.dtype, self.device, self.sizes, rules::PreservedStrides(ctx.env(), self)});
}

void EmbeddingRule(RuleContext& ctx) {
  const TensorType &weight = ctx.Tensor(0), &indices = ctx.Tensor(1);
  if (weight.rank() != 2) ctx.Reject("the weight must have two dimensions");
  CheckIndexType(ctx, indices);
  if (ctx.Bool(4)) ctx.Reject("sparse gradients are not supported; use sparse=False");
  Shape sizes = indices.sizes;
  sizes.push_back(weight.sizes[1]);
  ReturnContiguous(ctx, weight, std::move(sizes));
}

void EmbeddingBackwardRule(RuleContext& ctx) {
  const TensorType &grad = ctx.Tensor(0), &indices = ctx.Tensor(1);
  CheckIndexType(ctx, indices);
  if (grad.rank() != indices.rank() + 1) {
    ctx.Reject("the gradient must have the dimensions of the indices and one more");
  }
  ReturnContiguous(ctx, grad, {ctx.Int(2), grad.sizes.back()});
}

constexpr size_t kMaxIndices =
    7;  // with the indexed tensor, as many inputs as a pointwise kernel takes

// What indexing by tensors does to a shape: the indexed dimensions are replaced by the shape of the
// indices.
class AdvancedIndex {
 public:
  AdvancedIndex(RuleContext& ctx, const TensorType& self,
                const std::vector<const TensorType*>& given)
      : ctx_(ctx) {
    if (given.size() > self.sizes.size())
      ctx.Reject("has more indices than the tensor has dimensions");
    CollectIndices(given);
    std::array<size_t, rules::kMaxRank> order;
    Arrange(self, given, order);
    // The kernel walks the result; the indexed tensor has stride 0 along the replaced dimensions.
    source_ = {self.dtype, self.device, {}, {}};
    size_t before = 0, after = 0;
    bool placed = false;
    for (size_t k = 0; k < self.sizes.size(); ++k) {
      size_t d = order[k];
      bool indexed = d < given.size() && given[d] != nullptr;
      if (indexed) {
        if (placed) continue;
        placed = true;
        source_.sizes.insert(source_.sizes.end(), shape_.begin(), shape_.end());
        source_.strides.resize(source_.sizes.size(), Dim(0));
        continue;
      }
      ++(placed ? after : before);
      source_.sizes.push_back(self.sizes[d]);
      source_.strides.push_back(self.strides[d]);
    }
    SpreadIndices(before, after);
  }

  // What is selected, and what index_put writes to.
  const Shape& sizes() const { return source_.sizes; }

  TensorType Result() {
    rules::Pointwise pointwise(ctx_);
    pointwise.AddTensor(source_);
    for (size_t i = 0; i < count_; ++i) pointwise.AddTensor(indices_[i]);
    return pointwise.Result(source_.dtype);
  }

 private:
  void CollectIndices(const std::vector<const TensorType*>& given) {
    for (const TensorType* index : given) {
      if (index == nullptr) continue;
      if (index->dtype == DType::kBool || index->dtype == DType::kUInt8) {
        ctx_.Reject(
            "a boolean mask as index selects a number of elements that only the data knows; use "
            "where, masked_fill, or index with sorted positions");
      }
      CheckIndexType(ctx_, *index);
      if (count_ == kMaxIndices) ctx_.Reject("has too many index tensors");
      indices_[count_++] = *index;
    }
    if (count_ == 0) ctx_.Reject("needs at least one index tensor");
    shape_ = indices_[0].sizes;
    for (size_t i = 1; i < count_; ++i) {
      if (indices_[i].sizes != shape_) shape_ = rules::Broadcast(ctx_, shape_, indices_[i].sizes);
    }
  }

  // Order of the tensor's dimensions: as they are if the indexed ones are adjacent, else the
  // indexed ones first.
  void Arrange(const TensorType& self, const std::vector<const TensorType*>& given,
               std::array<size_t, rules::kMaxRank>& order) {
    size_t first = given.size(), last = 0;
    for (size_t d = 0; d < given.size(); ++d) {
      if (given[d] == nullptr) continue;
      first = std::min(first, d);
      last = d;
    }
    size_t rank = self.sizes.size(), next = 0;
    bool together = last - first + 1 == count_;
    if (!together) {
      for (size_t d = 0; d < given.size(); ++d) {
        if (given[d] != nullptr) order[next++] = d;
      }
    }
    for (size_t d = 0; d < rank; ++d) {
      if (together || d >= given.size() || given[d] == nullptr) order[next++] = d;
    }
  }

  // The indices expanded to their common shape and placed among the dimensions that are not
  // indexed.
  void SpreadIndices(size_t before, size_t after) {
    Shape spread(before, Dim(1));
    spread.insert(spread.end(), shape_.begin(), shape_.end());
    spread.resize(spread.size() + after, Dim(1));
    for (size_t i = 0; i < count_; ++i) {
      TensorType& index = indices_[i];
      if (index.sizes != shape_) {
        index.strides = rules::ExpandedStrides(ctx_, index, shape_);
        index.sizes = shape_;
      }
      // The kernel takes i64 only; what is converted is dense.
      if (index.dtype == DType::kInt32) {
        index.dtype = DType::kInt64;
        index.strides = rules::PreservedStrides(ctx_.env(), index);
      }
      index = rules::Reshaped(ctx_, index, spread);
    }
    if (source_.device.kind != DeviceKind::kCuda || count_ < 2) return;
    // The CUDA kernel wants all indices laid out alike.
    bool alike =
        std::all_of(indices_.begin(), indices_.begin() + static_cast<int64_t>(count_),
                    [&](const TensorType& index) { return index.strides == indices_[0].strides; });
    for (size_t i = 0; i < count_ && !alike; ++i) {
      if (!rules::IsContiguous(ctx_.env(), indices_[i])) {
        indices_[i].strides = ContiguousStrides(indices_[i].sizes, ctx_.env());
      }
    }
  }

  RuleContext& ctx_;
  size_t count_ = 0;
  std::array<TensorType, kMaxIndices> indices_;
  Shape shape_;  // of the indices, broadcast
  TensorType source_;
};

void IndexRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(AdvancedIndex(ctx, self, ctx.Tensors(1)).Result());
}

void IndexPutRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(0), &values = ctx.Tensor(2);
  CheckSameType(ctx, self, values);
  std::vector<const TensorType*> indices = ctx.Tensors(1);
  // A mask is fine here: how many elements it selects does not show in the result. The kernel
  // checks the values then.
  bool masked = std::any_of(indices.begin(), indices.end(), [](const TensorType* index) {
    return index != nullptr && index->dtype == DType::kBool;
  });
  if (!masked) {
    AdvancedIndex selected(ctx, self, indices);
    rules::RequireBroadcastsTo(ctx, values.sizes, selected.sizes(),
                               "the values must broadcast to what the indices select");
  }
  ReturnPreserved(ctx, self);
}

void IndexSelectRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(0), &index = ctx.Tensor(2);
  CheckIndexType(ctx, index);
  if (index.rank() > 1) ctx.Reject("the index must have at most one dimension");
  int64_t dim = NormalizeDim(ctx, ctx.ConstInt(1), self.rank());
  Shape sizes = self.sizes;
  if (!sizes.empty()) {
    sizes[static_cast<size_t>(dim)] = index.sizes.empty() ? Dim(1) : index.sizes[0];
  }
  ReturnContiguous(ctx, self, std::move(sizes));
}

void CheckIndexed(RuleContext& ctx, const TensorType& self, const TensorType& index,
                  const TensorType* source) {
  CheckIndexType(ctx, index);
  if (index.rank() > 1) ctx.Reject("the index must have at most one dimension");
  auto dim = static_cast<size_t>(NormalizeDim(ctx, ctx.ConstInt(1), self.rank()));
  if (source == nullptr) return;
  CheckSameType(ctx, self, *source);
  if (index.sizes.empty() || source->sizes.empty() || self.sizes.empty()) return;
  if (source->rank() != self.rank()) ctx.Reject("source and self must have the same rank");
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    RequireEqual(ctx, source->sizes[i], i == dim ? index.sizes[0] : self.sizes[i],
                 "source must have self's sizes, with the index's length in the dimension");
  }
}

void IndexAddRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  CheckIndexed(ctx, self, ctx.Tensor(2), &ctx.Tensor(3));
  ReturnContiguous(ctx, self, self.sizes);
}

void IndexFillRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  CheckIndexed(ctx, self, ctx.Tensor(2), nullptr);
  ReturnPreserved(ctx, self);
}

void CheckGathered(RuleContext& ctx, const TensorType& self, const TensorType& index) {
  CheckIndexType(ctx, index);
  NormalizeDim(ctx, ctx.ConstInt(1), self.rank());
  // A tensor without dimensions counts as having one.
  if (std::max<int64_t>(self.rank(), 1) != std::max<int64_t>(index.rank(), 1) &&
      !rules::HasNoElements(ctx.env(), index.sizes)) {
    ctx.Reject("the index must have as many dimensions as the tensor it indexes");
  }
}

void GatherRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(0), &index = ctx.Tensor(2);
  CheckGathered(ctx, self, index);
  ReturnContiguous(ctx, self, index.sizes);
}

void ScatterValueRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  CheckGathered(ctx, self, ctx.Tensor(2));
  ReturnContiguous(ctx, self, self.sizes);
}

void ScatterRule(RuleContext& ctx) {
  CheckSameType(ctx, ctx.Tensor(0), ctx.Tensor(3));
  ScatterValueRule(ctx);
}

void TakeRule(RuleContext& ctx) {
  CheckIndexType(ctx, ctx.Tensor(1));
  ReturnContiguous(ctx, ctx.Tensor(0), ctx.Tensor(1).sizes);
}

void PutRule(RuleContext& ctx) {
  CheckIndexType(ctx, ctx.Tensor(1));
  CheckSameType(ctx, ctx.Tensor(0), ctx.Tensor(2));
  ReturnPreserved(ctx, ctx.Tensor(0));
}

void MaskedScatterRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(0), &mask = ctx.Tensor(1);
  if (mask.dtype != DType::kBool) ctx.Reject("the mask must be boolean");
  CheckSameType(ctx, self, ctx.Tensor(2));
  ReturnContiguous(ctx, self, rules::Broadcast(ctx, self.sizes, mask.sizes));
}

// libtorch's guess that a tensor of images holds its channels innermost, made from strides alone.
// It matters for any tensor of four or five dimensions that has dimension 1 innermost: results are
// laid out the same way.
bool SuggestsChannelsLast(ShapeEnv& env, const TensorType& type) {
  static constexpr size_t kImages[] = {1, 3, 2, 0}, kVolumes[] = {1, 4, 3, 2, 0};
  size_t rank = type.sizes.size();
  if (rank != 4 && rank != 5) return false;
  std::span<const size_t> order = rank == 4 ? std::span<const size_t>(kImages) : kVolumes;
  const Dim& channel = type.strides[1];
  if (channel.Is(0)) return false;
  Dim least = 0;
  for (size_t d : order) {
    const Dim &size = type.sizes[d], &stride = type.strides[d];
    if (env.IsEmptySize(size)) return false;
    if (rules::CompareStrides(env, stride, least) < 0) return false;
    // [N, 1, 1, 1] reads either way and counts as plain.
    if (d == 0 && rules::CompareStrides(env, least, channel) == 0) return false;
    least = env.IsOne(size) ? stride : stride * size;
  }
  return true;
}

Shape ChannelsLastStrides(const Shape& sizes) {
  Shape strides(sizes.size());
  strides[1] = 1;
  Dim stride = sizes[1];
  for (size_t d = sizes.size(); d-- > 2;) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  strides[0] = std::move(stride);
  return strides;
}

TensorType Concatenated(RuleContext& ctx, const std::vector<const TensorType*>& tensors,
                        int64_t dim_arg) {
  if (tensors.empty()) ctx.Reject("needs at least one tensor");
  ShapeEnv& env = ctx.env();
  rules::Promotion promotion(ctx);
  bool one_rank = true, one_dtype = true;
  for (const TensorType* tensor : tensors) {
    if (tensor == nullptr) ctx.Reject("no tensor of the list may be missing");
    if (tensor->sizes.empty())
      ctx.Reject("a tensor without dimensions cannot be joined; use stack");
    one_rank &= tensor->rank() == tensors[0]->rank();
    one_dtype &= tensor->dtype == tensors[0]->dtype;
    promotion.AddTensor(*tensor);
  }
  // An empty vector is skipped whatever the others look like. Among vectors that changes nothing,
  // so nobody is asked.
  auto skipped = [&](const TensorType& tensor) {
    return !one_rank && tensor.rank() == 1 && env.IsEmptySize(tensor.sizes[0]);
  };
  const TensorType* first = nullptr;
  for (const TensorType* tensor : tensors) {
    if (skipped(*tensor)) continue;
    first = tensor;
    break;
  }
  TensorType result;
  result.dtype = one_dtype ? tensors[0]->dtype : promotion.Result();
  result.device = tensors[0]->device;
  if (first == nullptr) {
    result.sizes = {Dim(0)};
    result.strides = {Dim(1)};
    return result;
  }
  auto dim = static_cast<size_t>(NormalizeDim(ctx, dim_arg, first->rank()));
  result.sizes = first->sizes;
  bool channels_last = true;
  Dim sum = 0;
  for (const TensorType* tensor : tensors) {
    if (channels_last) channels_last = SuggestsChannelsLast(env, *tensor);
    if (skipped(*tensor)) continue;
    if (tensor->rank() != first->rank()) ctx.Reject("the tensors must have the same rank");
    for (size_t i = 0; i < result.sizes.size(); ++i) {
      if (i == dim) continue;
      RequireEqual(ctx, tensor->sizes[i], result.sizes[i],
                   "sizes must match except in the dimension along which tensors are joined");
    }
    sum += tensor->sizes[dim];
  }
  result.sizes[dim] = std::move(sum);
  result.strides =
      channels_last ? ChannelsLastStrides(result.sizes) : ContiguousStrides(result.sizes, env);
  return result;
}

void CatRule(RuleContext& ctx) { ctx.Return(Concatenated(ctx, ctx.Tensors(0), ctx.ConstInt(1))); }

// Joined along the dimension, which is then split; a new innermost dimension has to be there
// before.
void StackRule(RuleContext& ctx) {
  std::vector<const TensorType*> tensors = ctx.Tensors(0);
  if (tensors.empty()) ctx.Reject("needs at least one tensor");
  for (const TensorType* tensor : tensors) {
    if (tensor->rank() != tensors[0]->rank()) ctx.Reject("the tensors must have the same sizes");
    for (size_t i = 0; i < tensor->sizes.size(); ++i) {
      RequireEqual(ctx, tensor->sizes[i], tensors[0]->sizes[i],
                   "the tensors must have the same sizes");
    }
  }
  int64_t rank = tensors[0]->rank();
  int64_t dim = NormalizeDim(ctx, ctx.ConstInt(1), rank + 1);
  Shape sizes = tensors[0]->sizes;
  sizes.insert(sizes.begin() + dim, Dim(static_cast<int64_t>(tensors.size())));
  if (dim < rank) {
    TensorType joined = Concatenated(ctx, tensors, dim);
    std::optional<Shape> strides =
        rules::ViewStrides(ctx.env(), joined.sizes, joined.strides, sizes);
    if (!strides) ctx.Reject("the joined tensor cannot be split");
    ctx.Return({joined.dtype, joined.device, std::move(sizes), std::move(*strides)});
    return;
  }
  std::vector<TensorType> widened;
  widened.reserve(tensors.size());
  for (const TensorType*& tensor : tensors) {
    widened.push_back(*tensor);
    widened.back().sizes.emplace_back(1);
    widened.back().strides.emplace_back(1);
    tensor = &widened.back();
  }
  ctx.Return(Concatenated(ctx, tensors, rank));
}

void PadRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  const Shape& pad = ctx.Ints(1);
  if (pad.size() % 2 != 0 || pad.size() > 2 * self.sizes.size()) {
    ctx.Reject("needs two amounts for each padded dimension");
  }
  ShapeEnv& env = ctx.env();
  auto positive = [&env](const Dim& amount) {
    return amount.is_const() ? *amount.as_const() > 0 : env.Less(0, amount);
  };
  TensorType type = self;
  bool grows = false;
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    size_t d = self.sizes.size() - 1 - k;
    grows |= positive(pad[2 * k]) || positive(pad[2 * k + 1]);
    type.sizes[d] = self.sizes[d] + pad[2 * k] + pad[2 * k + 1];
    if (env.KnownLess(type.sizes[d], 0).value_or(false))
      ctx.Reject("takes away more than there is");
  }
  if (!grows) {
    // Only cuts: a slice, cloned.
    type.strides = rules::PreservedStrides(env, type);
  } else if (SuggestsChannelsLast(env, self)) {
    type.strides = ChannelsLastStrides(type.sizes);
  } else {
    type.strides = ContiguousStrides(type.sizes, env);
  }
  ctx.Return(std::move(type));
}

void RepeatRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  const Shape& repeats = ctx.Ints(1);
  if (repeats.size() < self.sizes.size()) ctx.Reject("needs a count for each dimension");
  Shape sizes = repeats;
  size_t added = repeats.size() - self.sizes.size();
  for (size_t i = added; i < sizes.size(); ++i) sizes[i] *= self.sizes[i - added];
  ReturnContiguous(ctx, self, std::move(sizes));
}

void RepeatInterleaveRule(RuleContext& ctx) {
  const TensorType& repeats = ctx.Tensor(0);
  CheckIndexType(ctx, repeats);
  if (repeats.rank() != 1) ctx.Reject("the repeats must have one dimension");
  std::optional<Dim> size = ctx.OptionalInt(1);
  if (!size) {
    ctx.Reject(
        "the length of the result depends on data; pass output_size, the sum of the repeats");
  }
  ReturnContiguous(ctx, repeats, {*size});
}

TensorType RolledOnce(RuleContext& ctx, const TensorType& self, const Dim& shift, int64_t dim_arg) {
  TensorType rolled{self.dtype, self.device, self.sizes, {}};
  int64_t dim = NormalizeDim(ctx, dim_arg, self.rank());
  // Two parts change places and are joined, which matters only for what looks like images.
  if (self.rank() >= 4 && self.strides != ContiguousStrides(self.sizes, ctx.env())) {
    const Dim& size = self.sizes[static_cast<size_t>(dim)];
    TensorType tail = self, head = self;
    head.sizes[static_cast<size_t>(dim)] = Mod(size - shift, size);
    tail.sizes[static_cast<size_t>(dim)] = size - head.sizes[static_cast<size_t>(dim)];
    return Concatenated(ctx, {&tail, &head}, dim);
  }
  rolled.strides = ContiguousStrides(rolled.sizes, ctx.env());
  return rolled;
}

void RollRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  const Shape &shifts = ctx.Ints(1), &dims = ctx.Ints(2);
  if (shifts.empty()) ctx.Reject("needs at least one shift");
  if (dims.empty() ? shifts.size() != 1 : shifts.size() != dims.size()) {
    ctx.Reject("needs a shift for each dimension");
  }
  if (type.device.kind != DeviceKind::kCpu) {
    type.strides = ContiguousStrides(type.sizes, ctx.env());
  } else if (rules::HasNoElements(ctx.env(), type.sizes)) {
    // A clone of self, seen as a vector in between if no dimension is named.
    if (dims.empty()) {
      std::optional<Shape> flat = rules::ViewStrides(ctx.env(), type.sizes, type.strides, {Dim(0)});
      type.strides = *rules::ViewStrides(ctx.env(), {Dim(0)}, *flat, type.sizes);
    }
  } else if (dims.empty() || type.sizes.empty()) {
    type.strides = ContiguousStrides(type.sizes, ctx.env());
  } else {
    std::vector<int64_t> order = ctx.ConstInts(2);
    for (size_t i = 0; i < order.size(); ++i) type = RolledOnce(ctx, type, shifts[i], order[i]);
  }
  ctx.Return(std::move(type));
}

void FlipRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  rules::DimMask(ctx, ctx.Ints(1), self.rank(), /*empty_is_all=*/false);
  ReturnPreserved(ctx, self);
}

void SearchSortedRule(RuleContext& ctx) {
  const TensorType &sorted = ctx.Tensor(0), &self = ctx.Tensor(1);
  if (sorted.sizes.empty()) ctx.Reject("the sorted sequence must have a dimension");
  if (sorted.rank() > 1 && sorted.rank() != self.rank()) {
    ctx.Reject("the sorted sequence must have one dimension or the rank of the values");
  }
  for (size_t i = 0; sorted.rank() > 1 && i + 1 < sorted.sizes.size(); ++i) {
    RequireEqual(ctx, sorted.sizes[i], self.sizes[i],
                 "the sorted sequences and the values must match in all dimensions but the last");
  }
  DType dtype = ctx.Bool(2) ? DType::kInt32 : DType::kInt64;
  ctx.Return(ContiguousType(dtype, self.device, self.sizes, ctx.env()));
}

void BucketizeRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(0), &boundaries = ctx.Tensor(1);
  if (boundaries.rank() != 1) ctx.Reject("the boundaries must have one dimension");
  DType dtype = ctx.Bool(2) ? DType::kInt32 : DType::kInt64;
  ctx.Return(ContiguousType(dtype, self.device, self.sizes, ctx.env()));
}

void HistcRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ReturnContiguous(ctx, self, {ctx.ConstInt(1)});
}

Dim PerInputElement(const CostContext& ctx) { return ctx.Tensor(0).numel(); }

}  // namespace

void RegisterIndexing(OperatorTable& table) {
  // Most of these move elements and compute nothing.
  OperatorGroup selects(table, {.work = Work::kSelect,
                                .order = DimOrder::kLookedUp,
                                .flops = rules::NoFlops,
                                .integers = IntegerOperands::kIndices});
  OperatorGroup lookups(
      table, {.work = Work::kSelect, .order = DimOrder::kLookedUp, .flops = rules::NoFlops});
  OperatorGroup indexed(table, {.work = Work::kScatter,
                                .order = DimOrder::kWritten,
                                .flops = rules::NoFlops,
                                .integers = IntegerOperands::kIndices});
  OperatorGroup added(
      table,
      {.work = Work::kScatter, .order = DimOrder::kWritten, .integers = IntegerOperands::kIndices});
  OperatorGroup writes(
      table, {.work = Work::kScatter, .order = DimOrder::kWritten, .flops = rules::NoFlops});
  selects
      .Add(
          "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, "
          "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
          EmbeddingRule)
      .sharding = rules::EmbeddingSharding;
  selects.Add("aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", IndexRule).sharding =
      rules::IndexSharding;
  selects.Add("aten::index_select(Tensor self, int dim, Tensor index) -> Tensor", IndexSelectRule)
      .sharding = rules::IndexSelectSharding;
  selects
      .Add("aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
           GatherRule)
      .sharding = rules::GatherSharding;
  lookups.Add("aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", IndexRule)
      .sharding = rules::IndexSharding;
  lookups.Add("aten::take(Tensor self, Tensor index) -> Tensor", TakeRule).sharding =
      rules::TakeSharding;
  indexed
      .Add("aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
           ScatterRule)
      .sharding = rules::ScatterSharding;
  indexed
      .Add("aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
           ScatterValueRule)
      .sharding = rules::ScatterValueSharding;
  added
      .Add("aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
           ScatterRule)
      .sharding = rules::ScatterAddSharding;
  added
      .Add(
          "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) "
          "-> "
          "Tensor",
          IndexAddRule)
      .sharding = rules::IndexAddSharding;
  writes
      .Add(
          "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) "
          "-> "
          "Tensor",
          IndexPutRule)
      .sharding = rules::IndexPutSharding;
  writes
      .Add(
          "aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, "
          "bool accumulate=False) -> Tensor",
          IndexPutRule)
      .sharding = rules::IndexPutSharding;
  writes
      .Add("aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
           IndexAddRule)
      .sharding = rules::IndexCopySharding;
  writes
      .Add(
          "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
          IndexFillRule)
      .sharding = rules::IndexFillSharding;
  writes
      .Add(
          "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
          IndexFillRule)
      .sharding = rules::IndexFillSharding;
  Operator& scatter_reduce = writes.Add(
      "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, "
      "bool include_self=True) -> Tensor",
      ScatterRule);
  scatter_reduce.flops = nullptr;
  scatter_reduce.sharding = rules::ScatterReduceSharding;

  // Data decides about the order.
  OperatorGroup placed(
      table, {.work = Work::kScatter, .order = DimOrder::kUnknown, .flops = rules::NoFlops});
  Operator& embedding_backward = placed.Add(
      "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, "
      "SymInt padding_idx, bool scale_grad_by_freq) -> Tensor",
      EmbeddingBackwardRule);
  embedding_backward.flops = PerInputElement;
  embedding_backward.sharding = rules::EmbeddingBackwardSharding;
  placed.Add("aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
             PutRule);
  placed.Add("aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
             MaskedScatterRule);
  Operator& histc = placed.Add(
      "aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", HistcRule);
  histc.flops = PerInputElement;
  histc.sharding = rules::HistcSharding;

  OperatorGroup moves(table,
                      {.work = Work::kMove, .order = DimOrder::kKept, .flops = rules::NoFlops});
  moves.Add("aten::cat(Tensor[] tensors, int dim=0) -> Tensor", CatRule).sharding =
      rules::CatSharding;
  moves.Add("aten::stack(Tensor[] tensors, int dim=0) -> Tensor", StackRule).sharding =
      rules::StackSharding;
  Operator& pad = moves.Add(
      "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", PadRule);
  pad.linearity = Linearity::kOneOperand;
  pad.sharding = rules::PadSharding;
  moves.Add("aten::repeat(Tensor self, SymInt[] repeats) -> Tensor", RepeatRule).sharding =
      rules::RepeatSharding;
  OperatorGroup reordered(
      table, {.work = Work::kMove, .order = DimOrder::kReordered, .flops = rules::NoFlops});
  reordered.Add("aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", RollRule)
      .sharding = rules::RollSharding;
  reordered.Add("aten::flip(Tensor self, int[] dims) -> Tensor", FlipRule).sharding =
      rules::FlipSharding;
  table.Add("aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
            RepeatInterleaveRule,
            {.work = Work::kMove, .order = DimOrder::kUnknown, .flops = rules::NoFlops});

  OperatorGroup searches(table, {.work = Work::kPointwise, .order = DimOrder::kUnknown});
  searches
      .Add(
          "aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, "
          "bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
          SearchSortedRule)
      .sharding = rules::SearchSortedSharding;
  searches
      .Add(
          "aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, "
          "bool right=False) -> Tensor",
          BucketizeRule)
      .sharding = rules::BucketizeSharding;
}

}  // namespace gt
