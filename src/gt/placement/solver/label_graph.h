// The problem while it is being reduced: vertices lose labels and disappear, edges are added
// together. Labels keep the numbers that the problem gave them, so what was decided about one vertex
// stays true whatever happens to the others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gt/placement/solver/label_problem.h"
#include "gt/placement/solver/moments.h"

namespace gt::placement {

// Row-major; shared by edges that look alike, never changed.
struct CostTable {
  size_t rows = 0;
  size_t columns = 0;
  std::vector<double> values;
};

struct GraphVertex {
  bool present = true;
  std::vector<double> cost;        // by label, also those that are gone
  std::vector<int32_t> labels;     // that are left, ascending
  std::vector<MomentUsage> usage;  // by label
  std::vector<int32_t> edges;      // may name edges that are gone
};

struct GraphEdge {
  bool present = true;
  int32_t a = 0;  // rows
  int32_t b = 0;  // columns
  std::shared_ptr<const CostTable> table;
  // What message passing moved from here to the ends, by label, for the next to start from; empty:
  // nothing. Moving changes no labelling's cost, and the table keeps its values.
  std::vector<double> moved_a = {};
  std::vector<double> moved_b = {};
  int32_t Other(int32_t vertex) const { return vertex == a ? b : a; }
};

// The entries of an edge's table as one of its ends sees them.
class EdgeView {
 public:
  EdgeView(const GraphEdge& edge, int32_t vertex)
      : values_(edge.table->values.data()),
        own_(vertex == edge.a ? edge.table->columns : 1),
        other_(vertex == edge.a ? 1 : edge.table->columns) {}
  double At(int32_t own, int32_t other) const {
    return values_[static_cast<size_t>(own) * own_ + static_cast<size_t>(other) * other_];
  }

 private:
  const double* values_;
  size_t own_;
  size_t other_;
};

struct LabelGraph {
  std::vector<GraphVertex> vertices;
  std::vector<GraphEdge> edges;
  std::vector<int64_t> room;  // by moment
  std::vector<double> price;  // of a byte by moment, as good as known; empty: not known
  double constant = 0;        // part of every labelling's cost
  bool feasible = true;       // false: found to have no labelling

  // Parallel edges are added together, forbidden labels dropped.
  static LabelGraph From(const LabelProblem& problem);

  GraphVertex& At(int32_t v) { return vertices[static_cast<size_t>(v)]; }
  const GraphVertex& At(int32_t v) const { return vertices[static_cast<size_t>(v)]; }
  // Edges of a vertex that are left; forgets the others.
  const std::vector<int32_t>& EdgesOf(int32_t v);
  int32_t EdgeBetween(int32_t v, int32_t u);  // -1: none
  // Adds to the edge between two vertices, or makes it. `table` has a row for each label of `a`.
  void AddTable(int32_t a, int32_t b, CostTable table);
  // Only what is left, numbered anew; `kept` becomes the present numbers.
  LabelGraph Compacted(std::vector<int32_t>& kept) const;
  // Only the vertices marked in `open`, numbered anew, while all others have the given labels.
  LabelGraph Restricted(const std::vector<char>& open, const std::vector<int32_t>& labels,
                        std::vector<int32_t>& kept) const;
  void RemoveEdge(int32_t e) { edges[static_cast<size_t>(e)].present = false; }
};

}  // namespace gt::placement
