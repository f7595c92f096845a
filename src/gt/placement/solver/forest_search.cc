#include "gt/placement/solver/forest_search.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace gt::placement {
namespace {

// Above what any allowed labelling costs.
double CostOfAnything(const CoreGraph& core) {
  const auto largest = [](const CoreTable& values, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; ++i) {
      if (values.At(i) < kForbidden) most = std::max(most, values.At(i));
    }
    return most;
  };
  double sum = 1;
  for (int32_t v = 0; v < core.size(); ++v) {
    sum += largest({.wide = core.costs(v).data()}, core.labels(v));
  }
  for (const CoreLink& link : core.links()) {
    sum += largest(link.table, core.labels(link.a) * core.labels(link.b));
  }
  return sum;
}

bool ForbidsAny(const CoreTable& table, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (table.At(i) == kForbidden) return true;
  }
  return false;
}

}  // namespace

ForestSearch::ForestSearch(const CoreGraph& core) : core_(core), cap_(CostOfAnything(core)) {
  std::unordered_map<const void*, CoreTable> known;
  size_t most_labels = 0;
  for (const CoreLink& link : core.links()) {
    const size_t count = core.labels(link.a) * core.labels(link.b);
    auto [found, fresh] = known.emplace(link.table.address(), link.table);
    if (fresh && ForbidsAny(link.table, count)) {
      std::vector<double>& table = capped_.emplace_back(count);
      for (size_t i = 0; i < count; ++i) table[i] = std::min(link.table.At(i), cap_);
      found->second = {.wide = table.data()};
    }
    tables_.push_back(found->second);
  }
  for (int32_t v = 0; v < core.size(); ++v) most_labels = std::max(most_labels, core.labels(v));
  scratch_.resize(2 * most_labels);
  tree_.assign(static_cast<size_t>(core.size()), -1);
  visited_.assign(static_cast<size_t>(core.size()), 0);
  sums_.resize(core.all_labels());
}

int32_t ForestSearch::Root(int32_t v) {
  while (tree_[static_cast<size_t>(v)] != v) {
    int32_t& up = tree_[static_cast<size_t>(v)];
    v = up = tree_[static_cast<size_t>(up)];
  }
  return v;
}

void ForestSearch::ChooseForest(std::span<const int32_t> among) {
  candidates_.assign(among.begin(), among.end());
  if (among.empty()) {
    candidates_.resize(static_cast<size_t>(core_.size()));
    std::iota(candidates_.begin(), candidates_.end(), 0);
  }
  for (size_t i = candidates_.size(); i > 1; --i) {
    std::swap(candidates_[i - 1], candidates_[random_() % i]);
  }
  for (const int32_t v : chosen_) tree_[static_cast<size_t>(v)] = -1;
  chosen_.clear();
  std::vector<int32_t> roots;
  for (const int32_t v : candidates_) {
    roots.clear();
    for (const int32_t l : core_.links_of(v)) {
      const int32_t u = core_.link(l).Other(v);
      if (tree_[static_cast<size_t>(u)] >= 0) roots.push_back(Root(u));
    }
    std::ranges::sort(roots);
    if (std::ranges::adjacent_find(roots) != roots.end()) continue;  // would close a cycle
    tree_[static_cast<size_t>(v)] = v;
    for (const int32_t root : roots) tree_[static_cast<size_t>(root)] = v;
    chosen_.push_back(v);
  }
}

// Parents before children.
void ForestSearch::OrderForest() {
  steps_.clear();
  for (const int32_t root : chosen_) {
    if (visited_[static_cast<size_t>(root)]) continue;
    visited_[static_cast<size_t>(root)] = 1;
    steps_.push_back({root, -1, -1});
    for (size_t next = steps_.size() - 1; next < steps_.size(); ++next) {
      const int32_t v = steps_[next].vertex;
      for (const int32_t l : core_.links_of(v)) {
        const int32_t u = core_.link(l).Other(v);
        if (tree_[static_cast<size_t>(u)] < 0 || visited_[static_cast<size_t>(u)]) continue;
        visited_[static_cast<size_t>(u)] = 1;
        steps_.push_back({u, v, l});
      }
    }
  }
  for (const int32_t v : chosen_) visited_[static_cast<size_t>(v)] = 0;
}

void ForestSearch::AddBeside(int32_t l, int32_t v, const std::vector<int32_t>& x,
                             double* sums) const {
  const CoreLink& link = core_.link(l);
  const auto other = static_cast<size_t>(x[static_cast<size_t>(link.Other(v))]);
  const size_t columns = core_.labels(link.b);
  const bool is_row = v == link.b;
  const CoreTable& table = tables_[static_cast<size_t>(l)];
  const size_t first = is_row ? other * columns : other, step = is_row ? 1 : columns;
  for (size_t i = 0; i < core_.labels(v); ++i) sums[i] += table.At(first + i * step);
}

void ForestSearch::Relabel(std::vector<int32_t>& x, std::span<const double> costs,
                           std::span<const int32_t> among) {
  ChooseForest(among);
  OrderForest();
  for (const int32_t v : chosen_) {
    double* sums = sums_.data() + core_.first(v);
    const size_t count = core_.labels(v);
    std::copy_n(costs.data() + core_.first(v), count, sums);
    for (const int32_t l : core_.links_of(v)) {
      const int32_t u = core_.link(l).Other(v);
      if (tree_[static_cast<size_t>(u)] >= 0) continue;
      AddBeside(l, v, x, sums);
    }
  }
  double* negative = scratch_.data();
  double* message = scratch_.data() + scratch_.size() / 2;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->parent < 0) continue;
    const size_t rows = core_.labels(step->vertex);
    const size_t columns = core_.labels(step->parent);
    const double* sums = sums_.data() + core_.first(step->vertex);
    for (size_t i = 0; i < rows; ++i) negative[i] = -sums[i];
    core_.LeastBeside(core_.link(step->link), tables_[static_cast<size_t>(step->link)],
                      step->parent, negative, message);
    double* up = sums_.data() + core_.first(step->parent);
    for (size_t i = 0; i < columns; ++i) up[i] += message[i];
  }
  for (const Step& step : steps_) {
    const size_t count = core_.labels(step.vertex);
    double* sums = sums_.data() + core_.first(step.vertex);
    if (step.parent >= 0) AddBeside(step.link, step.vertex, x, sums);
    x[static_cast<size_t>(step.vertex)] =
        static_cast<int32_t>(std::min_element(sums, sums + count) - sums);
  }
}

double ForestSearch::CappedCost(const std::vector<int32_t>& x,
                                std::span<const double> costs) const {
  double cost = 0;
  for (int32_t v = 0; v < core_.size(); ++v) {
    cost += costs[core_.first(v) + static_cast<size_t>(x[static_cast<size_t>(v)])];
  }
  for (size_t l = 0; l < tables_.size(); ++l) {
    const CoreLink& link = core_.links()[l];
    cost +=
        tables_[l].At(static_cast<size_t>(x[static_cast<size_t>(link.a)]) * core_.labels(link.b) +
                      static_cast<size_t>(x[static_cast<size_t>(link.b)]));
  }
  return cost;
}

}  // namespace gt::placement
