#include "gt/passes/chunk/chunk_layout.h"

#include <algorithm>
#include <string_view>

namespace gt {
namespace {

using LayoutKind = ChunkLayout::Kind;

constexpr int32_t kNobody = -1;

ChunkLayout Placed(int32_t dim, Dim outer, int32_t origin) {
  if (outer.Is(1)) origin = kNobody;
  return {LayoutKind::kPlaced, dim, std::move(outer), origin};
}
ChunkLayout Placed(int32_t dim, Dim outer, const Node& origin) {
  return Placed(dim, std::move(outer), origin.number());
}
ChunkLayout Unknown(int32_t dim, int32_t origin) { return {LayoutKind::kUnknown, dim, 1, origin}; }
ChunkLayout Unknown(int32_t dim, const Node& origin) { return Unknown(dim, origin.number()); }

// a / b where that leaves no rest whatever the symbols are.
std::optional<Dim> Quotient(const Dim& a, const Dim& b) {
  if (b.Is(1)) return a;
  if (a == b) return Dim(1);
  if (b.Is(0)) return std::nullopt;
  Dim quotient = FloorDiv(a, b);
  if (quotient * b != a) return std::nullopt;
  return quotient;
}

const Dim& SizeOf(const Value& value, int32_t dim) {
  return value.type().sizes[static_cast<size_t>(dim)];
}

Dim ProductBefore(const Value& value, int32_t dim) {
  Dim product = 1;
  for (int32_t d = 0; d < dim; ++d) {
    if (!SizeOf(value, d).Is(1)) product *= SizeOf(value, d);
  }
  return product;
}

const Argument* FindArg(const Node& node, std::string_view name) {
  int position = node.op().schema.Find(name);
  return position < 0 ? nullptr : &node.arg(position);
}

// Whether the argument dim, or one of dims, is this dimension. No dims at all mean every one.
bool NamesDim(const Node& node, int32_t dim, int32_t rank) {
  const auto is_it = [dim, rank](const Dim& named) {
    return !named.is_const() || *named.as_const() == dim || *named.as_const() + rank == dim;
  };
  if (const Argument* one = FindArg(node, "dim")) {
    const Dim* named = std::get_if<Dim>(one);
    return named == nullptr || is_it(*named);
  }
  const Argument* several = FindArg(node, "dims");
  const Shape* named = several == nullptr ? nullptr : std::get_if<Shape>(several);
  return named == nullptr || named->empty() || std::any_of(named->begin(), named->end(), is_it);
}

bool IsAscendingSort(const Node& node) {
  static const Operator* const kSort = FindOperator("aten::sort");
  static const Operator* const kStableSort = FindOperator("aten::sort.stable");
  if (&node.op() != kSort && &node.op() != kStableSort) return false;
  return *FindArg(node, "descending") == Argument(false);
}

// Or the gradient of one, which puts it back into its place.
bool IsSlice(const Operator& op) {
  static const Operator* const kSlice = FindOperator("aten::slice.Tensor");
  static const Operator* const kSliceCopy = FindOperator("aten::slice_copy.Tensor");
  static const Operator* const kSliceBackward = FindOperator("aten::slice_backward");
  return &op == kSlice || &op == kSliceCopy || &op == kSliceBackward;
}

// Whether results have the values of the first operand, under other sizes or elsewhere.
bool KeepsValues(const Operator& op) {
  return op.aliasing != Aliasing::kNone || op.transfer != Transfer::kNone ||
         op.work == Work::kClone;
}

}  // namespace

ChunkLayouts::ChunkLayouts(const Graph& graph, SymbolId symbol)
    : shapes_(graph.shapes()), symbol_(symbol) {
  for (const auto& input : graph.inputs()) {
    ChunkLayout layout = OfInput(input->value.type());
    if (layout.kind != LayoutKind::kAbsent) inputs_.emplace(&input->value, std::move(layout));
  }
  first_.reserve(static_cast<size_t>(graph.node_count()));
  nodes_.reserve(static_cast<size_t>(graph.node_count()));
  layouts_.reserve(static_cast<size_t>(graph.node_count()));
  for (const Node* node : graph.nodes()) {
    first_.push_back(layouts_.size());
    nodes_.push_back(node);
    for (int32_t i = 0; i < node->result_count(); ++i) {
      const Value& result = *node->result(i);
      ChunkLayout layout = OfType(result.type());
      if (layout.kind == LayoutKind::kPlaced) layout = OfResult(*node, result, layout.dim);
      if (layout.kind == LayoutKind::kUnknown && layout.dim < 0) layout.origin = node->number();
      layouts_.push_back(std::move(layout));
    }
  }
}

const ChunkLayout& ChunkLayouts::Of(const Value& value) const {
  if (value.is_input()) {
    static const ChunkLayout kAbsent;
    auto found = inputs_.find(&value);
    return found == inputs_.end() ? kAbsent : found->second;
  }
  const Node& node = *value.producer();
  const int32_t number = node.number() >= 0 ? node.number() : successors_.at(&node);
  return layouts_[first_[static_cast<size_t>(number)] + static_cast<size_t>(value.index())];
}

void ChunkLayouts::Replace(const Node& node, const Node& successor) {
  int32_t number = node.number();
  if (number < 0) {
    auto found = successors_.find(&node);
    if (found == successors_.end()) return;
    number = found->second;
    successors_.erase(found);
  }
  successors_.emplace(&successor, number);
  nodes_[static_cast<size_t>(number)] = &successor;
}

std::optional<Dim> ChunkLayouts::SpelledFactor(const Dim& size) const {
  if (std::optional<Dim::Multiple> multiple = size.as_multiple()) {
    if (multiple->symbol == symbol_) return Dim(multiple->factor);
  }
  Dim factor =
      size.Substitute([this](SymbolId id) { return id == symbol_ ? Dim(1) : Dim::Symbol(id); });
  if (factor * Dim::Symbol(symbol_) == size) return factor;
  return std::nullopt;
}

std::optional<Dim> ChunkLayouts::FactorOf(const Dim& size) const {
  std::optional<Dim> factor = SpelledFactor(size);
  if (factor || shapes_.HasDataSymbol(size)) return factor;
  const int64_t whole = shapes_.Hint(size), extent = shapes_.Hint(Dim::Symbol(symbol_));
  return whole % extent == 0 ? std::optional<Dim>(whole / extent) : std::nullopt;
}

// Finds the dimension. Placed outermost if there is one.
ChunkLayout ChunkLayouts::OfType(const TensorType& type) const {
  ChunkLayout layout;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (type.sizes[d].is_const() || !type.sizes[d].Contains(symbol_)) continue;
    if (layout.kind != LayoutKind::kAbsent) return Unknown(-1, kNobody);
    layout = Placed(static_cast<int32_t>(d), 1, kNobody);
  }
  return layout;
}

// A dimension of the inputs that is several times the symbol has that many parts, one after another
// (SymbolicDim::multiple in trace/capture.h).
ChunkLayout ChunkLayouts::OfInput(const TensorType& type) const {
  ChunkLayout layout = OfType(type);
  if (layout.kind != LayoutKind::kPlaced) return layout;
  std::optional<Dim> parts = FactorOf(type.sizes[static_cast<size_t>(layout.dim)]);
  return parts ? Placed(layout.dim, std::move(*parts), kNobody) : Unknown(layout.dim, kNobody);
}

ChunkLayout ChunkLayouts::OfResult(const Node& node, const Value& result, int32_t dim) {
  switch (node.op().order) {
    case DimOrder::kKept:
      return Kept(node, result, dim);
    case DimOrder::kRegrouped:
      return Regrouped(node, result, dim);
    case DimOrder::kReordered:
      return Reordered(node, result, dim);
    case DimOrder::kLookedUp:
      return LookedUp(node, result, dim);
    case DimOrder::kWritten:
      return Written(node, result, dim);
    case DimOrder::kConstant:
      return {LayoutKind::kConstant, dim};
    case DimOrder::kNumbered:
      return {LayoutKind::kNumbered, dim};
    case DimOrder::kAcrossRanks:
      return AcrossRanks(node, result, dim);
    case DimOrder::kUndecided:
    case DimOrder::kUnknown:
      break;
  }
  return Otherwise(node, result, dim);
}

// A dimension of exactly the symbol is what chunks are made of, in whatever order, as long as it
// was not cut out of one that counted more. Everything else is unknown.
ChunkLayout ChunkLayouts::Otherwise(const Node& node, const Value& result, int32_t dim) const {
  if (SizeOf(result, dim).as_symbol() != symbol_) return Unknown(dim, node);
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const Value& operand = *node.operand(i);
    const ChunkLayout& layout = Of(operand);
    if (layout.dim < 0) continue;
    if (layout.kind == LayoutKind::kUnknown) return Unknown(dim, layout.origin);
    if (layout.kind == LayoutKind::kSamples) continue;
    if (SizeOf(operand, layout.dim) != SizeOf(result, dim)) return Unknown(dim, node);
  }
  return Placed(dim, 1, kNobody);
}

// As many samples as there are: what chunks are made of, in whatever order. Sizes are compared for
// this step; who relies on it leaves the guard.
ChunkLayout ChunkLayouts::Samples(const Value& result, int32_t dim, const Node& node) const {
  const Dim& size = SizeOf(result, dim);
  const bool all =
      !shapes_.HasDataSymbol(size) && shapes_.Hint(size) == shapes_.Hint(Dim::Symbol(symbol_));
  if (all) return Placed(dim, 1, kNobody);
  return {LayoutKind::kSamples, dim, 1, node.number()};
}

bool ChunkLayouts::HasWholeSamples(const Value& value) const {
  if (Of(value).kind == LayoutKind::kSamples) return true;
  std::optional<Dim> inner = InnerOf(value);
  return inner && inner->Is(1);
}

// Slices and concatenations along the dimension, of whole samples.
std::optional<ChunkLayout> ChunkLayouts::MovedSamples(const Node& node, const Value& result,
                                                      int32_t dim) const {
  static const Operator* const kCat = FindOperator("aten::cat");
  const bool moves = &node.op() == kCat || IsSlice(node.op()) ||
                     node.op().schema.Find("split_size") >= 0 ||
                     node.op().schema.Find("split_sizes") >= 0;
  if (!moves) return std::nullopt;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const Value& operand = *node.operand(i);
    if (Of(operand).dim != dim || !HasWholeSamples(operand)) return std::nullopt;
  }
  return Samples(result, dim, node);
}

// What operands from `begin` to `end` say about a dimension of that size.
ChunkLayout ChunkLayouts::Joined(const Node& node, const Dim& size, int32_t begin, int32_t end) {
  ChunkLayout joined;
  for (int32_t i = begin; i < end; ++i) {
    const Value& operand = *node.operand(i);
    const ChunkLayout& layout = Of(operand);
    if (layout.dim < 0 || SizeOf(operand, layout.dim) != size) continue;
    joined = Merge(node, std::move(joined), layout);
  }
  return joined;
}

ChunkLayout ChunkLayouts::Merge(const Node& node, ChunkLayout a, const ChunkLayout& b) {
  if (a.kind == LayoutKind::kAbsent || b.kind == LayoutKind::kUnknown) return b;
  if (b.kind == LayoutKind::kAbsent || a.kind == LayoutKind::kUnknown) return a;
  if (a.kind == LayoutKind::kPlaced && b.kind == LayoutKind::kPlaced) {
    if (a.outer == b.outer) return a;
    if (conflicts_.empty() || conflicts_.back() != &node) conflicts_.push_back(&node);
    return Unknown(a.dim, node);
  }
  if (a.kind == LayoutKind::kSamples || b.kind == LayoutKind::kSamples) {
    return a.kind == LayoutKind::kSamples ? a : b;
  }
  if (a.kind == LayoutKind::kPlaced || b.kind == LayoutKind::kConstant) return a;
  return b;
}

ChunkLayout ChunkLayouts::Kept(const Node& node, const Value& result, int32_t dim) {
  static const Operator* const kExpand = FindOperator("aten::expand");
  static const Operator* const kExpandCopy = FindOperator("aten::expand_copy");
  ChunkLayout joined = Joined(node, SizeOf(result, dim), 0, node.operand_count());
  if (joined.kind != LayoutKind::kAbsent) {
    joined.dim = dim;
    return joined;
  }
  if (&node.op() == kExpand || &node.op() == kExpandCopy) return {LayoutKind::kConstant, dim};
  // A part of what depends on positions alone does so too.
  if (node.operand_count() == 1 && Of(*node.operand(0)).dim == dim) {
    const LayoutKind kind = Of(*node.operand(0)).kind;
    if (kind == LayoutKind::kConstant || kind == LayoutKind::kNumbered) return {kind, dim};
  }
  if (auto part = PartOf(node, result, dim)) return *part;
  if (auto whole = Concatenated(node, dim)) return *whole;
  if (auto samples = MovedSamples(node, result, dim)) return *samples;
  return Otherwise(node, result, dim);
}

std::optional<Dim> ChunkLayouts::InnerOf(const Value& value) const {
  const ChunkLayout& layout = Of(value);
  if (layout.kind != LayoutKind::kPlaced) return std::nullopt;
  std::optional<Dim> factor = FactorOf(SizeOf(value, layout.dim));
  return factor ? Quotient(*factor, layout.outer) : std::nullopt;
}

// Slices along the dimension that consist of whole runs of the symbol.
std::optional<ChunkLayout> ChunkLayouts::PartOf(const Node& node, const Value& result,
                                                int32_t dim) const {
  if (node.operand_count() != 1 || Of(*node.operand(0)).dim != dim) return std::nullopt;
  std::optional<Dim> inner = InnerOf(*node.operand(0));
  if (!inner) return std::nullopt;
  const auto runs_in = [&](const Dim& length) -> std::optional<Dim> {
    if (length.Is(0)) return Dim(0);
    std::optional<Dim> factor = FactorOf(length);
    return factor ? Quotient(*factor, *inner) : std::nullopt;
  };
  if (const Argument* sizes = FindArg(node, "split_sizes")) {
    for (const Dim& size : std::get<Shape>(*sizes)) {
      if (!runs_in(size)) return std::nullopt;
    }
  } else if (const Argument* size = FindArg(node, "split_size")) {
    if (!runs_in(std::get<Dim>(*size))) return std::nullopt;
  } else if (IsSlice(node.op())) {
    if (*FindArg(node, "step") != Argument(Dim(1))) return std::nullopt;
    const Dim* start = std::get_if<Dim>(FindArg(node, "start"));
    if (start != nullptr && !runs_in(*start)) return std::nullopt;
  } else {
    return std::nullopt;
  }
  std::optional<Dim> outer = runs_in(SizeOf(result, dim));
  if (!outer) return std::nullopt;
  return Placed(dim, std::move(*outer), node);
}

// Runs of equal length, one after another.
std::optional<ChunkLayout> ChunkLayouts::Concatenated(const Node& node, int32_t dim) const {
  static const Operator* const kCat = FindOperator("aten::cat");
  if (&node.op() != kCat || node.operand_count() == 0) return std::nullopt;
  std::optional<Dim> inner = InnerOf(*node.operand(0));
  Dim outer = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const ChunkLayout& layout = Of(*node.operand(i));
    if (layout.dim != dim || !inner || InnerOf(*node.operand(i)) != inner) return std::nullopt;
    outer += layout.outer;
  }
  return Placed(dim, std::move(outer), node);
}

// [..., outer * s * inner, ...] seen as one row of elements is [before * outer, s, rest]. The new
// dimension is [new outer, s, new inner] if what is before the symbol, and after it, can be told
// apart into dimensions and the rest.
ChunkLayout ChunkLayouts::Regrouped(const Node& node, const Value& result, int32_t dim) const {
  const Value& from = *node.operand(0);
  const ChunkLayout& layout = Of(from);
  if (layout.dim < 0) return Otherwise(node, result, dim);
  const Dim before = ProductBefore(from, layout.dim), new_before = ProductBefore(result, dim);
  if (layout.kind == LayoutKind::kSamples) {
    // Runs of samples, one after another in a new dimension before them.
    const bool whole = !shapes_.HasDataSymbol(before) && !shapes_.HasDataSymbol(new_before) &&
                       shapes_.Hint(before * SizeOf(from, layout.dim)) ==
                           shapes_.Hint(new_before * SizeOf(result, dim));
    return whole && Quotient(new_before, before) ? Samples(result, dim, node) : Unknown(dim, node);
  }
  if (layout.kind != LayoutKind::kPlaced) return {layout.kind, dim, 1, layout.origin};
  std::optional<Dim> outer = Quotient(before * layout.outer, new_before);
  std::optional<Dim> factor = FactorOf(SizeOf(result, dim));
  if (!outer || !factor || !Quotient(*factor, *outer)) return Unknown(dim, node);
  const bool same = *outer == layout.outer && layout.origin != kNobody;
  return Placed(dim, std::move(*outer), same ? layout.origin : node.number());
}

ChunkLayout ChunkLayouts::Reordered(const Node& node, const Value& result, int32_t dim) {
  const auto rank = static_cast<int32_t>(result.type().sizes.size());
  const Dim& size = SizeOf(result, dim);
  if (!NamesDim(node, dim, rank) || size.as_symbol() == symbol_) return Kept(node, result, dim);
  // Sorting a permutation inverts it: the result is in the order of what the permutation points to.
  const ChunkLayout* order = IsAscendingSort(node) ? PointedInto(*node.operand(0), size) : nullptr;
  if (order == nullptr) return Unknown(dim, node);
  ChunkLayout layout = *order;
  layout.dim = dim;
  return layout;
}

// The dimension whose positions are the values of `indices`, if these come from sorting one of that
// size.
const ChunkLayout* ChunkLayouts::PointedInto(const Value& indices, const Dim& size) const {
  const Value* at = &indices;
  while (at->producer() != nullptr && at->producer()->number() >= 0) {
    const Node& node = *at->producer();
    if (IsAscendingSort(node)) {
      const Value& sorted = *node.operand(0);
      const ChunkLayout& layout = Of(sorted);
      const auto rank = static_cast<int32_t>(sorted.type().sizes.size());
      const bool along = layout.dim >= 0 && NamesDim(node, layout.dim, rank);
      return at->index() == 1 && along && SizeOf(sorted, layout.dim) == size ? &layout : nullptr;
    }
    if (!KeepsValues(node.op()) || node.operand_count() == 0) return nullptr;
    at = node.operand(0);
  }
  return nullptr;
}

ChunkLayout ChunkLayouts::LookedUp(const Node& node, const Value& result, int32_t dim) {
  static const Operator* const kGather = FindOperator("aten::gather");
  const Dim& size = SizeOf(result, dim);
  const bool self_has_symbol = Of(*node.operand(0)).dim >= 0;
  ChunkLayout layout = Joined(node, size, 1, node.operand_count());
  if (layout.kind == LayoutKind::kAbsent) {
    layout = Joined(node, size, 0, 1);
    if (layout.kind == LayoutKind::kAbsent) return Otherwise(node, result, dim);
  } else if (&node.op() == kGather &&
             !NamesDim(node, dim, static_cast<int32_t>(result.type().sizes.size()))) {
    layout = Merge(node, std::move(layout), Joined(node, size, 0, 1));
  } else if (self_has_symbol && layout.kind != LayoutKind::kPlaced) {
    if (layout.origin == kNobody) return Otherwise(node, result, dim);
    return Unknown(dim, layout.origin);
  }
  layout.dim = dim;
  return layout;
}

ChunkLayout ChunkLayouts::Written(const Node& node, const Value& result, int32_t dim) {
  const Dim& size = SizeOf(result, dim);
  const Value* index = nullptr;  // into the dimension
  bool along = false;
  if (const Argument* list = FindArg(node, "indices")) {
    const std::vector<int32_t>& indices = std::get<OperandList>(*list).indices;
    along = static_cast<size_t>(dim) < indices.size() && indices[static_cast<size_t>(dim)] >= 0;
    // Several indices are used together; one alone names places of its dimension.
    const bool alone =
        std::count_if(indices.begin(), indices.end(), [](int32_t i) { return i >= 0; }) == 1;
    if (along && alone) index = node.operand(indices[static_cast<size_t>(dim)]);
  } else {
    along = NamesDim(node, dim, static_cast<int32_t>(result.type().sizes.size()));
    if (along) index = node.TensorArg(node.op().schema.Find("index"));
  }
  if (!along) return Kept(node, result, dim);
  const ChunkLayout& self = Of(*node.operand(0));
  ChunkLayout layout = self;
  if (self.kind == LayoutKind::kConstant || self.kind == LayoutKind::kNumbered) {
    const ChunkLayout* order = index == nullptr ? nullptr : PointedInto(*index, size);
    if (order == nullptr) return Otherwise(node, result, dim);
    layout = *order;
  }
  layout.dim = dim;
  return layout;
}

ChunkLayout ChunkLayouts::AcrossRanks(const Node& node, const Value& result, int32_t dim) const {
  // Of coalesced collectives each operand has its result.
  const Value& operand = *node.operand(node.operand_count() == 1 ? 0 : result.index());
  const ChunkLayout& layout = Of(operand);
  if (layout.dim != dim) return Unknown(dim, node);
  if (dim != 0) return layout;
  const Argument* splits = FindArg(node, "input_split_sizes");
  if (splits != nullptr && std::get<Shape>(*splits).size() == 1) return layout;  // one rank
  const Argument* ranks = FindArg(node, "group_size");
  if (layout.kind == LayoutKind::kConstant) return layout;
  if (layout.kind == LayoutKind::kPlaced && ranks != nullptr) {
    const Dim& count = std::get<Dim>(*ranks);
    if (node.op().collective == Collective::kAllGather) {
      return Placed(dim, layout.outer * count, node);
    }
    std::optional<Dim> outer = Quotient(layout.outer, count);
    if (outer) return Placed(dim, std::move(*outer), node);
  }
  return Unknown(dim, node);
}

}  // namespace gt
