#include "gt/placement/solver/core_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "gt/placement/solver/min_plus.h"

namespace gt::placement {
namespace {

template <typename Number>
Number RoundedDown(double value) {
  const auto rounded = static_cast<Number>(value);
  return rounded > value ? std::nextafter(rounded, std::numeric_limits<Number>::lowest()) : rounded;
}

template <typename Number>
std::vector<Number> TableOf(const LabelGraph& graph, const GraphEdge& edge, int32_t a, int32_t b) {
  const EdgeView view(edge, a);
  const std::vector<int32_t>& rows = graph.At(a).labels;
  const std::vector<int32_t>& columns = graph.At(b).labels;
  std::vector<Number> values(rows.size() * columns.size());
  Number* next = values.data();
  for (const int32_t x : rows) {
    for (const int32_t y : columns) *next++ = RoundedDown<Number>(view.At(x, y));
  }
  return values;
}

// Keeps tables, of equal ones only the first.
template <typename Number>
class UniqueTables {
 public:
  explicit UniqueTables(std::vector<std::unique_ptr<std::vector<Number>>>& kept) : kept_(kept) {}

  const Number* Keep(std::vector<Number> values) {
    auto table = std::make_unique<std::vector<Number>>(std::move(values));
    const std::string_view bytes(reinterpret_cast<const char*>(table->data()),
                                 table->size() * sizeof(Number));
    const auto [found, fresh] = known_.emplace(bytes, table->data());
    if (fresh) kept_.push_back(std::move(table));
    return found->second;
  }

 private:
  std::vector<std::unique_ptr<std::vector<Number>>>& kept_;
  std::unordered_map<std::string_view, const Number*> known_;
};

}  // namespace

CoreGraph::CoreGraph(const LabelGraph& graph, bool narrow)
    : room_(graph.room), constant_(graph.constant) {
  AddVertices(graph);
  AddLinks(graph, narrow);
}

void CoreGraph::AddVertices(const LabelGraph& graph) {
  for (size_t v = 0; v < graph.vertices.size(); ++v) {
    const GraphVertex& vertex = graph.vertices[v];
    if (!vertex.present) continue;
    variable_.push_back(static_cast<int32_t>(v));
    for (const int32_t label : vertex.labels) {
      label_.push_back(label);
      cost_.push_back(vertex.cost[static_cast<size_t>(label)]);
    }
    first_.push_back(label_.size());
    auto& items = usage_.emplace_back();
    for (const MomentUsage& item : vertex.usage) {
      CoreUsage& kept = items.emplace_back(CoreUsage{item.begin, item.end, {}});
      for (const int32_t label : vertex.labels) {
        kept.usage.push_back(item.usage[static_cast<size_t>(label)]);
      }
      has_usage_ = true;
    }
  }
}

void CoreGraph::AddLinks(const LabelGraph& graph, bool narrow) {
  std::vector<int32_t> vertex_of(graph.vertices.size(), -1);
  for (int32_t v = 0; v < size(); ++v) vertex_of[static_cast<size_t>(variable(v))] = v;
  UniqueTables wide_tables(wide_tables_);
  UniqueTables narrow_tables(narrow_tables_);
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    const GraphEdge& edge = graph.edges[e];
    if (!edge.present) continue;
    const auto [from, to] = std::minmax(edge.a, edge.b);
    CoreLink link{vertex_of[static_cast<size_t>(from)], vertex_of[static_cast<size_t>(to)]};
    if (narrow) {
      link.table.narrow = narrow_tables.Keep(TableOf<float>(graph, edge, from, to));
    } else {
      link.table.wide = wide_tables.Keep(TableOf<double>(graph, edge, from, to));
    }
    link.edge = static_cast<int32_t>(e);
    entries_ += static_cast<double>(labels(link.a) * labels(link.b));
    links_.push_back(link);
  }
  std::ranges::sort(links_, [](const CoreLink& x, const CoreLink& y) {
    return std::pair(x.a, x.b) < std::pair(y.a, y.b);
  });
  first_link_.assign(static_cast<size_t>(size()) + 1, 0);
  for (const CoreLink& link : links_) {
    ++first_link_[static_cast<size_t>(link.a) + 1];
    ++first_link_[static_cast<size_t>(link.b) + 1];
  }
  for (size_t v = 0; v + 1 < first_link_.size(); ++v) first_link_[v + 1] += first_link_[v];
  link_list_.resize(2 * links_.size());
  std::vector<size_t> next(first_link_.begin(), first_link_.end() - 1);
  // In the order of links, smaller neighbours come first: each is the `a` of its link.
  for (const bool smaller : {true, false}) {
    for (size_t l = 0; l < links_.size(); ++l) {
      const int32_t end = smaller ? links_[l].b : links_[l].a;
      link_list_[next[static_cast<size_t>(end)]++] = static_cast<int32_t>(l);
    }
  }
}

double CoreGraph::CostOf(const std::vector<int32_t>& x) const {
  double cost = constant_;
  for (int32_t v = 0; v < size(); ++v) {
    cost += costs(v)[static_cast<size_t>(x[static_cast<size_t>(v)])];
  }
  for (const CoreLink& link : links_) {
    cost += Cost(link, x[static_cast<size_t>(link.a)], x[static_cast<size_t>(link.b)]);
  }
  return cost;
}

void CoreGraph::LeastBeside(const CoreLink& link, const CoreTable& table, int32_t to,
                            const double* weight, double* least) const {
  const auto product = [&](const auto* values) {
    if (to == link.b) {
      MinPlus(values, labels(link.a), labels(link.b), weight, least);
    } else {
      MinPlusOfRows(values, labels(link.a), labels(link.b), weight, least);
    }
  };
  if (table.wide != nullptr) {
    product(table.wide);
  } else {
    product(table.narrow);
  }
}

void CoreGraph::Export(const std::vector<int32_t>& x, std::vector<int32_t>& labels) const {
  for (int32_t v = 0; v < size(); ++v) {
    labels[static_cast<size_t>(variable(v))] = label(v, x[static_cast<size_t>(v)]);
  }
}

}  // namespace gt::placement
