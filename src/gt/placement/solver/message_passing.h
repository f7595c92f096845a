// Sequential tree-reweighted message passing (TRW-S), in the form that moves costs between edges and
// vertices: the sum of what is moved never changes a labelling's cost, everything that is left is at
// least 0, and the constant that accumulates is a lower bound.
//
// V. Kolmogorov, Convergent tree-reweighted message passing for energy minimization, 2006; A new look
// at reweighted message passing, 2015.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/solver/core_graph.h"

namespace gt::placement {

class MessagePassing {
 public:
  // Goes on from what `graph`, which the core was made of, remembers of an earlier one.
  MessagePassing(const CoreGraph& core, const LabelGraph& graph);
  // Lets `graph` remember this one.
  void Save(LabelGraph& graph) const;

  // Over all vertices upwards and back. Returns the entries of tables that it went over: an edge of
  // which less than `tolerance` has been taken since it was last looked at is left alone, which
  // costs the bound at most that much.
  double Sweep(double tolerance = 0);
  // Where the costs are, to come back to, or to see where they went.
  struct State {
    std::vector<double> theta, messages, taken;
    double bound = 0;
  };
  State state() const { return {theta_, messages_, taken_, bound_}; }
  void Restore(const State& state);
  // Moves costs as they were moved since `before`, so many times over. That may be too much: the bound
  // does not hold before the next sweep.
  void GoOn(const State& before, double times);
  // Adds to the cost of a vertex's label, as prices of memory change.
  void AddCost(int32_t v, int32_t x, double cost) { theta_[core_.first(v) + Index(x)] += cost; }

  // No labelling costs less.
  double bound() const { return bound_; }
  // The labels that look best when they are chosen one after the other.
  std::vector<int32_t> Decode() const;
  // How much labellings with each label of a vertex must cost above the bound, at least.
  std::vector<double> Excesses(int32_t v) const;
  // The same, much closer: what is left at the vertices around is moved to this one first. `copy`, of
  // this one, is where costs are moved, and is as before afterwards. Adds the entries of tables that it
  // goes over.
  std::vector<double> ExcessesAround(int32_t v, MessagePassing& copy, double& entries) const;
  double Vertex(int32_t v, int32_t x) const { return theta_[core_.first(v) + Index(x)]; }
  double Pair(int32_t l, int32_t xa, int32_t xb) const;

 private:
  static size_t Index(int32_t x) { return static_cast<size_t>(x); }
  double* Message(int32_t l, int32_t v) { return messages_.data() + Offset(l, v); }
  const double* Message(int32_t l, int32_t v) const { return messages_.data() + Offset(l, v); }
  size_t Offset(int32_t l, int32_t v) const {
    const auto i = static_cast<size_t>(l);
    return v == core_.link(l).a ? first_message_[i]
                                : first_message_[i] + core_.labels(core_.link(l).a);
  }
  double& Taken(int32_t l, int32_t v) {
    return taken_[2 * static_cast<size_t>(l) + (v == core_.link(l).a ? 0 : 1)];
  }
  // Vertices around one, the nearest first; `place_` says where each is among them.
  std::vector<int32_t> Around(int32_t v);
  // Takes over from another one what was moved from and to a vertex.
  void CopyAround(const MessagePassing& other, int32_t v);
  void Collect(int32_t l, int32_t v);
  void Distribute(int32_t v, std::span<const int32_t> ahead, size_t behind);

  const CoreGraph& core_;
  std::vector<double> theta_;          // what is left at the vertices
  std::vector<size_t> first_message_;  // of each link
  std::vector<double> messages_;       // what was moved from a link to a vertex; may be negative
  // By link and end: how much less was moved to the end's labels, at most, since the other end has
  // collected.
  std::vector<double> taken_;
  std::vector<double> scratch_;
  std::vector<int32_t> place_;  // by vertex; -1 between calls
  double bound_ = 0;
  double entries_ = 0;  // of this sweep
};

}  // namespace gt::placement
