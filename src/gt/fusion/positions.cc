#include "gt/fusion/positions.h"

#include <algorithm>

namespace gt::fusion {
namespace {

std::string DimKey(const Dim& dim) {
  return dim.ToString([](SymbolId id) { return fmt::format("s{}", id); });
}

Dim StartOf(const Node& slice, const Dim& size) {
  const auto* start = std::get_if<Dim>(&slice.arg(2));
  if (start == nullptr) return Dim(0);
  if (!start->is_const() || *start->as_const() >= 0) return *start;
  if (!size.is_const()) throw NoCode();
  return Dim(std::max<int64_t>(0, *size.as_const() + *start->as_const()));
}

}  // namespace

size_t DimIndex(const Argument& argument, int64_t rank) {
  const int64_t dim = std::get<Dim>(argument).as_const().value_or(0);
  return static_cast<size_t>(dim < 0 ? dim + rank : dim);
}

Index::Divided Positions::Divide(const Index& index, const Dim& size) {
  if (auto divided = index.DividedBy(size, text_.variables())) return *divided;
  if (!index.SameInAllLanes()) throw NeedsOneLane();
  const std::string key = fmt::format("divide {} {}", index.Key(), DimKey(size));
  if (const auto* known = text_.Find(key)) {
    const int first = std::stoi(*known);
    return {Index::Of(first, 1, text_.lanes()), Index::Of(first + 1, 1, text_.lanes())};
  }
  const int quotient =
      text_.NewVariable(fmt::format("q{}", text_.variables().size()), std::nullopt);
  const int remainder = text_.NewVariable(fmt::format("r{}", text_.variables().size()), size);
  const std::string text = text_.IndexText(index);
  const std::string by = text_.SizeText(size);
  text_.Line("const Size {} = ({}) / {}, {} = ({}) % {};", text_.NameOf(quotient), text, by,
             text_.NameOf(remainder), text, by);
  text_.Remember(key, std::to_string(quotient));
  return {Index::Of(quotient, 1, text_.lanes()), Index::Of(remainder, 1, text_.lanes())};
}

Position Positions::Regrouped(const Position& from, const Shape& sizes, const Shape& to) {
  if (sizes == to) return from;
  Position position(to.size(), text_.Number(0));
  size_t a = 0, b = 0;
  while (a < sizes.size() || b < to.size()) {
    if (a < sizes.size() && sizes[a].Is(1)) {
      ++a;
      continue;
    }
    if (b < to.size() && to[b].Is(1)) {
      ++b;
      continue;
    }
    if (a == sizes.size() || b == to.size()) throw NoCode();
    size_t a_end = a + 1, b_end = b + 1;
    Dim left = sizes[a], right = to[b];
    while (left != right) {
      const bool grow_left = text_.Hint(left) < text_.Hint(right);
      if (grow_left ? a_end == sizes.size() : b_end == to.size()) throw NoCode();
      (grow_left ? left : right) *= grow_left ? sizes[a_end++] : to[b_end++];
    }
    Index number = text_.Number(0);
    for (; a < a_end; ++a) number = number * sizes[a] + from[a];
    for (size_t last = b_end - 1; last > b; --last) {
      Index::Divided divided = Divide(number, to[last]);
      position[last] = divided.remainder;
      number = divided.quotient;
    }
    position[b] = number;
    b = b_end;
  }
  return position;
}

Position Positions::Broadcast(const Position& position, const Shape& from, const Shape& to) const {
  Position result(to.size(), text_.Number(0));
  const size_t added = from.size() - to.size();
  for (size_t d = 0; d < to.size(); ++d) {
    const bool repeated = to[d].Is(1) && !from[d + added].Is(1);
    if (!repeated) result[d] = position[d + added];
  }
  return result;
}

Position Positions::Viewed(const Node& view, int32_t result, const Position& position) {
  const std::string& name = view.op().name.str();
  const TensorType& from = view.result(result)->type();
  const TensorType& to = view.operand(0)->type();
  const int64_t rank = to.rank();
  if (name == "aten::alias" || name == "aten::detach" || name == "aten::_conj") return position;
  if (view.op().view == ViewKind::kReshape || view.op().view == ViewKind::kSameOrder) {
    return Regrouped(position, from.sizes, to.sizes);
  }
  if (name == "aten::expand") return Broadcast(position, from.sizes, to.sizes);
  Position moved = position;
  if (name == "aten::t") {
    if (rank == 2) std::swap(moved[0], moved[1]);
    return moved;
  }
  if (name == "aten::transpose.int") {
    if (rank > 0) {
      std::swap(moved[DimIndex(view.arg(1), rank)], moved[DimIndex(view.arg(2), rank)]);
    }
    return moved;
  }
  if (name == "aten::permute") {
    const Shape& dims = std::get<Shape>(view.arg(1));
    for (size_t d = 0; d < dims.size(); ++d) {
      moved[DimIndex(Argument(dims[d]), rank)] = position[d];
    }
    return moved;
  }
  if (name == "aten::slice.Tensor") {
    const size_t d = DimIndex(view.arg(1), rank);
    const Dim step = std::get<Dim>(view.arg(4));
    moved[d] = moved[d] * step + text_.Number(StartOf(view, to.sizes[d]));
    return moved;
  }
  if (name == "aten::select.int" || name == "aten::unbind.int") {
    const bool selects = name == "aten::select.int";
    const size_t d = DimIndex(view.arg(1), rank);
    Dim at = selects ? std::get<Dim>(view.arg(2)) : Dim(result);
    if (at.is_const() && *at.as_const() < 0) at += to.sizes[d];
    moved.insert(moved.begin() + static_cast<ptrdiff_t>(d), text_.Number(at));
    return moved;
  }
  if (name == "aten::split.Tensor" || name == "aten::split_with_sizes") {
    const size_t d = DimIndex(view.arg(2), rank);
    Dim start(0);
    for (int32_t i = 0; i < result; ++i) start += view.result(i)->type().sizes[d];
    moved[d] = moved[d] + text_.Number(start);
    return moved;
  }
  throw NoCode();
}

}  // namespace gt::fusion
