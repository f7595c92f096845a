// Sizes of the text form: numbers, symbols and expressions over them, such as
// `s0 * 4 + floordiv(s1, 2)`.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/ir/dim.h"
#include "gt/ir/token_reader.h"
#include "gt/ir/type.h"

namespace gt {

class SizeParser {
 public:
  explicit SizeParser(TokenReader& in) : in_(in) {}

  // Makes a symbol known; `name` is part of the text. Ids are given out in order, from 0.
  void Declare(std::string_view name, SymbolId id);
  bool IsDeclared(std::string_view name) const { return symbol_ids_.contains(name); }
  // Words that mean something where an expression may be; no symbol can have such a name.
  static bool IsReserved(std::string_view word);

  // A size among others, followed by ',' or a bracket.
  Dim Parse();
  // Any expression. Where entries are separated by lines, a line ends one.
  Dim ParseSum();
  void SetLinesEndExpressions(bool end) { lines_end_expressions_ = end; }
  Shape ParseList(char open, char close);
  SymbolId ExpectSymbol();

 private:
  Dim ParseProduct(bool subtracted);
  Dim ParseFactor();
  Dim ParseInteger();
  Dim ParseSymbol() { return symbol_dims_[ExpectSymbol()]; }

  TokenReader& in_;
  int depth_ = 0;
  bool lines_end_expressions_ = false;
  std::unordered_map<std::string_view, SymbolId> symbol_ids_;
  std::vector<Dim> symbol_dims_;  // made once: equal Dims then share one expression
};

}  // namespace gt
