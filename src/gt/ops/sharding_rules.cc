#include "gt/ops/sharding_rules.h"

#include <algorithm>

#include "gt/base/error.h"

namespace gt::rules {

RowMaker::RowMaker(ShardingContext& ctx) : ctx_(ctx), set_(ctx.operands().size()) {
  row_.operands.assign(ctx.operands().size(), kWhole);
  row_.results.assign(ctx.results().size(), kWhole);
}

RowMaker& RowMaker::Operand(int index, ShardState state) {
  if (index < 0) return *this;
  const auto i = static_cast<size_t>(index);
  if (set_[i] && row_.operands[i] != state) void_ = true;
  row_.operands[i] = state;
  set_[i] = true;
  return *this;
}

RowMaker& RowMaker::Result(int index, ShardState state) {
  const auto i = static_cast<size_t>(index);
  if (ctx_.results()[i]->defined()) row_.results[i] = state;
  return *this;
}

RowMaker& RowMaker::Results(ShardState state) {
  for (size_t i = 0; i < row_.results.size(); ++i) Result(static_cast<int>(i), state);
  return *this;
}

RowMaker& RowMaker::Method(ShardMethod method, int8_t statistics) {
  row_.method = method;
  row_.statistics = statistics;
  return *this;
}

RowMaker& RowMaker::Even(bool even) {
  row_.even = even;
  return *this;
}

RowMaker& RowMaker::Multiple(int64_t multiple) {
  row_.multiple = multiple;
  return *this;
}

bool RowMaker::CanCut(const TensorType& type, ShardState state) const {
  if (state < 0) return true;
  return state < type.rank() && ctx_.SizeOf(type.sizes[static_cast<size_t>(state)]) >= 2;
}

bool RowMaker::MakesSense() const {
  bool changes = false, partial_float = false;
  for (size_t i = 0; i < row_.operands.size(); ++i) {
    const TensorType& type = *ctx_.operands()[i];
    const ShardState state = row_.operands[i];
    if (!CanCut(type, state)) return false;
    changes |= state != kWhole;
    if (state != kPartial) continue;
    if (type.dtype == DType::kBool) return false;
    partial_float |= !IsIntegral(type.dtype);
  }
  for (size_t i = 0; i < row_.results.size(); ++i) {
    const TensorType& type = *ctx_.results()[i];
    const ShardState state = row_.results[i];
    if (!CanCut(type, state)) return false;
    changes |= state != kWhole;
    if (state != kPartial) continue;
    if (type.dtype == DType::kBool || (partial_float && IsIntegral(type.dtype))) return false;
  }
  return changes;
}

void RowMaker::Add() {
  if (!void_ && MakesSense()) ctx_.Add(row_);
}

std::optional<double> NumberAt(const ShardingContext& ctx, int arg) {
  const Argument& argument = ctx.arg(arg);
  if (const auto* value = std::get_if<double>(&argument)) return *value;
  if (const auto* value = std::get_if<bool>(&argument)) return *value ? 1.0 : 0.0;
  if (const auto* value = std::get_if<Dim>(&argument)) {
    return static_cast<double>(ctx.SizeOf(*value));
  }
  return std::nullopt;
}

int64_t IntAt(const ShardingContext& ctx, int arg) {
  return ctx.SizeOf(std::get<Dim>(ctx.arg(arg)));
}

bool BoolAt(const ShardingContext& ctx, int arg) { return std::get<bool>(ctx.arg(arg)); }

int64_t DimAt(const ShardingContext& ctx, int arg, int64_t rank) {
  const int64_t dim = IntAt(ctx, arg);
  return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim;
}

uint64_t DimBits(const ShardingContext& ctx, int arg, int64_t rank, bool empty_is_all) {
  const auto* dims = std::get_if<Shape>(&ctx.arg(arg));
  if (dims == nullptr || (empty_is_all && dims->empty())) return ~uint64_t{0};
  uint64_t bits = 0;
  for (const Dim& dim : *dims) {
    const int64_t d = ctx.SizeOf(dim);
    bits |= uint64_t{1} << (d < 0 ? d + std::max<int64_t>(rank, 1) : d);
  }
  return bits;
}

const TensorType& TensorAt(const ShardingContext& ctx, int arg) {
  return *ctx.operands()[static_cast<size_t>(ctx.OperandAt(arg))];
}

std::vector<int> ListAt(const ShardingContext& ctx, int arg) {
  const auto& list = std::get<OperandList>(ctx.arg(arg)).indices;
  return {list.begin(), list.end()};
}

std::optional<ShardState> BroadcastState(const ShardingContext& ctx, const TensorType& operand,
                                         const Shape& shape, size_t d) {
  const int64_t at = operand.rank() - static_cast<int64_t>(shape.size()) + static_cast<int64_t>(d);
  if (at < 0) return kWhole;
  const int64_t size = ctx.SizeOf(operand.sizes[static_cast<size_t>(at)]);
  if (size == ctx.SizeOf(shape[d])) return static_cast<ShardState>(at);
  if (size == 1) return kWhole;
  return std::nullopt;
}

void AddPointwiseRows(ShardingContext& ctx) {
  const Shape& shape = ctx.results()[0]->sizes;
  for (size_t d = 0; d < shape.size(); ++d) {
    RowMaker row(ctx);
    for (size_t i = 0; i < ctx.operands().size(); ++i) {
      const auto state = BroadcastState(ctx, *ctx.operands()[i], shape, d);
      if (!state) row.Void();
      row.Operand(static_cast<int>(i), state.value_or(kWhole));
    }
    // A result of other sizes is a placeholder that nobody reads.
    for (size_t i = 0; i < ctx.results().size(); ++i) {
      if (ctx.results()[i]->sizes.size() != shape.size()) continue;
      row.Result(static_cast<int>(i), static_cast<ShardState>(d));
    }
    row.Add();
  }
}

void AddLinearRow(ShardingContext& ctx, std::initializer_list<int> args) {
  RowMaker row(ctx);
  for (int arg : args) {
    if (ctx.OperandAt(arg) < 0) return;
    row.Arg(arg, kPartial);
  }
  for (int arg = 0; arg < static_cast<int>(ctx.args().size()); ++arg) {
    if (std::find(args.begin(), args.end(), arg) == args.end()) row.Arg(arg, kWhole);
  }
  row.Results(kPartial).Add();
}

void AddLinearRow(ShardingContext& ctx) {
  RowMaker row(ctx);
  for (size_t i = 0; i < ctx.operands().size(); ++i) row.Operand(static_cast<int>(i), kPartial);
  row.Results(kPartial).Add();
}

void AddMappedRows(ShardingContext& ctx, std::span<const int64_t> map) {
  for (size_t d = 0; d < map.size(); ++d) {
    if (map[d] < 0) continue;
    RowMaker(ctx)
        .Operand(0, static_cast<ShardState>(d))
        .Results(static_cast<ShardState>(map[d]))
        .Add();
  }
}

void AddOtherDims(ShardingContext& ctx, uint64_t bits) {
  const int64_t rank = ctx.operands()[0]->rank();
  for (int64_t d = 0; d < rank; ++d) {
    if (bits >> d & 1) continue;
    RowMaker row(ctx);
    for (size_t i = 0; i < ctx.operands().size(); ++i) {
      const bool same = ctx.operands()[i]->rank() == rank;
      row.Operand(static_cast<int>(i), same ? static_cast<ShardState>(d) : kWhole);
    }
    row.Results(static_cast<ShardState>(d)).Add();
  }
}

namespace {

ShardState PlaceOf(char letter, std::string_view letters) {
  const size_t at = letters.find(letter);
  return at == std::string_view::npos ? kWhole : static_cast<ShardState>(at);
}

bool IsDense(const TensorType& type, ShardState at) {
  return at >= 0 && type.strides[static_cast<size_t>(at)].Is(1);
}

}  // namespace

void AddProductRows(ShardingContext& ctx, int added, std::string_view a, std::string_view b,
                    std::string_view result, int64_t alignment) {
  const int first = added + 1;
  const bool adds = added >= 0;
  std::string letters(a);
  for (char letter : b) {
    if (letters.find(letter) == std::string::npos) letters += letter;
  }
  for (char letter : letters) {
    if (letter >= 'A' && letter <= 'Z') continue;
    const ShardState at = PlaceOf(letter, result);
    RowMaker row(ctx);
    if (adds && at >= 0) {
      const auto state = BroadcastState(ctx, TensorAt(ctx, added), ctx.results()[0]->sizes,
                                        static_cast<size_t>(at));
      if (!state) row.Void();
      row.Arg(added, state.value_or(kWhole));
    } else if (adds) {
      row.Arg(added, kPartial);
    }
    row.Arg(first, PlaceOf(letter, a)).Arg(first + 1, PlaceOf(letter, b));
    const bool dense = IsDense(TensorAt(ctx, first), PlaceOf(letter, a)) ||
                       IsDense(TensorAt(ctx, first + 1), PlaceOf(letter, b));
    row.Result(0, at >= 0 ? at : kPartial).Multiple(dense ? alignment : 1).Add();
  }
  for (int factor : {first, first + 1}) {
    RowMaker row(ctx);
    if (adds) row.Arg(added, kPartial);
    for (int each : {first, first + 1}) row.Arg(each, each == factor ? kPartial : kWhole);
    row.Result(0, kPartial).Add();
  }
}

void PointwiseSharding(ShardingContext& ctx) { AddPointwiseRows(ctx); }

void LinearSharding(ShardingContext& ctx) {
  AddPointwiseRows(ctx);
  AddLinearRow(ctx);
}

}  // namespace gt::rules
