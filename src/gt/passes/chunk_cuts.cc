#include "gt/passes/chunk_cuts.h"

#include <optional>

#include "gt/base/error.h"
#include "gt/passes/aliasing.h"

namespace gt {

std::string Describe(const Node& node) {
  std::string what = fmt::format("{} in {}, {}", node.op().name.str(), node.meta().module.str(),
                                 node.meta().source.str());
  return node.result_count() == 0 ? what : fmt::format("%{} ({})", node.result()->name(), what);
}

std::string Describe(const Value& value) {
  return value.is_input() ? fmt::format("the input %{}", value.name())
                          : Describe(*value.producer());
}

namespace {

// The collective that a value comes from through views and copies, or null.
const Node* CollectiveBehind(const Value& value) {
  constexpr int kFar = 16;
  const Value* at = &value;
  for (int step = 0; step < kFar && !at->is_input(); ++step) {
    const Node* node = at->producer();
    bool is_wait = node->op().collective == Collective::kWait;
    if (node->op().collective != Collective::kNone && !is_wait) return node;
    static const Operator* const kClone = FindOperator("aten::clone");
    if (!is_wait && &node->op() != kClone && AliasingOf(node->op()) == Aliasing::kNone) break;
    if (node->operand_count() == 0) break;
    at = node->operand(0);
  }
  return nullptr;
}

}  // namespace

Cut Cuts::Of(const Value& value, Name root) {
  const Shape& sizes = value.type().sizes;
  std::optional<size_t> found;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].is_const() || !sizes[d].Contains(symbol_)) continue;
    if (found) Reject(value, root, "several of its dimensions grow with it");
    found = d;
  }
  if (!found) Reject(value, root, "its strides grow with it, but none of its dimensions does");
  Dim factor = Factor(value, sizes[*found], root);
  // The batch is the outermost part of every dimension that it was flattened into, unless ranks
  // put their parts behind one another; a sequence is not.
  if (!factor.Is(1)) {
    if (const Node* collective = CollectiveBehind(value))
      RejectCollective(value, *collective, root);
    if (dim_ == ChunkDim::kSeq) {
      Reject(value, root, "its dimension counts more than the positions of one sequence");
    }
  }
  return {static_cast<int64_t>(*found), std::move(factor)};
}

// What the symbol is multiplied with in a dimension.
Dim Cuts::Factor(const Value& value, const Dim& size, Name root) {
  const Dim symbol = Dim::Symbol(symbol_);
  if (size == symbol) return 1;
  Dim factor =
      size.Substitute([&](SymbolId id) { return id == symbol_ ? Dim(1) : Dim::Symbol(id); });
  if (factor * symbol == size) return factor;
  // Not spelled as a multiple, but perhaps one for the sizes of this step.
  if (!shapes_.HasDataSymbol(size)) {
    int64_t extent = shapes_.Hint(symbol), whole = shapes_.Hint(size);
    if (whole % extent == 0 && shapes_.Equal(size, symbol * Dim(whole / extent))) {
      return whole / extent;
    }
  }
  Reject(value, root, fmt::format("its dimension of {} is no multiple of it", shapes_.Print(size)));
}

void Cuts::Reject(const Value& value, Name root, std::string_view why) const {
  Fail(ErrorCode::kChunkSplit, "{}: {} cannot be cut along {} ({}): {}", root.str(),
       Describe(value), shapes_.NameOf(symbol_), EnumName(dim_), why);
}

void Cuts::RejectCollective(const Value& value, const Node& collective, Name root) const {
  Fail(ErrorCode::kChunkCollective,
       "{}: {} cannot be cut along {} ({}): it comes from the collective {}, which puts the "
       "parts of all ranks behind one another in that dimension",
       root.str(), Describe(value), shapes_.NameOf(symbol_), EnumName(dim_), Describe(collective));
}

}  // namespace gt
