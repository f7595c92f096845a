#include "gt/ops/attention_sharding.h"

#include <map>
#include <optional>

#include "gt/ir/graph.h"
#include "gt/ops/sharding_rules.h"

namespace gt::rules {
namespace {

constexpr int kResultsWithHeads = 2;  // of a forward kernel: output and logsumexp
constexpr ShardState kBatchAndHeads[] = {0, 1};

// What is common to all kernels when dimension d is cut: 0 is the batch, 1 the heads.
void CutAttention(ShardingContext& ctx, const AttentionArgs& args, ShardState d, RowMaker& row) {
  std::optional<int64_t> size;
  for (int arg : args.tensors) {
    row.Arg(arg, d);
    const int64_t here = ctx.SizeOf(TensorAt(ctx, arg).sizes[static_cast<size_t>(d)]);
    if (size.value_or(here) != here) row.Even();
    size = here;
  }
}

// Where a mask or bias is; nothing if there is none.
std::optional<ShardState> BiasState(const ShardingContext& ctx, int arg, ShardState d) {
  if (arg < 0 || ctx.OperandAt(arg) < 0) return std::nullopt;
  const TensorType& bias = TensorAt(ctx, arg);
  const int64_t at = d + bias.rank() - 4;
  if (at < 0 || ctx.SizeOf(bias.sizes[static_cast<size_t>(at)]) == 1) return kWhole;
  return static_cast<ShardState>(at);
}

}  // namespace

void AddAttentionRows(ShardingContext& ctx, const AttentionArgs& args, bool backward) {
  for (ShardState d : kBatchAndHeads) {
    RowMaker row(ctx);
    CutAttention(ctx, args, d, row);
    const std::optional<ShardState> bias = BiasState(ctx, args.bias, d);
    if (bias) row.Arg(args.bias, *bias);
    const int cut = backward ? 3 : kResultsWithHeads;
    for (int i = 0; i < cut; ++i) row.Result(i, d);
    // The gradient of a bias that all share is a sum over them.
    if (backward && ctx.results().size() > 3 && bias) row.Result(3, *bias < 0 ? kPartial : *bias);
    row.Add();
  }
}

namespace {

// Which dimension of each captured tensor (by its place among them) is looked up with the number of
// a row or head.
using CapturedDims = std::map<size_t, ShardState>;

// The place where an index list has this value, if it has it once.
std::optional<ShardState> PlaceIn(const Node& lookup, const Value& number) {
  std::optional<ShardState> place;
  const auto* list = std::get_if<OperandList>(&lookup.arg(1));
  if (list == nullptr) return std::nullopt;
  for (size_t i = 0; i < list->indices.size(); ++i) {
    const int32_t index = list->indices[i];
    if (index < 0 || lookup.operand(index) != &number) continue;
    if (place) return std::nullopt;
    place = static_cast<ShardState>(i);
  }
  return place;
}

// Adds what one function looks up with its input `number`; false if it uses the number otherwise.
bool AddLookups(const Graph& function, size_t number, size_t first_capture, CapturedDims& dims) {
  static const Operator* const kIndex = FindOperator(std::string_view("aten::index.Tensor"));
  const auto inputs = function.inputs();
  const Value& position = inputs[number]->value;
  for (const Use& use : position.uses()) {
    const Node* node = use.node();
    if (node == nullptr || &node->op() != kIndex) return false;
    const Value* looked_up = node->operand(0);
    const std::optional<ShardState> place = PlaceIn(*node, position);
    if (!place || !looked_up->is_input()) return false;
    const auto input = static_cast<size_t>(looked_up->index());
    if (input < first_capture) return false;
    const auto [found, added] = dims.emplace(input - first_capture, *place);
    if (!added && found->second != *place) return false;
  }
  return true;
}

// Every use of a capture that is cut must be such a lookup.
bool LooksUpOnly(const Graph& function, size_t number, size_t first_capture,
                 const CapturedDims& dims) {
  const auto inputs = function.inputs();
  for (const auto& [capture, place] : dims) {
    for (const Use& use : inputs[first_capture + capture]->value.uses()) {
      if (use.node() == nullptr || use.index() != 0) return false;
      if (PlaceIn(*use.node(), inputs[number]->value) != place) return false;
    }
  }
  return true;
}

struct ScoreFunction {
  int arg;
  size_t numbers;  // inputs before the four positions
};

// The captures that are cut with dimension d; nothing if the functions do not allow it.
std::optional<CapturedDims> CapturesOf(const ShardingContext& ctx, ShardState d,
                                       std::initializer_list<ScoreFunction> functions) {
  CapturedDims dims;
  const auto each = [&](auto visit) {
    for (const ScoreFunction& function : functions) {
      const auto* graph = std::get_if<GraphRef>(&ctx.arg(function.arg));
      if (graph == nullptr) continue;
      if (!visit(**graph, function.numbers + static_cast<size_t>(d), function.numbers + 4)) {
        return false;
      }
    }
    return true;
  };
  const bool allowed = each([&](const Graph& graph, size_t number, size_t captures) {
                         return AddLookups(graph, number, captures, dims);
                       }) &&
                       each([&](const Graph& graph, size_t number, size_t captures) {
                         return LooksUpOnly(graph, number, captures, dims);
                       });
  return allowed ? std::optional(std::move(dims)) : std::nullopt;
}

void AddFlexRows(ShardingContext& ctx, const AttentionArgs& args, int captures_arg, int results,
                 std::initializer_list<ScoreFunction> functions) {
  const std::vector<int> captures = ListAt(ctx, captures_arg);
  for (ShardState d : kBatchAndHeads) {
    const std::optional<CapturedDims> cut = CapturesOf(ctx, d, functions);
    if (!cut) continue;
    RowMaker row(ctx);
    CutAttention(ctx, args, d, row);
    const TensorType& query = TensorAt(ctx, *args.tensors.begin());
    for (const auto& [capture, place] : *cut) {
      const int operand = captures[capture];
      const Shape& sizes = ctx.operands()[static_cast<size_t>(operand)]->sizes;
      // A table of more entries than there are rows or heads is not theirs alone.
      if (ctx.SizeOf(sizes[static_cast<size_t>(place)]) !=
          ctx.SizeOf(query.sizes[static_cast<size_t>(d)])) {
        row.Void();
      }
      row.Operand(operand, place);
    }
    for (int i = 0; i < results; ++i) row.Result(i, d);
    row.Add();
  }
}

}  // namespace

void FlexSharding(ShardingContext& ctx) {
  AddFlexRows(ctx, {{0, 1, 2}, -1}, 3, kResultsWithHeads, {{4, 1}, {5, 0}});
}

void FlexBackwardSharding(ShardingContext& ctx) {
  AddFlexRows(ctx, {{0, 1, 2, 3, 4, 5}, -1}, 6, 3, {{7, 1}, {8, 2}, {9, 0}});
}

}  // namespace gt::rules
