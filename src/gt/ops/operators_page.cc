#include "gt/ops/operators_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "gt/base/text.h"
#include "gt/ir/operator.h"

namespace gt {
namespace {

constexpr std::string_view kIntroduction =
    R"(# Operators

<!-- Made by `gt docs operators`; do not edit. -->

What passes, estimates and the executor know about each operator. An operator declares its facts in
its one entry in `src/gt/ops/`; `src/gt/ir/operator_facts.h` defines them, and tests compare them with
libtorch. How to add one: [adding_an_operator.md](adding_an_operator.md).
)";

template <typename Fact>
struct Spelled {
  Fact fact;
  std::string_view name;
  std::string_view meaning;
};

constexpr Spelled<Work> kWorks[] = {
    {Work::kView, "view", "nothing: the results show an argument's memory"},
    {Work::kPointwise, "pointwise", "computes each element from those at its place"},
    {Work::kReduction, "reduction", "combines elements along dimensions"},
    {Work::kProduct, "product", "multiplies matrices"},
    {Work::kGroupedProduct, "grouped product", "multiplies one pair of matrices for each group"},
    {Work::kAttention, "attention", "two products and all that is between them, in one kernel"},
    {Work::kClone, "clone", "writes its first argument to fresh memory, dtype or layout changed"},
    {Work::kSelect, "select", "reads of its first argument only what it returns"},
    {Work::kMove, "move", "moves elements of its operands"},
    {Work::kScatter, "scatter", "writes where its indices say"},
    {Work::kFill, "fill", "takes only the type of its first argument, and writes the result"},
    {Work::kAllocate, "allocate", "leaves the result's memory as it is"},
    {Work::kFused, "fused", "what the operators of its nested graph do, in one kernel"},
    {Work::kCollective, "collective", "communicates with the ranks of a process group"},
    {Work::kTransfer, "transfer", "copies between the device's memory and the host's"},
    {Work::kHost, "host", "nothing: the host reads a number, or handles a generator's state"},
};

constexpr Spelled<DimOrder> kOrders[] = {
    {DimOrder::kKept, "kept", "a dimension as long as one of an operand has its order"},
    {DimOrder::kRegrouped, "regrouped", "row-major, under other sizes"},
    {DimOrder::kReordered, "reordered", "kept, except along the dimensions that `dim` names"},
    {DimOrder::kLookedUp, "looked up", "the first operand's elements where the indices say"},
    {DimOrder::kWritten, "written", "the first operand's, some replaced where the indices say"},
    {DimOrder::kConstant, "constant", "all elements are equal"},
    {DimOrder::kNumbered, "numbered", "an element depends on its position alone"},
    {DimOrder::kAcrossRanks, "across ranks", "dimension 0 has the shards of all ranks, or is one"},
    {DimOrder::kUnknown, "unknown", "nothing is known; passes do not cut such results"},
};

constexpr Spelled<ViewKind> kViews[] = {
    {ViewKind::kReshape, "reshape", "row-major order, under the sizes it is given"},
    {ViewKind::kSameOrder, "same order", "row-major order; dimensions of size one come or go"},
    {ViewKind::kGeometry, "geometry", "other sizes, strides and offset, and nothing else"},
    {ViewKind::kStrides, "strides", "the sizes and strides it is given"},
    {ViewKind::kStorage, "storage", "as strides, with an offset from the storage's beginning"},
    {ViewKind::kReinterpret, "reinterpret", "other values: another dtype, a pending sign"},
};

constexpr Spelled<RecomputeClass> kRecomputeClasses[] = {
    {RecomputeClass::kLarge, "large", "takes long, but the results are too large to keep"},
    {RecomputeClass::kPlainProduct, "plain product",
     "kept; `eager` recomputes every second one of a layer"},
    {RecomputeClass::kProduct, "product", "kept: much arithmetic for each byte"},
    {RecomputeClass::kAttention, "attention", "kept: grows with the square of the sequence length"},
    {RecomputeClass::kWholeTensor, "whole tensor", "kept: reads a tensor to make one number"},
    {RecomputeClass::kRouting, "routing", "kept: decides where tokens go"},
    {RecomputeClass::kExchange, "exchange", "kept: would send the data a second time"},
};

template <typename Fact, size_t n>
std::string_view NameOf(const Spelled<Fact> (&table)[n], Fact fact) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [fact](const Spelled<Fact>& row) { return row.fact == fact; });
  return found == std::end(table) ? std::string_view() : found->name;
}

template <typename Fact, size_t n>
std::string Legend(std::string_view title, const Spelled<Fact> (&table)[n]) {
  std::string text = fmt::format("\n| {} | |\n|---|---|\n", title);
  for (const Spelled<Fact>& row : table)
    text += fmt::format("| {} | {} |\n", row.name, row.meaning);
  return text;
}

std::string OtherFacts(const Operator& op) {
  std::vector<std::string> facts;
  const auto add = [&facts](bool holds, std::string_view text) {
    if (holds) facts.emplace_back(text);
  };
  if (op.view != ViewKind::kNone) {
    facts.push_back(fmt::format("view: {}", NameOf(kViews, op.view)));
  }
  add(op.aliasing == Aliasing::kMayAlias, "copies where no view exists");
  add(op.aliasing == Aliasing::kAlways && !op.is_view(), "hands its first argument through");
  add(op.linearity == Linearity::kOneOperand, "linear in one operand");
  add(op.linearity == Linearity::kAllOperands, "linear in all operands");
  add(op.converts_operands, "converts operands on the CPU");
  add(op.scratch != nullptr, "allocates while it runs");
  add(op.integers == IntegerOperands::kIndices, "integers are indices");
  add(op.integers == IntegerOperands::kGroupEnds, "integers are ends of groups");
  if (op.recompute != RecomputeClass::kCheap) {
    facts.push_back(fmt::format("recompute: {}", NameOf(kRecomputeClasses, op.recompute)));
  }
  add(op.host == HostPart::kAlways, "host takes part");
  add(op.host == HostPart::kUnlessBFloat16, "host takes part unless bf16");
  add(op.sharding != nullptr, "shards");
  add(op.random && !op.generator_state, "random");
  add(op.generator_state, "state of a generator");
  add(op.side_effect, "side effect");
  add(op.reads_data, "binds data symbols");
  return Join(facts, ", ");
}

}  // namespace

std::string OperatorsMarkdown() {
  std::vector<const Operator*> operators(AllOperators().begin(), AllOperators().end());
  std::sort(operators.begin(), operators.end(),
            [](const Operator* a, const Operator* b) { return a->name.str() < b->name.str(); });
  std::string text(kIntroduction);
  text += Legend("work: what running it asks of the device", kWorks);
  text += Legend("order: of the elements along a dimension", kOrders);
  text += Legend("view: what of its argument it shows", kViews);
  text += Legend("recompute: what memory policies keep; others are cheap", kRecomputeClasses);
  text +=
      "\n`shards`: the entry has a rule for computing it in shards, one per rank "
      "(`src/gt/ir/sharding.h`); ranks compute all of the others.\n";
  text += "\n| operator | work | order | other facts |\n|---|---|---|---|\n";
  for (const Operator* op : operators) {
    text += fmt::format("| {} | {} | {} | {} |\n", op->name.str(), NameOf(kWorks, op->work),
                        NameOf(kOrders, op->order), OtherFacts(*op));
  }
  return text;
}

}  // namespace gt
