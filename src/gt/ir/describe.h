// How messages name a node.
#pragma once

#include <string>
#include <string_view>

#include "gt/ir/graph.h"

namespace gt {

// "%mm (aten::mm, module 'layers.0.wq')". Nodes without results are called `without_results`, which
// may be empty; `more` is put after the module, before the bracket.
std::string DescribeNode(const Node& node, std::string_view without_results = "a node",
                         std::string_view more = {});

}  // namespace gt
