// A memory curve for people and for programs: what is alive at the peak as a table, everything as
// JSON, and the curve as a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/sim/memory_curve.h"

namespace gt {

// Tensors at the peak that differ only in the layer they belong to.
struct MemoryRow {
  std::string module;  // "layers.{1-26}.moe.experts"; of an input its full name
  std::string op;      // that made them; of an input its role: "param"
  std::string shape;   // "bf16[8, 4096]", at the hints
  std::string policy;  // what the memory policy said about them; empty: nothing
  MemoryCategory category = MemoryCategory::kTemporary;
  int64_t count = 0;
  int64_t bytes = 0;  // of all together

  bool operator==(const MemoryRow&) const = default;
};

// Everything alive at the peak, most bytes first. Modules that differ in one number of their name
// share a row if they have the same number of such tensors of the same size: each row can be
// unfolded to exactly what is alive.
std::vector<MemoryRow> RowsAtPeak(const Graph& graph, const MemoryCurve& curve);

// The peak, its categories, and the first `top` rows with a line for the rest. Ends in a newline.
std::string MemoryTable(const Graph& graph, const MemoryCurve& curve, size_t top = 20);
// The same without the first line.
std::string AliveTable(const Graph& graph, const MemoryCurve& curve, size_t top = 20);

// The peak and what it is made of in one line: "12.30 GiB: parameters 3.74 GiB, ...". What is less than
// a hundredth of it is "others".
std::string MemoryLine(const MemoryCurve& curve);

// {"device", "peak": {"bytes", "position", "value", "operator", "module", "phase"},
//  "categories": {"parameters": bytes, ...}, "elsewhere_peak",
//  "phases": [{"phase", "first", "last"}], "during": [bytes ...], "after": [bytes ...],
//  "tensors": [{"module", "operator", "shape", "policy", "category", "count", "bytes"}]}
// Positions count nodes from 0; one number per node in during and after.
std::string MemoryJson(const Graph& graph, const MemoryCurve& curve);

// The bytes alive over the step as areas stacked by category, with phases and the peak marked. A
// long step is drawn by the largest node of each column, so that no peak is lost. `title` is
// above it.
std::string MemorySvg(const Graph& graph, const MemoryCurve& curve, const std::string& title);

}  // namespace gt
