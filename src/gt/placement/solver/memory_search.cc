#include "gt/placement/solver/memory_search.h"

#include <algorithm>

#include "gt/placement/solver/priced_messages.h"

namespace gt::placement {

MemorySearch::MemorySearch(const CoreGraph& core, const Deadline& deadline)
    : core_(core),
      deadline_(deadline),
      forest_(core),
      load_(core.room()),
      label_prices_(core.all_labels(), 0),
      costs_(core.all_costs().begin(), core.all_costs().end()),
      in_part_(static_cast<size_t>(core.size()), 0) {}

void MemorySearch::SetCosts(const std::vector<double>& prices) {
  label_prices_ = LabelPrices(core_, prices);
  for (size_t i = 0; i < costs_.size(); ++i) costs_[i] = core_.all_costs()[i] + label_prices_[i];
}

// Of neighbouring moments that are over-full only the fullest gets dearer: what they have in common
// would otherwise be paid for many times over.
void MemorySearch::RaisePrices(const std::vector<int64_t>& loads,
                               std::vector<double>& prices) const {
  const auto all = static_cast<double>(std::max<int64_t>(1, std::ranges::max(core_.room())));
  const double least = 1e-9 * forest_.cap() / all;
  for (size_t t = 0; t < loads.size();) {
    size_t fullest = t;
    for (; t < loads.size() && loads[t] > 0; ++t) {
      if (loads[t] > loads[fullest]) fullest = t;
    }
    if (loads[fullest] > 0) prices[fullest] = 1.3 * std::max(prices[fullest], least);
    ++t;
  }
}

bool MemorySearch::Repair(std::vector<int32_t>& x, std::vector<double> prices, int rounds) {
  for (int round = 0; round < rounds && !deadline_.passed(); ++round) {
    const std::vector<int64_t> loads = Loads(core_, x);
    if (Fits(loads)) return true;
    RaisePrices(loads, prices);
    SetCosts(prices);
    forest_.Relabel(x, costs_);
    forest_.Relabel(x, costs_);
  }
  return Fits(Loads(core_, x));
}

// A random connected part of the graph, of 2 to 64 vertices.
void MemorySearch::GrowPart() {
  for (const int32_t v : part_) in_part_[static_cast<size_t>(v)] = 0;
  part_.clear();
  const size_t size = size_t{2} << (random_() % 6);
  const auto add = [&](int32_t v) {
    if (in_part_[static_cast<size_t>(v)]) return;
    in_part_[static_cast<size_t>(v)] = 1;
    part_.push_back(v);
  };
  add(static_cast<int32_t>(random_() % static_cast<uint64_t>(core_.size())));
  for (size_t tries = 0; part_.size() < size && tries < 4 * size; ++tries) {
    const int32_t v = part_[random_() % part_.size()];
    const auto links = core_.links_of(v);
    if (links.empty()) break;
    add(core_.link(links[random_() % links.size()]).Other(v));
  }
}

// Of the part's vertices and the links that touch it.
double MemorySearch::CostAround(const std::vector<int32_t>& x) const {
  double cost = 0;
  for (const int32_t v : part_) {
    const auto label = static_cast<size_t>(x[static_cast<size_t>(v)]);
    cost += core_.costs(v)[label];
    for (const int32_t l : core_.links_of(v)) {
      const CoreLink& link = core_.link(l);
      const int32_t u = link.Other(v);
      if (in_part_[static_cast<size_t>(u)] && u < v) continue;
      cost += core_.Cost(link, x[static_cast<size_t>(link.a)], x[static_cast<size_t>(link.b)]);
    }
  }
  return cost;
}

void MemorySearch::Move(const std::vector<int32_t>& x, int64_t sign) {
  for (size_t i = 0; i < part_.size(); ++i) {
    const int32_t v = part_[i];
    const auto from = static_cast<size_t>(before_[i]);
    const auto to = static_cast<size_t>(x[static_cast<size_t>(v)]);
    if (from == to) continue;
    for (const CoreUsage& item : core_.usage(v)) {
      load_.Add(item.begin, item.end, sign * (item.usage[to] - item.usage[from]));
    }
  }
}

void MemorySearch::TryPart(std::vector<int32_t>& x, double scale) {
  before_.clear();
  for (const int32_t v : part_) {
    before_.push_back(x[static_cast<size_t>(v)]);
    for (size_t i = core_.first(v); i < core_.first(v + 1); ++i) {
      costs_[i] = core_.all_costs()[i] + scale * label_prices_[i];
    }
  }
  const double cost = CostAround(x);
  forest_.Relabel(x, costs_, part_);
  if (CostAround(x) <= cost) {
    Move(x, 1);
    if (load_.Largest() <= 0) return;
    Move(x, -1);
  }
  for (size_t i = 0; i < part_.size(); ++i) x[static_cast<size_t>(part_[i])] = before_[i];
}

void MemorySearch::Improve(std::vector<int32_t>& x, const std::vector<double>& prices,
                           int64_t rounds, double seconds) {
  constexpr double kScales[] = {0, 0.25, 1, 1, 2, 4};
  const double end = deadline_.elapsed_s() + seconds;
  SetCosts(prices);
  load_ = MomentLoad(core_.room());
  for (int32_t v = 0; v < core_.size(); ++v) {
    for (const CoreUsage& item : core_.usage(v)) {
      load_.Add(item.begin, item.end, item.usage[static_cast<size_t>(x[static_cast<size_t>(v)])]);
    }
  }
  for (int64_t round = 0; round < rounds; ++round) {
    if (round % 64 == 0 && deadline_.limited() && deadline_.elapsed_s() > end) break;
    GrowPart();
    TryPart(x, kScales[random_() % std::size(kScales)]);
  }
}

}  // namespace gt::placement
