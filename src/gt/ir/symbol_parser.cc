#include "gt/ir/symbol_parser.h"

#include <string>
#include <string_view>
#include <utility>

namespace gt {
namespace {

// Entries of a block are on lines of their own or separated by semicolons.
void EndEntry(TokenReader& in, std::string_view what) {
  if (in.Accept(';') || in.token().Is('}') || in.token().starts_line) return;
  in.FailExpected(fmt::format("';', a new line or '}}' behind a {}", what));
}

}  // namespace

void ParseSymbols(TokenReader& in, SizeParser& sizes, ShapeEnv& shapes) {
  in.Expect('{');
  while (!in.Accept('}')) {
    in.SetAnchor(in.token().offset);
    const std::string_view name = in.token().text;
    if (in.token().kind != Token::Kind::kIdentifier)
      in.FailExpected("a symbol, such as s0: input, hint 4");
    if (SizeParser::IsReserved(name)) {
      in.FailHere(ErrorCode::kBadSymbol, fmt::format("'{}' cannot be the name of a symbol", name));
    }
    in.Advance();
    in.Expect(':');
    Symbol symbol;
    symbol.name = std::string(name);
    if (in.AcceptWord("data")) {
      symbol.kind = Symbol::Kind::kData;
    } else if (!in.AcceptWord("input")) {
      in.FailExpected("'input' or 'data'");
    }
    symbol.low = symbol.kind == Symbol::Kind::kInput ? 2 : 0;
    in.Expect(',');
    in.ExpectWord("hint");
    symbol.hint = in.ExpectInteger("the hint, an integer");
    if (in.Accept(',')) {
      in.ExpectWord("range");
      in.Expect('[');
      symbol.low = in.ExpectInteger("the lower bound, an integer");
      in.Expect(',');
      if (!in.AcceptWord("inf"))
        symbol.high = in.ExpectInteger("the upper bound, an integer or inf");
      in.Expect(']');
    }
    sizes.Declare(name, shapes.AddSymbol(std::move(symbol)));
    EndEntry(in, "symbol");
  }
}

void ParseFacts(TokenReader& in, SizeParser& sizes, ShapeEnv& shapes) {
  in.Expect('{');
  sizes.SetLinesEndExpressions(true);
  while (!in.Accept('}')) {
    const size_t offset = in.token().offset;
    in.SetAnchor(offset);
    Dim left = sizes.ParseSum();
    if (!in.token().Is("==")) in.FailExpected("an operator or '=='");
    in.Advance();
    Dim right = sizes.ParseSum();
    in.SetAnchor(offset);
    shapes.AddFact(left, right);
    EndEntry(in, "fact");
  }
  sizes.SetLinesEndExpressions(false);
}

void ParseGuards(TokenReader& in, SizeParser& sizes, ShapeEnv& shapes) {
  in.Expect('{');
  sizes.SetLinesEndExpressions(true);
  while (!in.Accept('}')) {
    const size_t offset = in.token().offset;
    in.SetAnchor(offset);
    Dim left = sizes.ParseSum();
    const Token comparison = in.token();
    if (!comparison.Is("==") && !comparison.Is("!=") && !comparison.Is('<') &&
        !comparison.Is('>') && !comparison.Is("<=") && !comparison.Is(">=")) {
      in.FailExpected("an operator or one of == != < <= > >=");
    }
    in.Advance();
    Dim right = sizes.ParseSum();
    in.SetAnchor(offset);
    if (comparison.Is('>') || comparison.Is("<=")) std::swap(left, right);
    const bool equality = comparison.Is("==") || comparison.Is("!=");
    Guard guard{equality ? Predicate::Equal(left, right) : Predicate::Less(left, right), {}, {}};
    guard.predicate.holds = comparison.Is("==") || comparison.Is('<') || comparison.Is('>');
    guard.predicate.expression.SplitBySign();  // fails where the predicate could not be printed
    if (in.AcceptWord("by")) {
      guard.module = in.ExpectInterned("the module that asked, in quotes");
      guard.op = in.ExpectInterned("the operator that asked, in quotes");
    }
    shapes.AddGuard(std::move(guard));
    EndEntry(in, "guard");
  }
  sizes.SetLinesEndExpressions(false);
}

void ParseModules(TokenReader& in, ModuleTable& modules) {
  in.Expect('{');
  while (!in.Accept('}')) {
    const auto role = in.ExpectEnum("the role of modules", kLastModuleRole);
    in.Expect(':');
    do {
      const size_t offset = in.token().offset;
      const Name module = in.ExpectInterned("a module, in quotes");
      if (!modules.Declare(module, role)) {
        in.FailAt(ErrorCode::kGtirSyntax, offset,
                  fmt::format("module '{}' has a role already", module.str()));
      }
    } while (in.Accept(','));
    EndEntry(in, "role");
  }
}

}  // namespace gt
