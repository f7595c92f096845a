#include "gt/placement/solver/branch_and_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "gt/placement/solver/forest_search.h"
#include "gt/placement/solver/memory_search.h"
#include "gt/placement/solver/message_jumps.h"
#include "gt/placement/solver/moment_pruning.h"
#include "gt/placement/solver/neighbourhood_choice.h"
#include "gt/placement/solver/remembered_messages.h"

namespace gt::placement {
namespace {

constexpr double kMostWork = 3e10;              // without a time limit the search must end as well
constexpr size_t kMostBytes = size_t{1} << 30;  // of graphs on the way from the root
constexpr int kMostSweeps = 3000;
constexpr int kSweeps = 10;             // between looks at the progress
constexpr double kProgress = 1e-2;      // of the gap that these must close
constexpr double kSmallestStep = 0.02;  // of prices, as a share of the first
constexpr double kWorthReducing = 0.1;  // share of labels dropped
constexpr double kNear = 0.05;  // share of the cutoff, within which hopeless labels are looked for
constexpr double kFarRoom = 0.01;   // likewise elsewhere, of the bound
constexpr double kFillWork = 0.3;   // of an entry of a sweep
constexpr double kSkipShare = 0.3;  // of the gap that is good enough, lost to edges left alone
constexpr double kNarrowGap = 10 * CoreGraph::kNarrowing;  // what rounding costs does not matter
constexpr double kJumpEntries = 1e5;  // of all tables; small ones are swept over soon enough
constexpr int kRepairs = 1000;
constexpr int32_t kLarge = 300;     // vertices; what is smaller is searched as a whole
constexpr double kFirstWork = 1e9;  // on a large problem as a whole, before its parts
constexpr int kNeighbourhoods = 100;
constexpr double kNeighbourhoodTime = 0.8;  // of the time left
constexpr double kPartWork = 2e8;
constexpr int64_t kPolishing = 100;     // rounds for each vertex
constexpr double kPolishingTime = 0.2;  // of the time left

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
    : problem_(problem),
      options_(options),
      deadline_(deadline),
      work_limit_(std::min(kMostWork, options.work_limit)) {}

bool BranchAndBound::Offer(const std::vector<int32_t>& labels) {
  const double cost = CostOf(problem_, labels);
  if (!(cost < best_.cost) || PeakUsage(problem_, labels) > problem_.usage_limit) return false;
  best_.feasible = true;
  best_.labels = labels;
  best_.cost = cost;
  return true;
}

double BranchAndBound::Target() const {
  // What is above the cutoff is no reason to end before the bound is there.
  if (best_.cost >= options_.cutoff) return options_.cutoff;
  return best_.cost * (1 - options_.relative_gap);
}

bool BranchAndBound::Closed(double bound) const {
  return Target() < kForbidden && bound >= Target();
}

bool BranchAndBound::OutOfTime() const {
  return work_ > work_limit_ || best_.cost < options_.enough || deadline_.passed();
}

double BranchAndBound::Explore(LabelGraph graph, double bound) {
  LabelReduction reduction(graph, deadline_);
  size_t moments = 0;
  do {
    reduction.Run();
    if (!graph.feasible) return kForbidden;
    moments = graph.room.size();
    PruneMoments(graph);
  } while (graph.room.size() < moments && !deadline_.passed());
  if (deadline_.passed()) return bound;
  Level level{std::vector<int32_t>(graph.vertices.size(), 0), {}, &reduction};
  graph = graph.Compacted(level.kept);
  levels_.push_back(std::move(level));
  if (graph.vertices.empty()) {
    OfferReduced({});
    bound = std::max(bound, graph.constant);
    if (options_.label_bounds != nullptr && levels_.size() == 1) {
      NoteLabelBounds(nullptr, nullptr, graph.constant);
    }
  } else {
    bound = ExploreCore(graph, bound);
  }
  levels_.pop_back();
  return bound;
}

bool BranchAndBound::OfferReduced(std::vector<int32_t> labels) {
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    std::vector<int32_t> all = level->labels;
    for (size_t v = 0; v < labels.size(); ++v) all[static_cast<size_t>(level->kept[v])] = labels[v];
    if (level->reduction) level->reduction->Restore(all);
    labels = std::move(all);
  }
  return Offer(labels);
}

// Most are not good enough, which the core knows faster than the problem.
bool BranchAndBound::OfferCore(const CoreGraph& core, const std::vector<int32_t>& x) {
  if (core.CostOf(x) >= best_.cost || !Fits(Loads(core, x))) return false;
  std::vector<int32_t> labels(x.size(), 0);
  core.Export(x, labels);
  return OfferReduced(std::move(labels));
}

bool BranchAndBound::OutOfMemory(const LabelGraph& graph) const {
  size_t bytes = 0;
  for (const GraphVertex& vertex : graph.vertices) {
    bytes += sizeof(vertex) + vertex.cost.size() * (vertex.usage.size() + 2) * sizeof(double);
  }
  for (const GraphEdge& edge : graph.edges) {
    bytes += sizeof(edge) + (edge.moved_a.size() + edge.moved_b.size()) * sizeof(double);
  }
  return bytes * levels_.size() > kMostBytes;
}

// Sweeps until the bound closes the node or hardly rises any more, and tries labellings meanwhile.
BranchAndBound::Attempt BranchAndBound::Bound(const CoreGraph& core, PricedMessages& messages,
                                              double constant) {
  const bool at_root = levels_.size() == 1;
  const double patience = at_root ? 0.95 : 0.8;
  const double worthwhile = at_root && core.has_usage() ? 0.1 * kProgress : kProgress;
  ForestSearch search(core);
  Attempt attempt;
  std::vector<double> best_prices = messages.prices();
  double best = -kForbidden;
  double step = messages.priced() ? 0.3 : 1;
  // Prices of memory would change while a jump is tried.
  std::optional<MessageJumps> jumps;
  if (!core.has_usage() && core.entries() >= kJumpEntries) jumps.emplace(messages.messages());
  int next_look = 2;
  for (int sweep = 1; sweep <= kMostSweeps; ++sweep) {
    const double tolerance = best_.feasible ? kSkipShare * options_.relative_gap * best_.cost /
                                                  static_cast<double>(core.links().size())
                                            : 0;
    work_ += 0.5 * messages.Sweep(tolerance);  // each edge is there in both directions
    if (Closed(constant + messages.bound()) || OutOfTime()) return attempt;
    if (jumps) jumps->AfterSweep();
    if (sweep < next_look || (jumps && jumps->trying())) continue;
    const int interval = core.has_usage() && sweep >= kSweeps ? 3 : kSweeps;
    next_look = (sweep / interval + 1) * interval;
    const double bound = constant + messages.bound();
    attempt.decoded = messages.messages().Decode();
    std::vector<int32_t> better = attempt.decoded;
    for (int round = 0; round < 3; ++round) search.Relabel(better, messages.costs());
    for (const auto* x : {&attempt.decoded, &better}) {
      if (OfferCore(core, *x)) attempt.fitting = *x;
    }
    if (Closed(bound) || OutOfTime()) return attempt;
    const double open = best_.feasible ? best_.cost - bound : 0.1 * std::abs(bound);
    const bool progress = bound - best > worthwhile * open;
    if (bound > best) {
      attempt.bound = best = bound;
      best_prices = messages.prices();
    }
    if (!progress && sweep > 2) step *= core.has_usage() ? patience : 0;
    if (step < kSmallestStep) break;
    if (core.has_usage()) messages.Step(Loads(core, better), step * open);
  }
  if (core.has_usage()) {
    messages.SetPrices(best_prices);
    for (int sweep = 0; sweep < kSweeps; ++sweep) messages.Sweep();
    attempt.decoded = messages.messages().Decode();
  }
  return attempt;
}

void BranchAndBound::NoteLabelBounds(const CoreGraph* core, const PricedMessages* messages,
                                     double constant) {
  const bool has_memory = problem_.usage_limit < std::numeric_limits<int64_t>::max();
  if (has_memory) return;
  const double bound = constant + (messages != nullptr ? messages->bound() : 0);
  constexpr double kRounding = 1e-9;
  const double below_cutoff = options_.cutoff * (1 + 2 * kRounding) - bound;
  const Level& root = levels_.front();
  // Far from the cutoff little is hopeless, and not worth a close look: only what is nearly as good as
  // the best is told from the rest.
  const bool near = below_cutoff <= kNear * options_.cutoff;
  const double room = near ? below_cutoff : kFarRoom * std::abs(bound);
  double entries = 0;  // of tables
  std::vector<std::vector<double>> excess;
  for (const Variable& variable : problem_.variables) {
    excess.emplace_back(variable.costs.size(), kForbidden);
  }
  std::vector<bool> in_core(excess.size(), false);
  std::optional<MessagePassing> copy;
  if (core != nullptr && near) copy.emplace(messages->messages());
  for (int32_t v = 0; core != nullptr && v < core->size(); ++v) {
    const std::vector<double> known = near ? messages->messages().ExcessesAround(v, *copy, entries)
                                           : messages->messages().Excesses(v);
    const auto variable = static_cast<size_t>(root.kept[static_cast<size_t>(core->variable(v))]);
    in_core[variable] = true;
    for (size_t x = 0; x < known.size(); ++x) {
      const auto label = static_cast<size_t>(core->label(v, static_cast<int32_t>(x)));
      excess[variable][label] = known[x];
    }
  }
  work_ += 0.5 * entries + kFillWork * root.reduction->FillExcesses(excess, room);
  options_.label_bounds->clear();
  for (size_t v = 0; v < excess.size(); ++v) {
    std::vector<double>& bounds = options_.label_bounds->emplace_back();
    for (const double above : excess[v]) {  // what was eliminated is known up to the room
      const double known = in_core[v] ? above : std::min(above, room);
      const double least = bound + known - kRounding * std::abs(bound);
      bounds.push_back(known >= below_cutoff ? options_.cutoff : std::min(least, options_.cutoff));
    }
  }
}

// Makes the most of the prices: a labelling that fits where none was found, a better one at the
// root, where it decides how many labels can be dropped.
void BranchAndBound::Polish(const CoreGraph& core, const PricedMessages& messages,
                            Attempt attempt) {
  if (!core.has_usage() || (best_.feasible && levels_.size() > 1)) return;
  MemorySearch search(core, deadline_);
  if (attempt.fitting.empty()) {
    if (!search.Repair(attempt.decoded, messages.prices(), kRepairs)) return;
    attempt.fitting = std::move(attempt.decoded);
    OfferCore(core, attempt.fitting);
  }
  search.Improve(attempt.fitting, messages.prices(), kPolishing * core.size(),
                 kPolishingTime * deadline_.left_s());
  OfferCore(core, attempt.fitting);
}

double BranchAndBound::ExploreCore(LabelGraph& graph, double bound) {
  const CoreGraph core(graph, options_.relative_gap >= kNarrowGap);
  const bool remembers = options_.messages != nullptr && levels_.size() == 1;
  if (remembers) options_.messages->Recall(graph, levels_.front().kept);
  PricedMessages messages(core, graph);
  Attempt attempt = Bound(core, messages, graph.constant);
  if (remembers) {
    messages.Save(graph);
    options_.messages->Remember(graph, levels_.front().kept);
  }
  if (options_.label_bounds != nullptr && levels_.size() == 1) {
    NoteLabelBounds(&core, &messages, graph.constant);
  }
  bound = std::max({bound, graph.constant + messages.bound(), attempt.bound});
  if (Closed(bound) || OutOfTime()) return bound;
  Polish(core, messages, attempt);
  messages.Save(graph);
  if (levels_.size() > 1 || core.size() < kLarge) {
    return Divide(std::move(graph), core, messages, attempt, bound);
  }
  const double limit = work_limit_;
  work_limit_ = std::min(limit, work_ + kFirstWork);
  bound = Divide(graph, core, messages, attempt, bound);
  const bool finished = !OutOfTime();
  work_limit_ = limit;
  if (finished || OutOfTime()) return bound;
  SearchNeighbourhoods(graph, bound);
  work_limit_ = std::min(options_.work_limit, work_ + kMostWork);
  if (OutOfTime()) return bound;
  attempt = Bound(core, messages, graph.constant);
  bound = std::max({bound, graph.constant + messages.bound(), attempt.bound});
  if (Closed(bound) || OutOfTime()) return bound;
  return Divide(std::move(graph), core, messages, attempt, bound);
}

// Drops labels that no better labelling has, and searches what is left: anew if much was dropped,
// else in two parts.
double BranchAndBound::Divide(LabelGraph graph, const CoreGraph& core,
                              const PricedMessages& messages, const Attempt& attempt,
                              double bound) {
  if (Closed(bound) || OutOfTime() || OutOfMemory(graph)) return bound;
  const double here = graph.constant + messages.bound();
  const double room = Target() < kForbidden ? Target() - here : kForbidden;
  const auto [vertex, label] = MostContested(core, messages, attempt.decoded, room);
  const double dropped = DropHopeless(graph, core, messages.messages(), room);
  if (!graph.feasible) return std::max(bound, Target());
  if (dropped >= kWorthReducing) return Explore(std::move(graph), bound);
  return Branch(graph, core.variable(vertex), core.label(vertex, label), bound);
}

void BranchAndBound::SearchNeighbourhoods(const LabelGraph& graph, double bound) {
  if (!best_.feasible) return;
  const double end = deadline_.elapsed_s() + kNeighbourhoodTime * deadline_.left_s();
  const std::vector<int32_t> variable = levels_.front().kept;
  NeighbourhoodChoice choice(graph);
  for (int round = 0; round < kNeighbourhoods || deadline_.limited(); ++round) {
    if (work_ > options_.work_limit) break;
    if (deadline_.limited() && deadline_.elapsed_s() > end) break;
    Level level{{}, {}, nullptr};
    for (const int32_t v : variable) level.labels.push_back(best_.labels[static_cast<size_t>(v)]);
    LabelGraph part = graph.Restricted(choice.Next(), level.labels, level.kept);
    const double cost = best_.cost;
    work_limit_ = work_ + kPartWork;
    levels_.push_back(std::move(level));
    Explore(std::move(part), bound);
    levels_.pop_back();
    choice.Learn(/*finished=*/work_ <= work_limit_, best_.cost < cost);
  }
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
