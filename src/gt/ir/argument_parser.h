// The arguments of a node, read by the schema of its operator.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/ir/size_parser.h"
#include "gt/ir/token_reader.h"

namespace gt {

// Reads a graph that is an argument of a node of `around`.
using NestedGraphParser = std::function<GraphRef(const Graph& around)>;

// The value of this graph that the text names here.
Value* ExpectValue(TokenReader& in, const Graph& graph);

class ArgumentParser {
 public:
  ArgumentParser(TokenReader& in, SizeParser& sizes, const Graph& graph, NestedGraphParser nested)
      : in_(in), sizes_(sizes), graph_(graph), nested_(std::move(nested)) {}

  // Fills in the operands and arguments of `spec`, whose operator is known.
  void Parse(Graph::NodeSpec& spec);

 private:
  using Kind = Token::Kind;
  void ParseGiven(const Operator& op, std::vector<Argument>& args, std::vector<bool>& given);
  int FindArgument(const Operator& op, int next) const;
  void FillDefaults(const Operator& op, const std::vector<bool>& given,
                    std::vector<Argument>& args) const;
  Argument ParseArgument(const ArgSpec& spec);
  Argument ParseTensor(const ArgSpec& spec);
  Argument ParseNumber();
  OperandRef ParseOperand();

  TokenReader& in_;
  SizeParser& sizes_;
  const Graph& graph_;
  NestedGraphParser nested_;
  std::vector<Value*> operands_;  // of the current node, in the order of the text
};

}  // namespace gt
