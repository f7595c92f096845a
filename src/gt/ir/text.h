// The text form of graphs, .gtir: what dumps, tests and stored graphs are written in. Printing and
// reparsing gives an equal graph: same structure, types, arguments, metadata, roles, symbols,
// facts, guards and modules, and the same value names.
//
//   graph @step(%w: param "w" f32[2, 8], %x: input "x" f32[s0, 8]) {
//     symbols { s0: input, hint 4, range [2, 64] }
//     guards { s0 != 3 by "layers.0" "aten::view" }
//     modules { block: "layers.0", "layers.1"; head: "output" }
//     %mm = aten::mm(%x, %t) : f32[s0, 2] {module = "layers.0", seq = 3, source = "llama3.cc:12"}
//     return loss "loss" %l, gradient "w" %g
//   }
//
// A graph is inputs, up to four stanzas in this order (symbols, facts, guards, modules; their entries
// are on lines of their own or separated by ';'), nodes, and outputs. In detail:
//
//   type       f32[s0, 16] is row-major; other strides directly after: f32[s0, 16]{1, s0}; a
//              device other than the CPU last: f32[2] @cuda:0; none: left undefined by libtorch
//   size       + - * and parentheses, floordiv(a, b), min(a, b), max(a, b); also read: % and,
//              inside square brackets, //
//   node       results = operator(arguments) binds [u0] : types offset [4] {metadata}; a part that
//              has nothing to say is left out, several types are in parentheses
//   argument   tensors that lead the schema are positional, all others as name = value, and
//              those equal to the schema's default are left out. Values: %x, [%x, none], 2,
//              s0 * 4, 2.0, 1e-05, inf, true, [1, s0], "text", none, f32, "cuda:0" for devices,
//              strided, preserve, or a graph, which shares the symbols of the one around it
//   offset     where each result of a view begins in what it views; left out when all are 0
//   modules    those that declare a role (ir/modules.h), role by role; blocks in the order in which
//              they run
//   metadata   module, phase, seq, source, ep, exchange, recompute, bucket, and chunk = {id,
//              region, role, producer, backward, original, proof}; only what is not the default
//   name       letters, digits, '_' and '.'; any other text in quotes: %"a b". Strings know the
//              escapes \" \\ \n \t and \xHH, so that any bytes survive
//   comment    from // to the end of the line
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
// One node, as in the text form; for messages.
std::string Print(const Node& node, const PrintOptions& options = {});
std::string Print(const TensorType& type, const ShapeEnv& shapes);

// Throws an Error that shows file, line, column and the offending text. The graph is not verified.
std::unique_ptr<Graph> Parse(std::string_view text, std::string_view file_name = "<text>");
std::unique_ptr<Graph> ParseFile(const std::string& path);

}  // namespace gt
