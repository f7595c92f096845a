#include "gt/placement/solver/message_passing.h"

#include <algorithm>
#include <cmath>

namespace gt::placement {
namespace {

// Vertices from which costs are moved: those further away hold little that depends on a label.
// Where tables are large, those of fewer vertices are gone over.
constexpr size_t kAround = 32, kAroundInLarge = 16;
constexpr double kLargeEntries = 3e5;  // of all tables

}  // namespace

MessagePassing::MessagePassing(const CoreGraph& core, const LabelGraph& graph) : core_(core) {
  size_t most_labels = 0;
  for (int32_t v = 0; v < core.size(); ++v) {
    theta_.insert(theta_.end(), core.costs(v).begin(), core.costs(v).end());
    most_labels = std::max(most_labels, core.labels(v));
  }
  size_t size = 0;
  for (const CoreLink& link : core.links()) {
    first_message_.push_back(size);
    size += core.labels(link.a) + core.labels(link.b);
  }
  messages_.assign(size, 0);
  scratch_.resize(most_labels);
  // What was moved before may be too much for these costs: every edge must be looked at once.
  taken_.assign(2 * core.links().size(), kForbidden);
  place_.assign(Index(core.size()), -1);
  for (size_t l = 0; l < core.links().size(); ++l) {
    const CoreLink& link = core.links()[l];
    const GraphEdge& edge = graph.edges[static_cast<size_t>(link.edge)];
    if (edge.moved_a.empty()) continue;
    for (const int32_t v : {link.a, link.b}) {
      const auto& moved = core.variable(v) == edge.a ? edge.moved_a : edge.moved_b;
      double* message = Message(static_cast<int32_t>(l), v);
      for (size_t x = 0; x < core.labels(v); ++x) {
        message[x] = moved[static_cast<size_t>(core.label(v, static_cast<int32_t>(x)))];
        theta_[core.first(v) + x] += message[x];
      }
    }
  }
}

void MessagePassing::Save(LabelGraph& graph) const {
  for (size_t l = 0; l < core_.links().size(); ++l) {
    const CoreLink& link = core_.links()[l];
    GraphEdge& edge = graph.edges[static_cast<size_t>(link.edge)];
    for (const int32_t v : {link.a, link.b}) {
      auto& moved = core_.variable(v) == edge.a ? edge.moved_a : edge.moved_b;
      moved.resize(graph.At(core_.variable(v)).cost.size());
      const double* message = Message(static_cast<int32_t>(l), v);
      for (size_t x = 0; x < core_.labels(v); ++x) {
        moved[static_cast<size_t>(core_.label(v, static_cast<int32_t>(x)))] = message[x];
      }
    }
  }
}

// All that an edge costs at least beside each label of `v` goes to `v`.
void MessagePassing::Collect(int32_t l, int32_t v) {
  const CoreLink& link = core_.link(l);
  const int32_t u = link.Other(v);
  const size_t columns = core_.labels(v);
  core_.LeastBeside(link, link.table, v, Message(l, u), scratch_.data());
  Taken(l, u) = 0;
  entries_ += static_cast<double>(core_.labels(u) * columns);
  double* theta = theta_.data() + core_.first(v);
  double* message = Message(l, v);
  for (size_t x = 0; x < columns; ++x) {
    theta[x] += scratch_[x] - message[x];
    message[x] = scratch_[x];
  }
}

// What is left at a vertex goes to the edges ahead in equal parts; if more edges are behind, the
// parts are as small as if that many were ahead, and the rest stays.
void MessagePassing::Distribute(int32_t v, std::span<const int32_t> ahead, size_t behind) {
  const size_t count = core_.labels(v);
  double* theta = theta_.data() + core_.first(v);
  const double least = *std::min_element(theta, theta + count);
  bound_ += least;
  for (size_t x = 0; x < count; ++x) theta[x] -= least;
  if (ahead.empty()) return;
  const double share = 1.0 / static_cast<double>(std::max(ahead.size(), behind));
  const double most = share * *std::max_element(theta, theta + count);
  for (const int32_t l : ahead) {
    Taken(l, v) += most;
    double* message = Message(l, v);
    for (size_t x = 0; x < count; ++x) message[x] -= share * theta[x];
  }
  const double rest = ahead.size() >= behind ? 0 : 1 - share * static_cast<double>(ahead.size());
  for (size_t x = 0; x < count; ++x) theta[x] *= rest;
}

double MessagePassing::Sweep(double tolerance) {
  entries_ = 0;
  const auto visit = [&](int32_t v, bool upwards) {
    const std::span<const int32_t> links = core_.links_of(v);
    size_t smaller = 0;
    while (smaller < links.size() && core_.link(links[smaller]).b == v) ++smaller;
    const auto below = links.first(smaller);
    const auto above = links.subspan(smaller);
    for (const int32_t l : upwards ? below : above) {
      if (!(Taken(l, core_.link(l).Other(v)) <= tolerance)) Collect(l, v);
    }
    Distribute(v, upwards ? above : below, upwards ? below.size() : above.size());
  };
  for (int32_t v = 0; v < core_.size(); ++v) visit(v, true);
  for (int32_t v = core_.size(); v-- > 0;) visit(v, false);
  return entries_;
}

void MessagePassing::Restore(const State& state) {
  theta_ = state.theta;
  messages_ = state.messages;
  taken_ = state.taken;
  bound_ = state.bound;
}

void MessagePassing::GoOn(const State& before, double times) {
  for (int32_t l = 0; Index(l) < core_.links().size(); ++l) {
    for (const int32_t v : {core_.link(l).a, core_.link(l).b}) {
      const double* old = before.messages.data() + Offset(l, v);
      double* message = Message(l, v);
      double* theta = theta_.data() + core_.first(v);
      for (size_t x = 0; x < core_.labels(v); ++x) {
        const double more = times * (message[x] - old[x]);
        if (!std::isfinite(more)) continue;  // the label is forbidden
        message[x] += more;
        theta[x] += more;
      }
    }
  }
  taken_.assign(taken_.size(), kForbidden);
}

double MessagePassing::Pair(int32_t l, int32_t xa, int32_t xb) const {
  const CoreLink& link = core_.link(l);
  return core_.Cost(link, xa, xb) - Message(l, link.a)[Index(xa)] - Message(l, link.b)[Index(xb)];
}

std::vector<int32_t> MessagePassing::Decode() const {
  std::vector<int32_t> labels(static_cast<size_t>(core_.size()), 0);
  std::vector<double> cost;
  for (int32_t v = 0; v < core_.size(); ++v) {
    const size_t count = core_.labels(v);
    cost.assign(theta_.begin() + static_cast<std::ptrdiff_t>(core_.first(v)),
                theta_.begin() + static_cast<std::ptrdiff_t>(core_.first(v) + count));
    for (const int32_t l : core_.links_of(v)) {
      const CoreLink& link = core_.link(l);
      if (link.b != v) break;
      const size_t row = static_cast<size_t>(labels[static_cast<size_t>(link.a)]) * count;
      const double* message = Message(l, v);
      for (size_t x = 0; x < count; ++x) cost[x] += link.table.At(row + x) - message[x];
    }
    labels[static_cast<size_t>(v)] =
        static_cast<int32_t>(std::ranges::min_element(cost) - cost.begin());
  }
  return labels;
}

std::vector<double> MessagePassing::Excesses(int32_t v) const {
  const size_t count = core_.labels(v);
  std::vector<double> excess(theta_.begin() + static_cast<std::ptrdiff_t>(core_.first(v)),
                             theta_.begin() + static_cast<std::ptrdiff_t>(core_.first(v) + count));
  std::vector<double> least(count);
  for (const int32_t l : core_.links_of(v)) {
    const CoreLink& link = core_.link(l);
    core_.LeastBeside(link, link.table, v, Message(l, link.Other(v)), least.data());
    const double* message = Message(l, v);
    for (size_t x = 0; x < count; ++x) excess[x] += std::max(0.0, least[x] - message[x]);
  }
  return excess;
}

std::vector<int32_t> MessagePassing::Around(int32_t v) {
  const size_t most = core_.entries() < kLargeEntries ? kAround : kAroundInLarge;
  std::vector<int32_t> order = {v};
  place_[Index(v)] = 0;
  for (size_t next = 0; next < order.size(); ++next) {
    for (const int32_t l : core_.links_of(order[next])) {
      const int32_t u = core_.link(l).Other(order[next]);
      if (place_[Index(u)] >= 0 || order.size() >= most) continue;
      place_[Index(u)] = static_cast<int32_t>(order.size());
      order.push_back(u);
    }
  }
  return order;
}

void MessagePassing::CopyAround(const MessagePassing& other, int32_t v) {
  std::copy_n(other.theta_.data() + core_.first(v), core_.labels(v),
              theta_.data() + core_.first(v));
  for (const int32_t l : core_.links_of(v)) {
    for (const int32_t end : {core_.link(l).a, core_.link(l).b}) {
      std::copy_n(other.Message(l, end), core_.labels(end), Message(l, end));
    }
  }
}

// What a vertex is left with goes to the edges that lead to the one in the middle, the furthest first. No
// more than reordering costs, on a copy: sweeps go on from where they were.
std::vector<double> MessagePassing::ExcessesAround(int32_t v, MessagePassing& copy,
                                                   double& entries) const {
  copy.bound_ = copy.entries_ = 0;
  const std::vector<int32_t> order = copy.Around(v);
  std::vector<int32_t> ahead;
  for (size_t i = order.size(); i-- > 0;) {
    const int32_t u = order[i];
    ahead.clear();
    for (const int32_t l : core_.links_of(u)) {
      const int32_t at = copy.place_[Index(core_.link(l).Other(u))];
      if (at >= 0 && at < copy.place_[Index(u)]) {
        ahead.push_back(l);
      } else {
        copy.Collect(l, u);
      }
    }
    if (i > 0) copy.Distribute(u, ahead, 0);
  }
  std::vector<double> excess(copy.theta_.begin() + static_cast<ptrdiff_t>(core_.first(v)),
                             copy.theta_.begin() + static_cast<ptrdiff_t>(core_.first(v + 1)));
  for (double& above : excess) above += copy.bound_;
  entries += copy.entries_;
  for (const int32_t u : order) {
    copy.CopyAround(*this, u);
    copy.place_[Index(u)] = -1;
  }
  return excess;
}

}  // namespace gt::placement
