#include "gt/ir/node_parser.h"

#include <algorithm>
#include <utility>

#include "gt/base/text.h"
#include "gt/ir/meta_parser.h"
#include "gt/ir/type_parser.h"

namespace gt {
namespace {

// "aten::ad.Tensor" means "aten::add.Tensor", "aten::add" and "add" do too.
const Operator* NearestOperator(std::string_view name) {
  constexpr size_t kLongestName = 128;  // the edit distance is quadratic
  if (name.size() > kLongestName) return nullptr;
  const bool qualified = name.find("::") != std::string_view::npos;
  const Operator* nearest = nullptr;
  size_t best = std::max<size_t>(2, name.size() / 4) + 1;
  for (const Operator* op : AllOperators()) {
    std::string_view candidate = op->name.str();
    if (!qualified) candidate.remove_prefix(candidate.find("::") + 2);
    size_t distance = EditDistance(name, candidate);
    if (distance > 1 && candidate.substr(0, candidate.find('.')) == name) distance = 1;
    if (distance < best) {
      best = distance;
      nearest = op;
    }
  }
  return nearest;
}

bool IsOperator(const Token& token) {
  return token.kind == Token::Kind::kOperator || token.kind == Token::Kind::kIdentifier;
}

}  // namespace

void NodeParser::Parse() {
  const size_t statement = in_.token().offset;
  Graph::NodeSpec spec;
  Graph::Typed typed;
  if (in_.token().kind == Token::Kind::kValue) {
    ParseResultNames(typed.result_names);
  } else if (!IsOperator(in_.token())) {
    in_.FailExpected("a node or 'return'");
  }
  spec.op = &ParseOperator();
  arguments_.Parse(spec);
  if (in_.AcceptWord("binds")) ParseBoundSymbols(typed);
  ParseResultTypes(*spec.op, statement, typed);
  ParseOffsets(*spec.op, typed);
  if (in_.token().Is('{')) spec.meta = ParseMeta(in_);
  graph_.InsertTyped(std::move(spec), std::move(typed));
}

void NodeParser::ParseResultNames(std::vector<std::string>& names) {
  std::vector<size_t> offsets;
  do {
    offsets.push_back(in_.token().offset);
    names.push_back(in_.ExpectName(Token::Kind::kValue, "the name of a result, such as %y"));
  } while (in_.Accept(','));
  if (!in_.Accept('=')) in_.FailExpected("'=' and an operator");
  CheckResultNames(names, offsets);
}

void NodeParser::CheckResultNames(const std::vector<std::string>& names,
                                  const std::vector<size_t>& offsets) const {
  auto fail = [&](size_t i) {
    in_.FailAt(ErrorCode::kDuplicateValue, offsets[i],
               fmt::format("%{} is already the name of another value", names[i]));
  };
  for (size_t i = 0; i < names.size(); ++i) {
    if (graph_.FindValue(names[i]) != nullptr) fail(i);
  }
  if (names.size() == 1) return;
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!seen.emplace(names[i], i).second) fail(i);
  }
}

const Operator& NodeParser::ParseOperator() {
  const std::string_view name = in_.token().text;
  if (!IsOperator(in_.token())) in_.FailExpected("an operator, such as aten::mm");
  auto [found, fresh] = operators_.try_emplace(name, nullptr);
  if (fresh) found->second = FindOperator(name);
  if (found->second == nullptr) {
    const Operator* nearest = NearestOperator(name);
    in_.FailHere(
        ErrorCode::kGtirUnknownOperator,
        fmt::format("there is no operator {}{}", name.substr(0, 128),
                    nearest ? fmt::format("; did you mean {}?", nearest->name.str()) : ""));
  }
  in_.Advance();
  return *found->second;
}

void NodeParser::ParseBoundSymbols(Graph::Typed& typed) {
  typed.bound_symbols = in_.ExpectList<SymbolId>([&] {
    const size_t offset = in_.token().offset;
    const SymbolId id = sizes_.ExpectSymbol();
    const Symbol& symbol = graph_.shapes().symbol(id);
    if (symbol.kind != Symbol::Kind::kData) {
      in_.FailAt(ErrorCode::kGtirSyntax, offset,
                 fmt::format("{} is bound by an input; a node binds symbols declared as data",
                             symbol.name));
    }
    return id;
  });
}

void NodeParser::ParseResultTypes(const Operator& op, size_t statement, Graph::Typed& typed) {
  const size_t count = typed.result_names.size();
  if (count > 0) {
    auto parse_type = [&] { typed.results.push_back(ParseType(in_, sizes_, graph_.shapes())); };
    if (!in_.Accept(':')) in_.FailExpected("':' and the types of the results");
    if (in_.Accept('(')) {
      do {
        parse_type();
      } while (in_.Accept(','));
      if (!in_.Accept(')')) in_.FailExpected("',' or ')' behind a type");
    } else {
      parse_type();
    }
    if (typed.results.size() != count) {
      in_.FailAt(
          ErrorCode::kGtirSyntax, statement,
          fmt::format("this node names {} results but has {} types", count, typed.results.size()));
    }
  }
  size_t fixed = 0;
  bool list = false;
  for (const ResultSpec& result : op.schema.results) {
    list |= result.list;
    if (!result.list && !result.integer) ++fixed;
  }
  if (count < fixed || (count > fixed && !list)) {
    in_.FailAt(ErrorCode::kGtirBadArgument, statement,
               fmt::format("{} has {}{} results, but {} are named: {}", op.name.str(),
                           list ? "at least " : "", fixed, count, op.schema.text));
  }
}

void NodeParser::ParseOffsets(const Operator& op, Graph::Typed& typed) {
  const size_t count = typed.result_names.size();
  const size_t offset = in_.token().offset;
  if (in_.AcceptWord("offset")) {
    typed.view_offsets = sizes_.ParseList('[', ']');
    if (!op.is_view() || typed.view_offsets.size() != count) {
      in_.FailAt(ErrorCode::kGtirSyntax, offset,
                 op.is_view()
                     ? fmt::format("{} results but {} offsets", count, typed.view_offsets.size())
                     : fmt::format("{} is not a view: it has no offset", op.name.str()));
    }
  } else if (op.is_view()) {
    typed.view_offsets.resize(count);
  }
}

}  // namespace gt
