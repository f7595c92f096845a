#include "gt/placement/label_dominance.h"

#include <algorithm>

namespace gt::placement {
namespace {

class Dominance {
 public:
  Dominance(LabelGraph& graph, int32_t v) : vertex_(graph.At(v)) {
    for (const int32_t e : graph.EdgesOf(v)) {
      const GraphEdge& edge = graph.edges[static_cast<size_t>(e)];
      views_.push_back({EdgeView(edge, v), &graph.At(edge.Other(v)).labels, {}, {}});
      Side& side = views_.back();
      side.least.resize(vertex_.cost.size());
      side.most.resize(vertex_.cost.size());
      for (const int32_t label : vertex_.labels) {
        double least = kForbidden;
        double most = 0;
        for (const int32_t other : *side.others) {
          const double value = side.view.At(label, other);
          least = std::min(least, value);
          most = std::max(most, value);
        }
        side.least[static_cast<size_t>(label)] = least;
        side.most[static_cast<size_t>(label)] = most;
      }
    }
  }

  // Whether `rival` is at most as bad as `label` in every situation.
  bool Beats(int32_t rival, int32_t label) const {
    const auto r = static_cast<size_t>(rival);
    const auto l = static_cast<size_t>(label);
    for (const MomentUsage& item : vertex_.usage) {
      if (item.usage[r] > item.usage[l]) return false;
    }
    double worst = vertex_.cost[r] - vertex_.cost[l];  // a lower bound first, exact in the end
    for (const Side& side : views_) worst += side.Bound(r, l);
    if (!(worst <= 0)) return false;
    for (const Side& side : views_) {
      worst += side.Exact(rival, label) - side.Bound(r, l);
      if (!(worst <= 0)) return false;
    }
    return Sum(rival, label) <= 0;
  }

 private:
  struct Side {
    EdgeView view;
    const std::vector<int32_t>* others;
    std::vector<double> least;
    std::vector<double> most;

    // At most what Exact() gives.
    double Bound(size_t rival, size_t label) const {
      if (most[label] == kForbidden) return least[rival] - least[label];
      return std::max(least[rival] - least[label], most[rival] - most[label]);
    }
    // By how much the rival can be worse.
    double Exact(int32_t rival, int32_t label) const {
      double worst = -kForbidden;
      for (const int32_t other : *others) {
        const double value = view.At(label, other);
        if (value < kForbidden) worst = std::max(worst, view.At(rival, other) - value);
      }
      return worst;
    }
  };

  // In one go, without the rounding of sums that were corrected step by step.
  double Sum(int32_t rival, int32_t label) const {
    double worst =
        vertex_.cost[static_cast<size_t>(rival)] - vertex_.cost[static_cast<size_t>(label)];
    for (const Side& side : views_) worst += side.Exact(rival, label);
    return worst;
  }

  const GraphVertex& vertex_;
  std::vector<Side> views_;
};

}  // namespace

size_t DropDominatedLabels(LabelGraph& graph, int32_t v) {
  std::vector<int32_t>& labels = graph.At(v).labels;
  if (labels.size() < 2) return 0;
  const Dominance dominance(graph, v);
  // Of equal labels the first stays: later ones are judged first.
  std::vector<int32_t> kept = labels;
  for (size_t i = labels.size(); i-- > 0;) {
    const int32_t label = labels[i];
    const bool beaten = std::ranges::any_of(
        kept, [&](int32_t rival) { return rival != label && dominance.Beats(rival, label); });
    if (beaten) std::erase(kept, label);
  }
  const size_t dropped = labels.size() - kept.size();
  labels = std::move(kept);
  return dropped;
}

}  // namespace gt::placement
