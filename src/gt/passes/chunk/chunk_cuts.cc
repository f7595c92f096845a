#include "gt/passes/chunk/chunk_cuts.h"

#include <optional>

#include "gt/base/error.h"

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

Cut Cuts::Of(const Value& value, Name root) {
  const Shape& sizes = value.type().sizes;
  std::optional<size_t> found;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].is_const() || !sizes[d].Contains(symbol_)) continue;
    if (found) Reject(value, root, "several of its dimensions grow with it");
    found = d;
  }
  if (!found) Reject(value, root, "its strides grow with it, but none of its dimensions does");
  Cut cut{static_cast<int64_t>(*found), Factor(value, sizes[*found], root)};
  CheckLayout(value, cut, root);
  return cut;
}

// A range of the dimension is a chunk's share only if the symbol is its outermost part.
void Cuts::CheckLayout(const Value& value, const Cut& cut, Name root) const {
  using Kind = ChunkLayout::Kind;
  const ChunkLayout& layout = layouts_.Of(value);
  if (layout.kind == Kind::kConstant || (layout.kind == Kind::kPlaced && layout.outer.Is(1)))
    return;
  if (layout.kind == Kind::kNumbered && cut.factor.Is(1)) return;
  const std::string size = shapes_.Print(value.type().sizes[static_cast<size_t>(cut.dim)]);
  const std::string symbol = shapes_.NameOf(symbol_);
  if (layout.kind == Kind::kNumbered) {
    Reject(value, root,
           fmt::format("its elements depend on nothing but their place in a dimension of {}, which "
                       "a chunk cannot tell; make it in the module that is cut",
                       size));
  }
  const Node* origin = layouts_.origin(layout);
  const Collective collective = origin == nullptr ? Collective::kNone : origin->op().collective;
  if (collective != Collective::kNone) RejectCollective(value, *origin, root);
  if (layout.kind == Kind::kPlaced) {
    const std::string who =
        origin == nullptr ? "the step's inputs have" : Describe(*origin) + " made";
    Reject(value, root,
           fmt::format("its dimension of {} has {} after a factor of {}, as {} it, so that a chunk "
                       "is no range of it. Flatten with {} outermost",
                       size, symbol, shapes_.Print(layout.outer), who, symbol));
  }
  Reject(value, root,
         fmt::format("nothing shows that {} is the outermost part of its dimension of {}{}", symbol,
                     size,
                     origin == nullptr
                         ? ""
                         : fmt::format(": {} may have given it another order", Describe(*origin))));
}

// What the symbol is multiplied with in a dimension.
Dim Cuts::Factor(const Value& value, const Dim& size, Name root) {
  const Dim symbol = Dim::Symbol(symbol_);
  if (std::optional<Dim> factor = layouts_.SpelledFactor(size)) return *factor;
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

void Cuts::RejectMixing(const Node& node, Name root) const {
  Fail(
      ErrorCode::kChunkSplit,
      "{} cannot be cut along {} ({}): {} combines elements of different chunks. Its operands have "
      "{} in different places of a dimension of the same size",
      root.str(), shapes_.NameOf(symbol_), EnumName(dim_), Describe(node), shapes_.NameOf(symbol_));
}

void Cuts::RejectCollective(const Value& value, const Node& collective, Name root) const {
  Fail(ErrorCode::kChunkCollective,
       "{}: {} cannot be cut along {} ({}): it comes from the collective {}, which puts the "
       "parts of all ranks one after another in that dimension",
       root.str(), Describe(value), shapes_.NameOf(symbol_), EnumName(dim_), Describe(collective));
}

}  // namespace gt
