// What boxes of a graph's picture say about nodes, values and operators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/graph.h"

namespace gt::boxes {

// No more than fits into a box: a name can be of any length. Cut between characters.
std::string Fitted(std::string text, size_t longest = 48);

// "grouped_mm" of "aten::_grouped_mm.out".
std::string_view ShortName(const Operator& op);

std::string TypeText(const TensorType& type, const ShapeEnv& shapes);
// Where a node's first result is, of a placed step; empty: not known.
std::string PlacementOf(const Value& value);
std::string NodeText(const Node& node, const ShapeEnv& shapes);

// The operators that say most about a box: those that do the arithmetic, then the frequent ones;
// views last.
std::string OperatorsText(const std::vector<const Node*>& nodes);

// The name of a module or parameter seen from `root`: router of layers.1.moe.router.
std::string_view Below(std::string_view root, std::string_view name);

}  // namespace gt::boxes
