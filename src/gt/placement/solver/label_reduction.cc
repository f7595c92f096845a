#include "gt/placement/solver/label_reduction.h"

#include <algorithm>

#include "gt/placement/solver/label_dominance.h"
#include "gt/placement/solver/min_plus.h"

namespace gt::placement {
namespace {

// Products of three numbers of labels: up to which labels are not even compared, and up to which a
// vertex is eliminated at all.
constexpr size_t kQuickSeriesWork = size_t{1} << 20, kSeriesWork = size_t{1} << 22;

// Combinations of labels of a series that are looked at to know what is hopeless.
constexpr double kMostToKnow = 1 << 18;

struct Best {
  double cost = kForbidden;
  int32_t label = 0;
};

// Labels of a follower that are possible beside a label of its neighbour, without those that
// another one is never worse than: what is left if it is one, else -1; -2 if nothing is possible.
int32_t OnlyChoice(const GraphVertex& vertex, const EdgeView& view, int32_t other) {
  const auto never_worse = [&](int32_t x, int32_t y) {
    const auto i = static_cast<size_t>(x);
    const auto j = static_cast<size_t>(y);
    return vertex.cost[i] + view.At(x, other) <= vertex.cost[j] + view.At(y, other) &&
           std::ranges::all_of(vertex.usage, [&](const MomentUsage& item) {
             return item.usage[i] <= item.usage[j];
           });
  };
  int32_t best = -2;
  for (const int32_t label : vertex.labels) {
    if (view.At(label, other) == kForbidden) continue;
    if (best == -2 || never_worse(label, best)) best = label;
  }
  if (best == -2) return best;
  for (const int32_t label : vertex.labels) {
    if (view.At(label, other) < kForbidden && !never_worse(best, label)) return -1;
  }
  return best;
}

void AddUsage(GraphVertex& vertex, MomentUsage item) {
  for (MomentUsage& known : vertex.usage) {
    if (known.begin != item.begin || known.end != item.end) continue;
    for (size_t i = 0; i < item.usage.size(); ++i) known.usage[i] += item.usage[i];
    return;
  }
  vertex.usage.push_back(std::move(item));
}

}  // namespace

LabelReduction::LabelReduction(LabelGraph& graph, const Deadline& deadline)
    : graph_(graph),
      deadline_(deadline),
      queued_(graph.vertices.size(), false),
      compared_(graph.vertices.size()) {}

void LabelReduction::Run() {
  for (size_t v = 0; v < graph_.vertices.size(); ++v) Queue(static_cast<int32_t>(v));
  while (!queue_.empty() && graph_.feasible && !deadline_.passed()) {
    const int32_t v = queue_.top().second;
    queue_.pop();
    if (!queued_[static_cast<size_t>(v)]) continue;
    queued_[static_cast<size_t>(v)] = false;
    if (graph_.At(v).present) Visit(v);
  }
}

void LabelReduction::Queue(int32_t v) {
  if (!graph_.At(v).present || queued_[static_cast<size_t>(v)]) return;
  queued_[static_cast<size_t>(v)] = true;
  queue_.emplace(graph_.EdgesOf(v).size(), v);
}

void LabelReduction::QueueNeighbours(int32_t v) {
  for (const int32_t e : graph_.EdgesOf(v)) Queue(graph_.edges[static_cast<size_t>(e)].Other(v));
}

void LabelReduction::Visit(int32_t v) {
  (void)(DropImpossible(v) && EliminateLoose(v) && EliminateLeaf(v) &&
         EliminateSeries(v, kQuickSeriesWork) && DropDominated(v) && FixSingle(v) &&
         EliminateLoose(v) && EliminateLeaf(v) && MergeFollower(v) && MergeDetermined(v) &&
         EliminateSeries(v, kSeriesWork));
}

bool LabelReduction::Fits(const GraphVertex& vertex, int32_t label) const {
  for (const MomentUsage& item : vertex.usage) {
    const int64_t used = item.usage[static_cast<size_t>(label)];
    if (used == 0) continue;
    for (int32_t t = item.begin; t < item.end; ++t) {
      if (used > graph_.room[static_cast<size_t>(t)]) return false;
    }
  }
  return true;
}

bool LabelReduction::DropImpossible(int32_t v) {
  GraphVertex& vertex = graph_.At(v);
  const size_t before = vertex.labels.size();
  std::erase_if(vertex.labels, [&](int32_t label) {
    return vertex.cost[static_cast<size_t>(label)] == kForbidden || !Fits(vertex, label);
  });
  for (const int32_t e : graph_.EdgesOf(v)) {
    const GraphEdge& edge = graph_.edges[static_cast<size_t>(e)];
    const EdgeView view(edge, v);
    const std::vector<int32_t>& others = graph_.At(edge.Other(v)).labels;
    std::erase_if(vertex.labels, [&](int32_t label) {
      return std::ranges::none_of(
          others, [&](int32_t other) { return view.At(label, other) < kForbidden; });
    });
  }
  if (vertex.labels.size() < before) QueueNeighbours(v);
  if (vertex.labels.empty()) Infeasible();
  return graph_.feasible;
}

// Whether much has changed around the vertex since its labels were last compared.
bool LabelReduction::WorthComparing(int32_t v) {
  constexpr double kMuch = 0.9;
  Compared now{graph_.At(v).labels.size(), graph_.EdgesOf(v).size(), 0};
  for (const int32_t e : graph_.EdgesOf(v)) {
    now.around += graph_.At(graph_.edges[static_cast<size_t>(e)].Other(v)).labels.size();
  }
  Compared& last = compared_[static_cast<size_t>(v)];
  if (now.labels == last.labels && now.edges == last.edges &&
      static_cast<double>(now.around) > kMuch * static_cast<double>(last.around)) {
    return false;
  }
  last = now;
  return true;
}

bool LabelReduction::DropDominated(int32_t v) {
  if (!WorthComparing(v)) return true;
  const std::vector<DominatedLabel> dominated = DropDominatedLabels(graph_, v);
  if (!dominated.empty()) QueueNeighbours(v);
  for (const DominatedLabel& label : dominated) dropped_.push_back({v, label, eliminated_.size()});
  TakeOutCommonUsage(v);
  return graph_.feasible;
}

void LabelReduction::TakeOutCommonUsage(int32_t v) {
  GraphVertex& vertex = graph_.At(v);
  for (MomentUsage& item : vertex.usage) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const int32_t label : vertex.labels) {
      least = std::min(least, item.usage[static_cast<size_t>(label)]);
    }
    if (least == 0) continue;
    for (int64_t& used : item.usage) used -= least;
    for (int32_t t = item.begin; t < item.end; ++t) {
      if ((graph_.room[static_cast<size_t>(t)] -= least) < 0) Infeasible();
    }
  }
  std::erase_if(vertex.usage, [&](const MomentUsage& item) {
    return std::ranges::all_of(
        vertex.labels, [&](int32_t label) { return item.usage[static_cast<size_t>(label)] == 0; });
  });
}

void LabelReduction::Eliminate(Eliminated eliminated) {
  const int32_t v = eliminated.variable;
  QueueNeighbours(v);
  for (const int32_t e : graph_.EdgesOf(v)) graph_.RemoveEdge(e);
  graph_.At(v).present = false;
  // Beside a label that allows none there is none to choose, but there must be an answer.
  for (int32_t& label : eliminated.choice) label = std::max(label, 0);
  eliminated_.push_back(std::move(eliminated));
}

bool LabelReduction::FixSingle(int32_t v) {
  GraphVertex& vertex = graph_.At(v);
  if (vertex.labels.size() > 1) return true;
  const int32_t label = vertex.labels.front();
  graph_.constant += vertex.cost[static_cast<size_t>(label)];
  for (const int32_t e : graph_.EdgesOf(v)) {
    const GraphEdge& edge = graph_.edges[static_cast<size_t>(e)];
    const EdgeView view(edge, v);
    GraphVertex& other = graph_.At(edge.Other(v));
    for (const int32_t x : other.labels) other.cost[static_cast<size_t>(x)] += view.At(label, x);
  }
  Eliminate({.variable = v, .choice = {label}, .cost = vertex.cost, .labels = {label}});
  return false;
}

bool LabelReduction::EliminateLoose(int32_t v) {
  GraphVertex& vertex = graph_.At(v);
  if (!graph_.EdgesOf(v).empty() || !vertex.usage.empty()) return true;
  Best best;
  for (const int32_t label : vertex.labels) {
    if (vertex.cost[static_cast<size_t>(label)] < best.cost) {
      best = {vertex.cost[static_cast<size_t>(label)], label};
    }
  }
  graph_.constant += best.cost;
  Eliminate({.variable = v, .choice = {best.label}, .cost = vertex.cost, .labels = vertex.labels});
  return false;
}

bool LabelReduction::EliminateLeaf(int32_t v) {
  GraphVertex& vertex = graph_.At(v);
  if (graph_.EdgesOf(v).size() != 1 || !vertex.usage.empty()) return true;
  const GraphEdge& edge = graph_.edges[static_cast<size_t>(graph_.EdgesOf(v).front())];
  const EdgeView view(edge, v);
  const int32_t u = edge.Other(v);
  GraphVertex& other = graph_.At(u);
  std::vector<int32_t> choice(other.cost.size(), 0);
  for (const int32_t x : other.labels) {
    Best best;
    for (const int32_t label : vertex.labels) {
      const double cost = vertex.cost[static_cast<size_t>(label)] + view.At(label, x);
      if (cost < best.cost) best = {cost, label};
    }
    other.cost[static_cast<size_t>(x)] += best.cost;
    choice[static_cast<size_t>(x)] = best.label;
  }
  Eliminate({.variable = v,
             .first = u,
             .choice = std::move(choice),
             .cost = vertex.cost,
             .labels = vertex.labels,
             .to_first = edge});
  return false;
}

bool LabelReduction::MergeFollower(int32_t v) {
  GraphVertex& vertex = graph_.At(v);
  if (graph_.EdgesOf(v).size() != 1) return true;
  const GraphEdge& edge = graph_.edges[static_cast<size_t>(graph_.EdgesOf(v).front())];
  const EdgeView view(edge, v);
  const int32_t u = edge.Other(v);
  GraphVertex& other = graph_.At(u);
  std::vector<int32_t> choice(other.cost.size(), 0);
  for (const int32_t x : other.labels) {
    const int32_t only = OnlyChoice(vertex, view, x);
    if (only == -1) return true;
    choice[static_cast<size_t>(x)] = only;
  }
  MergeInto(v, u, std::move(choice));
  return false;
}

bool LabelReduction::MergeDetermined(int32_t v) {
  const GraphVertex& vertex = graph_.At(v);
  const size_t degree = graph_.EdgesOf(v).size();
  for (const int32_t e : graph_.EdgesOf(v)) {
    const GraphEdge& edge = graph_.edges[static_cast<size_t>(e)];
    const int32_t u = edge.Other(v);
    const GraphVertex& other = graph_.At(u);
    if (other.labels.size() > vertex.labels.size() || graph_.EdgesOf(u).size() < degree) continue;
    const EdgeView view(edge, v);
    std::vector<int32_t> choice(other.cost.size(), 0);
    const bool determined = std::ranges::all_of(other.labels, [&](int32_t x) {
      int possible = 0;
      for (const int32_t label : vertex.labels) {
        if (view.At(label, x) == kForbidden) continue;
        choice[static_cast<size_t>(x)] = label;
        if (++possible > 1) return false;
      }
      return possible == 1;
    });
    if (!determined) continue;
    MergeInto(v, u, std::move(choice));
    return false;
  }
  return true;
}

void LabelReduction::MergeInto(int32_t v, int32_t u, std::vector<int32_t> choice) {
  const GraphVertex& vertex = graph_.At(v);
  GraphVertex& other = graph_.At(u);
  const auto only = [&](int32_t x) { return choice[static_cast<size_t>(x)]; };
  for (const MomentUsage& item : vertex.usage) {
    MomentUsage moved{item.begin, item.end, std::vector<int64_t>(other.cost.size(), 0)};
    for (const int32_t x : other.labels) {
      if (only(x) >= 0) {
        moved.usage[static_cast<size_t>(x)] = item.usage[static_cast<size_t>(only(x))];
      }
    }
    AddUsage(other, std::move(moved));
  }
  std::vector<std::pair<int32_t, CostTable>> moved;
  for (const int32_t e : graph_.EdgesOf(v)) {
    const GraphEdge& edge = graph_.edges[static_cast<size_t>(e)];
    const EdgeView view(edge, v);
    const int32_t w = edge.Other(v);
    if (w == u) {
      for (const int32_t x : other.labels) {
        other.cost[static_cast<size_t>(x)] +=
            only(x) < 0 ? kForbidden
                        : vertex.cost[static_cast<size_t>(only(x))] + view.At(only(x), x);
      }
      continue;
    }
    CostTable table{other.cost.size(), graph_.At(w).cost.size(), {}};
    table.values.assign(table.rows * table.columns, kForbidden);
    for (const int32_t x : other.labels) {
      for (const int32_t y : graph_.At(w).labels) {
        table.values[static_cast<size_t>(x) * table.columns + static_cast<size_t>(y)] =
            view.At(only(x), y);
      }
    }
    moved.emplace_back(w, std::move(table));
  }
  Eliminate({.variable = v, .first = u, .choice = std::move(choice)});
  for (auto& [w, table] : moved) graph_.AddTable(u, w, std::move(table));
}

bool LabelReduction::EliminateSeries(int32_t v, size_t most) {
  const GraphVertex& vertex = graph_.At(v);
  if (graph_.EdgesOf(v).size() != 2 || !vertex.usage.empty()) return true;
  const GraphEdge first = graph_.edges[static_cast<size_t>(graph_.EdgesOf(v)[0])];
  const GraphEdge second = graph_.edges[static_cast<size_t>(graph_.EdgesOf(v)[1])];
  const int32_t a = first.Other(v);
  const int32_t b = second.Other(v);
  const GraphVertex& left = graph_.At(a);
  const GraphVertex& right = graph_.At(b);
  const size_t count = vertex.labels.size();
  const size_t columns = right.labels.size();
  if (count * left.labels.size() * columns > most) return true;
  const EdgeView to_left(first, v);
  const EdgeView to_right(second, v);
  std::vector<double> rows;
  for (const int32_t label : vertex.labels) {
    for (const int32_t y : right.labels) rows.push_back(to_right.At(label, y));
  }
  CostTable table{left.cost.size(), right.cost.size(), {}};
  table.values.assign(table.rows * table.columns, kForbidden);
  std::vector<double> weights(count);
  std::vector<double> least(columns);
  for (const int32_t x : left.labels) {
    for (size_t i = 0; i < count; ++i) {
      const int32_t label = vertex.labels[i];
      weights[i] = -(vertex.cost[static_cast<size_t>(label)] + to_left.At(label, x));
    }
    MinPlus(rows.data(), count, columns, weights.data(), least.data());
    double* costs = table.values.data() + static_cast<size_t>(x) * table.columns;
    for (size_t y = 0; y < columns; ++y) costs[right.labels[y]] = least[y];
  }
  Eliminate({.variable = v,
             .first = a,
             .second = b,
             .cost = vertex.cost,
             .labels = vertex.labels,
             .to_first = first,
             .to_second = second});
  graph_.AddTable(a, b, std::move(table));
  return false;
}

void LabelReduction::Restore(std::vector<int32_t>& labels) const {
  for (auto it = eliminated_.rbegin(); it != eliminated_.rend(); ++it) {
    int32_t& label = labels[static_cast<size_t>(it->variable)];
    const int32_t first = it->first < 0 ? 0 : labels[static_cast<size_t>(it->first)];
    if (it->second < 0) {
      label = it->choice[static_cast<size_t>(first)];
      continue;
    }
    const int32_t second = labels[static_cast<size_t>(it->second)];
    const EdgeView to_first(it->to_first, it->variable);
    const EdgeView to_second(it->to_second, it->variable);
    Best best;
    for (const int32_t x : it->labels) {
      const double cost =
          it->cost[static_cast<size_t>(x)] + to_first.At(x, first) + to_second.At(x, second);
      if (cost < best.cost) best = {cost, x};
    }
    label = best.label;
  }
}

// Every label costs at least what the best one does beside the same labels of the others.
double LabelReduction::ExcessesOfLeaf(const Eliminated& leaf, const std::vector<double>& first,
                                      double room, std::vector<double>& excess) {
  const EdgeView view(leaf.to_first, leaf.variable);
  double work = 0;
  std::vector<double> costs(leaf.labels.size());
  for (size_t x = 0; x < first.size(); ++x) {
    if (!(first[x] <= room)) continue;
    work += static_cast<double>(costs.size());
    for (size_t i = 0; i < costs.size(); ++i) {
      const int32_t label = leaf.labels[i];
      costs[i] = leaf.cost[static_cast<size_t>(label)] + view.At(label, static_cast<int32_t>(x));
    }
    const double least = std::ranges::min(costs);
    for (size_t i = 0; i < costs.size(); ++i) {
      double& known = excess[static_cast<size_t>(leaf.labels[i])];
      known = std::min(known, first[x] + (costs[i] - least));
    }
  }
  return work;
}

double LabelReduction::ExcessesOfSeries(const Eliminated& series, const std::vector<double>& first,
                                        const std::vector<double>& second, double room,
                                        std::vector<double>& excess) {
  const EdgeView to_first(series.to_first, series.variable);
  const EdgeView to_second(series.to_second, series.variable);
  std::vector<int32_t> columns;
  for (size_t y = 0; y < second.size(); ++y) {
    if (second[y] <= room) columns.push_back(static_cast<int32_t>(y));
  }
  const size_t width = columns.size();
  std::vector<double> costs;
  for (const int32_t label : series.labels) {
    for (const int32_t y : columns) {
      costs.push_back(series.cost[static_cast<size_t>(label)] + to_second.At(label, y));
    }
  }
  double work = 0;
  const auto rows = std::ranges::count_if(first, [&](double known) { return known <= room; });
  if (static_cast<double>(rows) * static_cast<double>(costs.size()) > kMostToKnow) {
    for (const int32_t label : series.labels) excess[static_cast<size_t>(label)] = 0;
    return work;
  }
  const size_t count = series.labels.size();
  std::vector<double> least(width), above(count), below(count), known;
  for (const int32_t label : series.labels) known.push_back(excess[static_cast<size_t>(label)]);
  for (size_t x = 0; x < first.size() && width > 0 && count > 0; ++x) {
    if (!(first[x] <= room)) continue;
    work += 2 * static_cast<double>(costs.size());
    for (size_t i = 0; i < count; ++i) {
      above[i] = to_first.At(series.labels[i], static_cast<int32_t>(x));
      below[i] = -above[i];
    }
    MinPlus(costs.data(), count, width, below.data(), least.data());
    for (size_t y = 0; y < width; ++y) {
      least[y] -= std::max(first[x], second[static_cast<size_t>(columns[y])]);
    }
    // No number where nothing is possible, which is no better than what is known.
    LowerToRows(costs.data(), count, width, above.data(), least.data(), known.data());
  }
  for (size_t i = 0; i < count; ++i) excess[static_cast<size_t>(series.labels[i])] = known[i];
  return work;
}

// Backwards: what something was eliminated or dropped for was there at that time, and is known by then.
double LabelReduction::FillExcesses(std::vector<std::vector<double>>& excess, double room) const {
  double work = 0;
  size_t left = dropped_.size();
  const auto fill_dropped = [&](size_t after) {
    for (; left > 0 && dropped_[left - 1].after >= after; --left) {
      const Dropped& dropped = dropped_[left - 1];
      std::vector<double>& own = excess[static_cast<size_t>(dropped.variable)];
      own[static_cast<size_t>(dropped.label.label)] =
          own[static_cast<size_t>(dropped.label.rival)] + dropped.label.saves;
    }
  };
  for (size_t i = eliminated_.size(); i-- > 0;) {
    fill_dropped(i + 1);
    const Eliminated& gone = eliminated_[i];
    std::vector<double>& own = excess[static_cast<size_t>(gone.variable)];
    if (gone.first < 0) {
      double least = kForbidden;
      for (const int32_t label : gone.labels) {
        least = std::min(least, gone.cost[static_cast<size_t>(label)]);
      }
      for (const int32_t label : gone.labels) {
        own[static_cast<size_t>(label)] = gone.cost[static_cast<size_t>(label)] - least;
      }
      continue;
    }
    const std::vector<double>& first = excess[static_cast<size_t>(gone.first)];
    if (gone.second >= 0) {
      work += ExcessesOfSeries(gone, first, excess[static_cast<size_t>(gone.second)], room, own);
    } else if (!gone.labels.empty()) {
      work += ExcessesOfLeaf(gone, first, room, own);
    } else {
      for (size_t x = 0; x < gone.choice.size(); ++x) {
        double& known = own[static_cast<size_t>(gone.choice[x])];
        known = std::min(known, first[x]);
      }
    }
  }
  fill_dropped(0);
  return work;
}

}  // namespace gt::placement
