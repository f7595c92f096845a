#include "gt/placement/solver/label_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "gt/placement/solver/problem_check.h"

namespace gt::placement {
namespace {

// One table for each matrix and factor that edges use, filled where an edge has labels at both ends.
class SharedTables {
 public:
  explicit SharedTables(const LabelProblem& problem) : problem_(problem) {}

  // Before the first table is made.
  void Need(const Edge& edge, const std::vector<int32_t>& rows,
            const std::vector<int32_t>& columns) {
    const CostMatrix& matrix = problem_.matrices[static_cast<size_t>(edge.matrix)];
    Shared& shared = tables_[{edge.matrix, edge.factor}];
    shared.rows.resize(static_cast<size_t>(matrix.rows), false);
    shared.columns.resize(static_cast<size_t>(matrix.columns), false);
    for (const int32_t row : rows) shared.rows[static_cast<size_t>(row)] = true;
    for (const int32_t column : columns) shared.columns[static_cast<size_t>(column)] = true;
  }

  std::shared_ptr<const CostTable> For(const Edge& edge) {
    Shared& shared = tables_[{edge.matrix, edge.factor}];
    if (shared.table) return shared.table;
    const CostMatrix& matrix = problem_.matrices[static_cast<size_t>(edge.matrix)];
    auto made = std::make_shared<CostTable>();
    made->rows = static_cast<size_t>(matrix.rows);
    made->columns = static_cast<size_t>(matrix.columns);
    made->values.resize(matrix.values.size());
    std::vector<size_t> columns;
    for (size_t column = 0; column < made->columns; ++column) {
      if (shared.columns[column]) columns.push_back(column);
    }
    for (size_t row = 0; row < made->rows; ++row) {
      if (!shared.rows[row]) continue;
      const float* from = matrix.values.data() + row * made->columns;
      double* to = made->values.data() + row * made->columns;
      for (const size_t column : columns) {
        const double wide = from[column];
        to[column] = wide == kForbidden ? kForbidden : wide * edge.factor;
      }
    }
    return shared.table = std::move(made);
  }

 private:
  struct Shared {
    std::vector<bool> rows, columns;  // that some edge needs
    std::shared_ptr<const CostTable> table;
  };
  const LabelProblem& problem_;
  std::map<std::pair<int32_t, double>, Shared> tables_;
};

std::shared_ptr<const CostTable> Sum(const GraphEdge& edge, int32_t a, const CostTable& more) {
  auto sum = std::make_shared<CostTable>(*edge.table);
  for (size_t row = 0; row < sum->rows; ++row) {
    for (size_t column = 0; column < sum->columns; ++column) {
      sum->values[row * sum->columns + column] += edge.a == a
                                                      ? more.values[row * more.columns + column]
                                                      : more.values[column * more.columns + row];
    }
  }
  return sum;
}

}  // namespace

LabelGraph LabelGraph::From(const LabelProblem& problem) {
  LabelGraph graph;
  Moments moments = FindMoments(problem);
  graph.feasible = moments.feasible() && problem.usage_limit >= 0;
  graph.room = std::move(moments.room);
  graph.vertices.resize(problem.variables.size());
  for (size_t v = 0; v < problem.variables.size(); ++v) {
    GraphVertex& vertex = graph.vertices[v];
    vertex.cost = problem.variables[v].costs;
    vertex.usage = std::move(moments.used[v]);
    for (size_t label = 0; label < vertex.cost.size(); ++label) {
      if (vertex.cost[label] < kForbidden) vertex.labels.push_back(static_cast<int32_t>(label));
    }
    if (vertex.labels.empty()) graph.feasible = false;
  }
  SharedTables tables(problem);
  for (const Edge& edge : problem.edges) {
    tables.Need(edge, graph.At(edge.from).labels, graph.At(edge.to).labels);
  }
  std::unordered_map<int64_t, int32_t> between;
  for (const Edge& edge : problem.edges) {
    if (edge.factor == 0 &&
        std::ranges::none_of(problem.matrices[static_cast<size_t>(edge.matrix)].values,
                             [](float value) { return value == kForbidden; })) {
      continue;
    }
    const auto table = tables.For(edge);
    const int64_t key =
        (int64_t{std::min(edge.from, edge.to)} << 32) | std::max(edge.from, edge.to);
    const auto [known, fresh] = between.emplace(key, static_cast<int32_t>(graph.edges.size()));
    if (!fresh) {
      GraphEdge& first = graph.edges[static_cast<size_t>(known->second)];
      first.table = Sum(first, edge.from, *table);
      continue;
    }
    graph.At(edge.from).edges.push_back(known->second);
    graph.At(edge.to).edges.push_back(known->second);
    graph.edges.push_back({true, edge.from, edge.to, table, {}, {}});
  }
  return graph;
}

const std::vector<int32_t>& LabelGraph::EdgesOf(int32_t v) {
  std::vector<int32_t>& list = At(v).edges;
  std::erase_if(list, [&](int32_t e) { return !edges[static_cast<size_t>(e)].present; });
  return list;
}

int32_t LabelGraph::EdgeBetween(int32_t v, int32_t u) {
  if (At(u).edges.size() < At(v).edges.size()) std::swap(v, u);
  for (const int32_t e : EdgesOf(v)) {
    if (edges[static_cast<size_t>(e)].Other(v) == u) return e;
  }
  return -1;
}

void LabelGraph::AddTable(int32_t a, int32_t b, CostTable table) {
  const int32_t known = EdgeBetween(a, b);
  if (known >= 0) {
    GraphEdge& edge = edges[static_cast<size_t>(known)];
    edge.table = Sum(edge, a, table);
    return;
  }
  At(a).edges.push_back(static_cast<int32_t>(edges.size()));
  At(b).edges.push_back(static_cast<int32_t>(edges.size()));
  edges.push_back({true, a, b, std::make_shared<CostTable>(std::move(table)), {}, {}});
}

LabelGraph LabelGraph::Compacted(std::vector<int32_t>& kept) const {
  LabelGraph compact;
  compact.room = room;
  compact.price = price;
  compact.constant = constant;
  compact.feasible = feasible;
  kept.clear();
  std::vector<int32_t> number(vertices.size(), -1);
  for (size_t v = 0; v < vertices.size(); ++v) {
    if (!vertices[v].present) continue;
    number[v] = static_cast<int32_t>(kept.size());
    kept.push_back(static_cast<int32_t>(v));
    compact.vertices.push_back(vertices[v]);
    compact.vertices.back().edges.clear();
  }
  for (const GraphEdge& edge : edges) {
    if (!edge.present) continue;
    GraphEdge& copy = compact.edges.emplace_back(edge);
    copy.a = number[static_cast<size_t>(edge.a)];
    copy.b = number[static_cast<size_t>(edge.b)];
    compact.At(copy.a).edges.push_back(static_cast<int32_t>(compact.edges.size()) - 1);
    compact.At(copy.b).edges.push_back(static_cast<int32_t>(compact.edges.size()) - 1);
  }
  return compact;
}

LabelGraph LabelGraph::Restricted(const std::vector<char>& open, const std::vector<int32_t>& labels,
                                  std::vector<int32_t>& kept) const {
  LabelGraph part;
  part.constant = constant;
  part.price = price;
  kept.clear();
  std::vector<int32_t> number(vertices.size(), -1);
  std::vector<int64_t> taken(room.size() + 1, 0);
  for (size_t v = 0; v < vertices.size(); ++v) {
    if (open[v]) {
      number[v] = static_cast<int32_t>(kept.size());
      kept.push_back(static_cast<int32_t>(v));
      part.vertices.push_back(vertices[v]);
      part.vertices.back().edges.clear();
      continue;
    }
    const auto label = static_cast<size_t>(labels[v]);
    part.constant += vertices[v].cost[label];
    for (const MomentUsage& item : vertices[v].usage) {
      taken[static_cast<size_t>(item.begin)] += item.usage[label];
      taken[static_cast<size_t>(item.end)] -= item.usage[label];
    }
  }
  int64_t sum = 0;
  for (size_t t = 0; t < room.size(); ++t) part.room.push_back(room[t] - (sum += taken[t]));
  for (const GraphEdge& edge : edges) {
    const auto a = static_cast<size_t>(edge.a);
    const auto b = static_cast<size_t>(edge.b);
    if (!edge.present) continue;
    if (open[a] && open[b]) {
      GraphEdge& copy = part.edges.emplace_back(edge);
      copy.a = number[a];
      copy.b = number[b];
      part.At(copy.a).edges.push_back(static_cast<int32_t>(part.edges.size()) - 1);
      part.At(copy.b).edges.push_back(static_cast<int32_t>(part.edges.size()) - 1);
    } else if (open[a] || open[b]) {
      const int32_t fixed = open[a] ? edge.b : edge.a;
      const EdgeView view(edge, fixed);
      GraphVertex& vertex = part.At(number[open[a] ? a : b]);
      for (const int32_t x : vertex.labels) {
        vertex.cost[static_cast<size_t>(x)] += view.At(labels[static_cast<size_t>(fixed)], x);
      }
    } else {
      part.constant += EdgeView(edge, edge.a).At(labels[a], labels[b]);
    }
  }
  return part;
}

}  // namespace gt::placement
