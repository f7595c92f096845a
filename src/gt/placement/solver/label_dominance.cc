#include "gt/placement/solver/label_dominance.h"

#include <algorithm>
#include <numeric>

#include "gt/placement/solver/min_plus.h"

namespace gt::placement {
namespace {

constexpr size_t kColumns = 8;
constexpr int kTries = 12;  // comparisons in full, for each label

// An edge as the vertex sees it.
class Side {
 public:
  Side(const EdgeView& view, const std::vector<int32_t>& own, const std::vector<int32_t>& others)
      : columns_(others.size()), values_(own.size() * columns_) {
    // A few columns at a time: whichever way the table is stored, what is read and written stays near.
    for (size_t first = 0; first < columns_; first += kColumns) {
      const size_t last = std::min(columns_, first + kColumns);
      for (size_t row = 0; row < own.size(); ++row) {
        double* values = values_.data() + row * columns_;
        for (size_t y = first; y < last; ++y) values[y] = view.At(own[row], others[y]);
      }
    }
    for (size_t row = 0; row < own.size(); ++row) {
      const double* values = Row(row);
      double least = values[0], most = values[0];
      for (size_t y = 1; y < columns_; ++y) {
        least = std::min(least, values[y]);
        most = std::max(most, values[y]);
      }
      least_.push_back(least);
      most_.push_back(most);
    }
  }
  double least(size_t label) const { return least_[label]; }
  // At most what Exact() gives.
  double Bound(size_t rival, size_t label) const {
    const double least = least_[rival] - least_[label];
    return most_[label] == kForbidden ? least : std::max(least, most_[rival] - most_[label]);
  }
  // By how much the rival can be worse; or some number above `enough` if it is above.
  double Exact(size_t rival, size_t label, double enough) const {
    return MaxDifference(Row(rival), Row(label), columns_, enough);
  }

 private:
  const double* Row(size_t label) const { return values_.data() + label * columns_; }

  size_t columns_;
  std::vector<double> values_;
  std::vector<double> least_;
  std::vector<double> most_;
};

// Labels are numbered by their place among those that are left.
class Dominance {
 public:
  Dominance(LabelGraph& graph, int32_t v) : vertex_(graph.At(v)) {
    for (const int32_t e : graph.EdgesOf(v)) {
      const GraphEdge& edge = graph.edges[static_cast<size_t>(e)];
      sides_.emplace_back(EdgeView(edge, v), vertex_.labels, graph.At(edge.Other(v)).labels);
    }
    for (size_t label = 0; label < vertex_.labels.size(); ++label) {
      least_.push_back(vertex_.cost[static_cast<size_t>(vertex_.labels[label])]);
      for (const Side& side : sides_) least_.back() += side.least(label);
    }
  }

  double least(size_t label) const { return least_[label]; }  // that it costs
  // What a rival may cost more than a label in the worst situation; at least.
  double Bound(size_t rival, size_t label) const {
    const auto r = static_cast<size_t>(vertex_.labels[rival]);
    const auto l = static_cast<size_t>(vertex_.labels[label]);
    double worst = vertex_.cost[r] - vertex_.cost[l];
    for (const Side& side : sides_) worst += side.Bound(rival, label);
    return worst;
  }
  // The same exactly if it is at most 0; else above it.
  double Worst(size_t rival, size_t label, double worst) const {
    const auto r = static_cast<size_t>(vertex_.labels[rival]);
    const auto l = static_cast<size_t>(vertex_.labels[label]);
    for (const MomentUsage& item : vertex_.usage) {
      if (item.usage[r] > item.usage[l]) return kForbidden;
    }
    double sum = vertex_.cost[r] - vertex_.cost[l];
    for (const Side& side : sides_) {
      const double bound = side.Bound(rival, label);
      const double exact = side.Exact(rival, label, bound - worst);
      worst += exact - bound;
      sum += exact;
      if (!(worst <= 0)) return kForbidden;
    }
    return sum;  // without the rounding of what was corrected step by step
  }

 private:
  const GraphVertex& vertex_;
  std::vector<Side> sides_;
  std::vector<double> least_;  // what each label costs at least
};

}  // namespace

std::vector<DominatedLabel> DropDominatedLabels(LabelGraph& graph, int32_t v) {
  std::vector<int32_t>& labels = graph.At(v).labels;
  std::vector<DominatedLabel> dropped;
  if (labels.size() < 2) return dropped;
  const Dominance dominance(graph, v);
  // Cheap labels are the ones that beat others, most of which are found among the first.
  std::vector<size_t> kept(labels.size());
  std::iota(kept.begin(), kept.end(), size_t{0});
  std::ranges::stable_sort(kept, {}, [&](size_t label) { return dominance.least(label); });
  for (size_t k = kept.size(); k-- > 1;) {
    const size_t label = kept[k];
    int tries = 0;
    for (size_t i = 0; i < kept.size() && tries < kTries; ++i) {
      const size_t rival = kept[i];
      if (dominance.least(rival) > dominance.least(label)) break;
      if (rival == label) continue;
      const double bound = dominance.Bound(rival, label);
      if (!(bound <= 0)) continue;
      ++tries;
      const double worst = dominance.Worst(rival, label, bound);
      if (!(worst <= 0)) continue;
      dropped.push_back({labels[label], labels[rival], -worst});
      kept.erase(kept.begin() + static_cast<ptrdiff_t>(k));
      break;
    }
  }
  std::ranges::sort(kept);
  std::vector<int32_t> left;
  left.reserve(kept.size());
  for (const size_t label : kept) left.push_back(labels[label]);
  labels = std::move(left);
  return dropped;
}

}  // namespace gt::placement
