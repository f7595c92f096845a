// The text form of graphs, .gtir: what dumps, tests and stored graphs are written in. Printing and
// parsing again gives an equal graph: same structure, types, arguments, metadata, roles, symbols,
// facts and guards, and the same value names.
//
//   graph @step(%w: param "w" f32[2, 8], %x: input "x" f32[s0, 8]) {
//     symbols { s0: input, hint 4, range [2, 64] }
//     guards { s0 != 3 by "layers.0" "aten::view" }
//     %mm = aten::mm(%x, %t) : f32[s0, 2] {module = "layers.0", seq = 3, source = "llama3.cc:12"}
//     return loss "loss" %l, gradient "w" %g
//   }
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gt/ir/graph.h"

namespace gt {

struct PrintOptions {
  bool metadata = true;  // off: easier to read, no longer complete
};

std::string Print(const Graph& graph, const PrintOptions& options = {});
// One node, as it stands in the text form; for messages.
std::string Print(const Node& node, const PrintOptions& options = {});
std::string Print(const TensorType& type, const ShapeEnv& shapes);

// Throws an Error that shows file, line, column and the offending text. The graph is not verified.
std::unique_ptr<Graph> Parse(std::string_view text, std::string_view file_name = "<text>");
std::unique_ptr<Graph> ParseFile(const std::string& path);

}  // namespace gt
