#include "gt/placement/search/step_reduction.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "gt/placement/solver/min_plus.h"

namespace gt::placement {
namespace {

constexpr int kRounds = 3;  // what is left to be found after that is little
constexpr float kNever = std::numeric_limits<float>::infinity();

constexpr double kRounding = 1e-6;  // microseconds

// How much longer one label takes than another.
StepTime Difference(const StepTime& rival, const StepTime& label) {
  StepTime by = rival;
  by.visible -= label.visible;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    by.kernels[phase] -= label.kernels[phase];
    by.moves[phase] -= label.moves[phase];
  }
  return by;
}

void Add(const StepEdge& edge, double us, StepTime& time) {
  time.visible += edge.visible * us;
  for (size_t phase = 0; phase < kPhases; ++phase) time.moves[phase] += edge.moves[phase] * us;
}

// An edge as one of its ends sees it: a row for each of its labels.
class Side {
 public:
  Side(const StepEdge& edge, const CostMatrix& matrix, bool rows, const std::vector<int32_t>& own,
       const std::vector<int32_t>& others)
      : edge(edge), columns_(others.size()), values_(own.size() * columns_) {
    // A few columns at a time: whichever way the matrix is stored, what is read and written stays near.
    constexpr size_t kColumns = 16;
    for (size_t first = 0; first < columns_; first += kColumns) {
      const size_t last = std::min(columns_, first + kColumns);
      for (size_t row = 0; row < own.size(); ++row) {
        float* values = values_.data() + row * columns_;
        for (size_t y = first; y < last; ++y) {
          values[y] = rows ? matrix.At(own[row], others[y]) : matrix.At(others[y], own[row]);
        }
      }
    }
    for (size_t row = 0; row < own.size(); ++row) {
      const float* values = values_.data() + row * columns_;
      float least = kNever, most = 0;
      for (size_t y = 0; y < columns_; ++y) {
        least = std::min(least, values[y]);
        most = std::max(most, values[y]);
      }
      least_.push_back(least);
      most_.push_back(most);
    }
  }
  bool Possible(size_t label) const { return least_[label] < kNever; }
  float least(size_t label) const { return least_[label]; }
  // At most what Exact() gives.
  double Bound(size_t rival, size_t label) const {
    const double least = double{least_[rival]} - double{least_[label]};
    return most_[label] == kNever ? least
                                  : std::max(least, double{most_[rival]} - double{most_[label]});
  }
  // Infinite if the rival is impossible where the label is not.
  double Exact(size_t rival, size_t label) const {
    return MaxDifference(values_.data() + rival * columns_, values_.data() + label * columns_,
                         columns_);
  }

  const StepEdge& edge;

 private:
  size_t columns_;
  std::vector<float> values_, least_, most_;
};

class Reduction {
 public:
  Reduction(const StepProblem& problem, bool memory, const std::vector<std::vector<bool>>& allowed)
      : problem_(problem), memory_(memory), edges_(problem.variables.size()) {
    for (const StepVariable& variable : problem.variables) {
      std::vector<int32_t>& labels = labels_.emplace_back();
      for (size_t label = 0; label < variable.times.size(); ++label) {
        if (!allowed.empty() && !allowed[labels_.size() - 1][label]) continue;
        if (variable.times[label].visible < kForbidden) {
          labels.push_back(static_cast<int32_t>(label));
        }
      }
      beaten_by_.emplace_back(variable.times.size(), -1);
    }
    for (const StepEdge& edge : problem.edges) {
      edges_[static_cast<size_t>(edge.from)].push_back(&edge);
      edges_[static_cast<size_t>(edge.to)].push_back(&edge);
    }
  }

  ReducedStep Run() {
    std::vector<bool> open(labels_.size(), true);
    bool any = true;
    for (int round = 0; round < kRounds && any; ++round) {
      any = false;
      for (size_t v = 0; v < labels_.size(); ++v) {
        if (!open[v]) continue;
        open[v] = false;
        if (!DropLabels(v)) continue;
        any = true;
        for (const StepEdge* edge : edges_[v]) open[Other(*edge, v)] = true;
      }
    }
    return Take();
  }

 private:
  static size_t Other(const StepEdge& edge, size_t v) {
    return static_cast<size_t>(static_cast<size_t>(edge.from) == v ? edge.to : edge.from);
  }
  const CostMatrix& MatrixOf(const StepEdge& edge) const {
    return problem_.matrices[static_cast<size_t>(edge.matrix)];
  }

  // Whether any was dropped.
  bool DropLabels(size_t v) {
    std::vector<int32_t>& labels = labels_[v];
    std::vector<Side> sides;
    for (const StepEdge* edge : edges_[v]) {
      const bool rows = static_cast<size_t>(edge->from) == v;
      sides.emplace_back(*edge, MatrixOf(*edge), rows, labels, labels_[Other(*edge, v)]);
    }
    std::vector<size_t> kept;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (std::ranges::all_of(sides, [&](const Side& side) { return side.Possible(i); })) {
        kept.push_back(i);
      }
    }
    std::vector<StepTime> least(labels.size());  // that a label takes, with its edges
    for (const size_t i : kept) {
      least[i] = problem_.variables[v].times[static_cast<size_t>(labels[i])];
      for (const Side& side : sides) Add(side.edge, side.least(i), least[i]);
    }
    // Of equal labels the first stays: later ones are judged first.
    for (size_t k = kept.size(); k-- > 0;) {
      const size_t label = kept[k];
      const auto by = std::ranges::find_if(kept, [&](size_t rival) {
        return rival != label && Difference(least[rival], least[label]).Total() <= kRounding &&
               Beats(problem_.variables[v], sides, labels, rival, label);
      });
      if (by == kept.end()) continue;
      beaten_by_[v][static_cast<size_t>(labels[label])] = labels[*by];
      kept.erase(kept.begin() + static_cast<ptrdiff_t>(k));
    }
    if (kept.size() == labels.size()) return false;
    std::vector<int32_t> left;
    left.reserve(kept.size());
    for (const size_t i : kept) left.push_back(labels[i]);
    labels = std::move(left);
    return true;
  }

  bool Beats(const StepVariable& variable, const std::vector<Side>& sides,
             const std::vector<int32_t>& labels, size_t rival, size_t label) const {
    const auto r = static_cast<size_t>(labels[rival]);
    const auto l = static_cast<size_t>(labels[label]);
    if (memory_ && !variable.usage.empty() && variable.usage[r] > variable.usage[l]) return false;
    StepTime least = Difference(variable.times[r], variable.times[l]);
    for (const Side& side : sides) Add(side.edge, side.Bound(rival, label), least);
    if (!(least.Total() <= 0)) return false;
    StepTime exact = Difference(variable.times[r], variable.times[l]);
    for (const Side& side : sides) {
      const double worst = side.Exact(rival, label);
      if (worst == kForbidden) return false;
      Add(side.edge, worst, exact);
    }
    return exact.Total() <= 0;
  }

  // What nothing makes is next to its first user, a variable without times of its own next to what it
  // follows.
  std::vector<int32_t> Order() const {
    std::vector<double> place(labels_.size());
    for (size_t v = 0; v < labels_.size(); ++v) {
      place[v] = static_cast<double>(v);
      if (!IsMade(v)) place[v] = static_cast<double>(FirstUser(v, /*beyond=*/true)) - 0.4;
    }
    for (size_t v = 0; v < labels_.size(); ++v) {
      if (!IsFollower(v)) continue;
      for (const StepEdge* edge : edges_[v]) {
        if (static_cast<size_t>(edge->to) == v)
          place[v] = std::min(place[v], place[Other(*edge, v)] + 0.2);
      }
    }
    std::vector<int32_t> order(labels_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int32_t v) { return place[static_cast<size_t>(v)]; });
    return order;
  }
  bool IsMade(size_t v) const {
    return std::ranges::any_of(edges_[v], [&](const StepEdge* edge) {
      return static_cast<size_t>(edge->to) == v && Other(*edge, v) < v;
    });
  }
  // With `beyond`, of what follows it instead of the follower.
  size_t FirstUser(size_t v, bool beyond) const {
    size_t first = labels_.size();
    for (const StepEdge* edge : edges_[v]) {
      if (static_cast<size_t>(edge->from) != v) continue;
      const size_t user = Other(*edge, v);
      first = std::min(first, beyond && IsFollower(user) ? FirstUser(user, false) : user);
    }
    return first;
  }
  bool IsFollower(size_t v) const {
    return std::ranges::all_of(problem_.variables[v].times,
                               [](const StepTime& time) { return time.Serial() == 0; });
  }

  ReducedStep Take() const {
    ReducedStep reduced;
    reduced.variable = Order();
    std::vector<int32_t> number(labels_.size());
    for (size_t i = 0; i < reduced.variable.size(); ++i) {
      const auto v = static_cast<size_t>(reduced.variable[i]);
      number[v] = static_cast<int32_t>(i);
      reduced.labels.push_back(labels_[v]);
      reduced.feasible = reduced.feasible && !labels_[v].empty();
      const StepVariable& whole = problem_.variables[v];
      StepVariable& variable = reduced.problem.variables.emplace_back();
      variable.live = whole.live;
      for (const int32_t label : labels_[v]) {
        variable.times.push_back(whole.times[static_cast<size_t>(label)]);
        if (!whole.usage.empty()) {
          variable.usage.push_back(whole.usage[static_cast<size_t>(label)]);
        }
      }
    }
    for (size_t v = 0; v < labels_.size(); ++v) reduced.instead.push_back(Instead(v));
    reduced.problem.usage_limit = problem_.usage_limit;
    TakeEdges(number, reduced.problem);
    return reduced;
  }

  // For each label the place of one that is left.
  std::vector<int32_t> Instead(size_t v) const {
    std::vector<int32_t> instead;
    for (size_t label = 0; label < beaten_by_[v].size(); ++label) {
      auto left = static_cast<int32_t>(label);
      while (beaten_by_[v][static_cast<size_t>(left)] >= 0) {
        left = beaten_by_[v][static_cast<size_t>(left)];
      }
      const auto at = std::ranges::lower_bound(labels_[v], left);
      const bool is_left = at != labels_[v].end() && *at == left;
      instead.push_back(is_left ? static_cast<int32_t>(at - labels_[v].begin()) : -1);
    }
    return instead;
  }

  // Edges with the same matrix whose ends have the same labels share one again.
  void TakeEdges(const std::vector<int32_t>& number, StepProblem& reduced) const {
    std::map<std::tuple<int32_t, std::vector<int32_t>, std::vector<int32_t>>, int32_t> known;
    for (const StepEdge& edge : problem_.edges) {
      const std::vector<int32_t>& from = labels_[static_cast<size_t>(edge.from)];
      const std::vector<int32_t>& to = labels_[static_cast<size_t>(edge.to)];
      const auto [found, is_new] =
          known.try_emplace({edge.matrix, from, to}, static_cast<int32_t>(reduced.matrices.size()));
      if (is_new) {
        CostMatrix& matrix = reduced.matrices.emplace_back();
        matrix.rows = static_cast<int32_t>(from.size());
        matrix.columns = static_cast<int32_t>(to.size());
        matrix.values.reserve(from.size() * to.size());
        for (const int32_t row : from) {
          for (const int32_t column : to) matrix.values.push_back(MatrixOf(edge).At(row, column));
        }
      }
      StepEdge& kept = reduced.edges.emplace_back(edge);
      kept.from = number[static_cast<size_t>(edge.from)];
      kept.to = number[static_cast<size_t>(edge.to)];
      kept.matrix = found->second;
    }
  }

  const StepProblem& problem_;
  const bool memory_;
  std::vector<std::vector<const StepEdge*>> edges_;  // by variable
  std::vector<std::vector<int32_t>> labels_;         // that are left
  std::vector<std::vector<int32_t>> beaten_by_;      // by variable and label; -1: by none
};

}  // namespace

std::vector<int32_t> ReducedStep::Restore(const std::vector<int32_t>& reduced) const {
  std::vector<int32_t> whole(variable.size(), 0);
  for (size_t i = 0; i < variable.size(); ++i) {
    whole[static_cast<size_t>(variable[i])] = labels[i][static_cast<size_t>(reduced[i])];
  }
  return whole;
}

bool ReducedStep::Translate(const std::vector<int32_t>& whole,
                            std::vector<int32_t>& reduced) const {
  reduced.clear();
  for (size_t i = 0; i < variable.size(); ++i) {
    const int32_t label = whole[static_cast<size_t>(variable[i])];
    const auto at = std::ranges::lower_bound(labels[i], label);
    if (at == labels[i].end() || *at != label) return false;
    reduced.push_back(static_cast<int32_t>(at - labels[i].begin()));
  }
  return true;
}

std::vector<int32_t> ReducedStep::NoWorse(const std::vector<int32_t>& whole) const {
  std::vector<int32_t> reduced;
  for (const int32_t v : variable) {
    const auto at = static_cast<size_t>(v);
    const int32_t label = instead[at][static_cast<size_t>(whole[at])];
    if (label < 0) return {};
    reduced.push_back(label);
  }
  return reduced;
}

ReducedStep Reduce(const StepProblem& problem, bool memory,
                   const std::vector<std::vector<bool>>& allowed) {
  return Reduction(problem, memory, allowed).Run();
}

}  // namespace gt::placement
