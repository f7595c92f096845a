// One node of the text form: results = operator(arguments) : types {metadata}.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gt/ir/argument_parser.h"
#include "gt/ir/graph.h"
#include "gt/ir/size_parser.h"
#include "gt/ir/token_reader.h"

namespace gt {

class NodeParser {
 public:
  NodeParser(TokenReader& in, SizeParser& sizes, Graph& graph, NestedGraphParser nested)
      : in_(in), sizes_(sizes), graph_(graph), arguments_(in, sizes, graph, std::move(nested)) {}

  // Reads a node and appends it to the graph.
  void Parse();

 private:
  void ParseResultNames(std::vector<std::string>& names);
  void CheckResultNames(const std::vector<std::string>& names,
                        const std::vector<size_t>& offsets) const;
  const Operator& ParseOperator();
  void ParseBoundSymbols(Graph::Typed& typed);
  void ParseResultTypes(const Operator& op, size_t statement, Graph::Typed& typed);
  void ParseOffsets(const Operator& op, Graph::Typed& typed);

  TokenReader& in_;
  SizeParser& sizes_;
  Graph& graph_;
  ArgumentParser arguments_;
  // Keyed by the text of tokens.
  std::unordered_map<std::string_view, const Operator*> operators_;
};

}  // namespace gt
