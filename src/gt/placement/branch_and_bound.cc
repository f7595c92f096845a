#include "gt/placement/branch_and_bound.h"

#include <algorithm>
#include <cmath>

#include "gt/placement/forest_search.h"
#include "gt/placement/moment_pruning.h"

namespace gt::placement {
namespace {

constexpr int64_t kMostNodes = 200000;  // without a time limit the search must end as well
constexpr int kMostSweeps = 2000;
constexpr int kPatience = 10;           // sweeps between looks at the progress
constexpr double kProgress = 1e-2;      // of the gap that these must close
constexpr double kWorthReducing = 0.1;  // share of labels dropped

// Carries over what message passing moved between vertices and edges. Prices of memory are left
// out: reductions compare true costs.
void Reparametrize(LabelGraph& graph, const CoreGraph& core, const PricedMessages& priced) {
  const MessagePassing& messages = priced.messages();
  graph.constant += messages.bound();
  graph.price = priced.prices();
  for (int32_t v = 0; v < core.size(); ++v) {
    GraphVertex& vertex = graph.At(core.variable(v));
    for (size_t i = 0; i < vertex.labels.size(); ++i) {
      const auto x = static_cast<int32_t>(i);
      vertex.cost[static_cast<size_t>(vertex.labels[i])] =
          messages.Vertex(v, x) - priced.price(v, x);
    }
  }
  for (size_t l = 0; l < core.links().size(); ++l) {
    const CoreLink& link = core.links()[l];
    const int32_t e = graph.EdgeBetween(core.variable(link.a), core.variable(link.b));
    GraphEdge& edge = graph.edges[static_cast<size_t>(e)];
    auto table = std::make_shared<CostTable>(*edge.table);
    const bool same = edge.a == core.variable(link.a);
    for (size_t xa = 0; xa < core.labels(link.a); ++xa) {
      for (size_t xb = 0; xb < core.labels(link.b); ++xb) {
        const auto a = static_cast<int32_t>(xa);
        const auto b = static_cast<int32_t>(xb);
        const auto row = static_cast<size_t>(same ? core.label(link.a, a) : core.label(link.b, b));
        const auto column =
            static_cast<size_t>(same ? core.label(link.b, b) : core.label(link.a, a));
        table->values[row * table->columns + column] =
            std::max(0.0, messages.Pair(static_cast<int32_t>(l), a, b));
      }
    }
    edge.table = std::move(table);
  }
}

// Drops labels that only labellings above `room` over the bound have; returns the share dropped.
double DropHopeless(LabelGraph& graph, const CoreGraph& core, const MessagePassing& messages,
                    double room) {
  size_t dropped = 0;
  for (int32_t v = 0; v < core.size(); ++v) {
    const std::vector<double> excess = messages.Excesses(v);
    std::vector<int32_t> kept;
    for (size_t x = 0; x < excess.size(); ++x) {
      if (excess[x] <= room) kept.push_back(core.label(v, static_cast<int32_t>(x)));
    }
    dropped += excess.size() - kept.size();
    graph.At(core.variable(v)).labels = std::move(kept);
    if (graph.At(core.variable(v)).labels.empty()) graph.feasible = false;
  }
  return static_cast<double>(dropped) / static_cast<double>(core.all_labels());
}

// Where the labels that look best contradict each other most, or hardly differ in cost but in what
// they use, and the label there. Splitting elsewhere would leave the bound as it is.
std::pair<int32_t, int32_t> MostContested(const CoreGraph& core, const PricedMessages& priced,
                                          const std::vector<int32_t>& decoded, double room) {
  const MessagePassing& messages = priced.messages();
  std::vector<double> conflict(decoded.size(), 0);
  for (int32_t v = 0; core.has_usage() && v < core.size(); ++v) {
    const std::vector<double> excess = messages.Excesses(v);
    const double own = priced.price(v, decoded[static_cast<size_t>(v)]);
    double& most = conflict[static_cast<size_t>(v)];
    for (size_t x = 0; x < excess.size(); ++x) {
      const double doubt = room < kForbidden ? std::max(0.0, 1 - excess[x] / room) : 1;
      most = std::max(most, doubt * std::abs(priced.price(v, static_cast<int32_t>(x)) - own));
    }
  }
  for (int32_t v = 0; v < core.size(); ++v) {
    conflict[static_cast<size_t>(v)] += messages.Vertex(v, decoded[static_cast<size_t>(v)]);
  }
  for (size_t l = 0; l < core.links().size(); ++l) {
    const auto a = static_cast<size_t>(core.links()[l].a);
    const auto b = static_cast<size_t>(core.links()[l].b);
    const double cost = messages.Pair(static_cast<int32_t>(l), decoded[a], decoded[b]);
    conflict[a] += cost;
    conflict[b] += cost;
  }
  int32_t most = -1;
  for (int32_t v = 0; v < core.size(); ++v) {
    if (core.labels(v) < 2) continue;
    if (most < 0 || conflict[static_cast<size_t>(v)] > conflict[static_cast<size_t>(most)]) {
      most = v;
    }
  }
  most = std::max(most, 0);
  return {most, decoded[static_cast<size_t>(most)]};
}

}  // namespace

BranchAndBound::BranchAndBound(const LabelProblem& problem, const SolverOptions& options,
                               const Deadline& deadline)
    : problem_(problem), options_(options), deadline_(deadline) {}

void BranchAndBound::Offer(const std::vector<int32_t>& labels) {
  const double cost = CostOf(problem_, labels);
  if (!(cost < best_.cost) || PeakUsage(problem_, labels) > problem_.usage_limit) return;
  best_.feasible = true;
  best_.labels = labels;
  best_.cost = cost;
}

double BranchAndBound::Target() const { return best_.cost * (1 - options_.relative_gap); }

bool BranchAndBound::Closed(double bound) const { return best_.feasible && bound >= Target(); }

bool BranchAndBound::OutOfTime() const { return nodes_ > kMostNodes || deadline_.passed(); }

double BranchAndBound::Explore(LabelGraph graph, double bound) {
  ++nodes_;
  LabelReduction reduction(graph, deadline_);
  size_t moments = 0;
  do {
    reduction.Run();
    if (!graph.feasible) return kForbidden;
    moments = graph.room.size();
    PruneMoments(graph);
  } while (graph.room.size() < moments && !deadline_.passed());
  if (deadline_.passed()) return bound;
  reductions_.push_back(&reduction);
  const bool solved =
      std::ranges::none_of(graph.vertices, [](const GraphVertex& v) { return v.present; });
  if (solved) {
    OfferReduced(std::vector<int32_t>(graph.vertices.size(), 0));
    bound = std::max(bound, graph.constant);
  } else {
    bound = ExploreCore(graph, bound);
  }
  reductions_.pop_back();
  return bound;
}

void BranchAndBound::OfferReduced(std::vector<int32_t> labels) {
  for (auto it = reductions_.rbegin(); it != reductions_.rend(); ++it) (*it)->Restore(labels);
  Offer(labels);
}

void BranchAndBound::OfferCore(const CoreGraph& core, const std::vector<int32_t>& x) {
  std::vector<int32_t> labels(problem_.variables.size(), 0);
  core.Export(x, labels);
  OfferReduced(std::move(labels));
}

// Sweeps until the bound closes the node or hardly rises any more; returns the labels that looked
// best in the end.
std::vector<int32_t> BranchAndBound::Bound(const CoreGraph& core, PricedMessages& messages,
                                           double constant) {
  ForestSearch search(core);
  const auto bound = [&] { return constant + messages.bound(); };
  std::vector<int32_t> decoded;
  std::vector<double> best_prices = messages.prices();
  double best = -kForbidden;
  double before = -kForbidden;
  double step = 1;
  for (int sweep = 1; sweep <= kMostSweeps; ++sweep) {
    messages.Sweep();
    if (Closed(bound()) || OutOfTime()) return decoded;
    const int patience = core.has_usage() && sweep > kPatience ? 3 : kPatience;
    if (sweep % patience != 0 && sweep != 2) continue;
    decoded = messages.messages().Decode();
    OfferCore(core, decoded);
    std::vector<int32_t> better = decoded;
    for (int round = 0; round < 3; ++round) search.Relabel(better, messages.costs());
    OfferCore(core, better);
    if (Closed(bound())) return decoded;
    const double open = best_.feasible ? best_.cost - bound() : std::abs(bound());
    const bool progress = bound() - before > kProgress * open;
    before = std::max(before, bound());
    if (bound() > best) {
      best = bound();
      best_prices = messages.prices();
    }
    if (!core.has_usage()) {
      if (sweep > 2 && !progress) break;
      continue;
    }
    if (!progress) step *= 0.8;
    if (step < 0.02) break;
    messages.Step(Loads(core, better), step * (best_.feasible ? open : 0.1 * open));
  }
  if (core.has_usage()) {
    messages.SetPrices(best_prices);
    for (int sweep = 0; sweep < kPatience; ++sweep) messages.Sweep();
    decoded = messages.messages().Decode();
  }
  return decoded;
}

double BranchAndBound::ExploreCore(LabelGraph& graph, double bound) {
  const CoreGraph core(graph);
  PricedMessages messages(core, graph.price);
  const std::vector<int32_t> decoded = Bound(core, messages, graph.constant);
  const double here = graph.constant + messages.bound();
  bound = std::max(bound, here);
  if (Closed(bound) || OutOfTime()) return bound;
  const double room = best_.feasible ? Target() - here : kForbidden;
  const auto [vertex, label] = MostContested(core, messages, decoded, room);
  Reparametrize(graph, core, messages);
  const double dropped = DropHopeless(graph, core, messages.messages(), room);
  if (!graph.feasible) return std::max(bound, Target());
  if (dropped >= kWorthReducing) return Explore(graph, bound);
  return Branch(graph, core.variable(vertex), core.label(vertex, label), bound);
}

double BranchAndBound::Branch(LabelGraph& graph, int32_t v, int32_t label, double bound) {
  LabelGraph with = graph;
  with.At(v).labels = {label};
  const double first = Explore(std::move(with), bound);
  if (Closed(bound) || OutOfTime()) return bound;
  std::erase(graph.At(v).labels, label);
  if (graph.At(v).labels.empty()) return first;
  return std::min(first, Explore(std::move(graph), bound));
}

}  // namespace gt::placement
