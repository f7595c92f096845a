#include "gt/placement/solver/priced_messages.h"

#include <algorithm>

namespace gt::placement {

std::vector<double> LabelPrices(const CoreGraph& core, const std::vector<double>& prices) {
  std::vector<double> sums(prices.size() + 1, 0);
  for (size_t t = 0; t < prices.size(); ++t) sums[t + 1] = sums[t] + prices[t];
  std::vector<double> priced(core.all_labels(), 0);
  for (int32_t v = 0; v < core.size(); ++v) {
    double* labels = priced.data() + core.first(v);
    for (const CoreUsage& item : core.usage(v)) {
      const double price =
          sums[static_cast<size_t>(item.end)] - sums[static_cast<size_t>(item.begin)];
      if (price == 0) continue;
      for (size_t x = 0; x < item.usage.size(); ++x) {
        labels[x] += price * static_cast<double>(item.usage[x]);
      }
    }
  }
  return priced;
}

std::vector<int64_t> Loads(const CoreGraph& core, const std::vector<int32_t>& x) {
  std::vector<int64_t> loads(core.room().size() + 1, 0);
  for (int32_t v = 0; v < core.size(); ++v) {
    for (const CoreUsage& item : core.usage(v)) {
      const int64_t bytes = item.usage[static_cast<size_t>(x[static_cast<size_t>(v)])];
      loads[static_cast<size_t>(item.begin)] += bytes;
      loads[static_cast<size_t>(item.end)] -= bytes;
    }
  }
  int64_t sum = 0;
  for (size_t t = 0; t < core.room().size(); ++t) {
    sum += loads[t];
    loads[t] = sum - core.room()[t];
  }
  loads.pop_back();
  return loads;
}

bool Fits(const std::vector<int64_t>& loads) {
  return std::ranges::all_of(loads, [](int64_t load) { return load <= 0; });
}

PricedMessages::PricedMessages(const CoreGraph& core, const LabelGraph& graph)
    : core_(core),
      messages_(core, graph),
      prices_(core.room().size(), 0),
      label_prices_(core.all_labels(), 0),
      costs_(core.all_costs().begin(), core.all_costs().end()) {
  if (!graph.price.empty()) SetPrices(graph.price);
}

void PricedMessages::Save(LabelGraph& graph) const {
  messages_.Save(graph);
  graph.price = prices_;
}

void PricedMessages::SetPrices(const std::vector<double>& prices) {
  prices_ = prices;
  std::vector<double> priced = LabelPrices(core_, prices_);
  for (int32_t v = 0; v < core_.size(); ++v) {
    for (size_t i = core_.first(v); i < core_.first(v + 1); ++i) {
      const double more = priced[i] - label_prices_[i];
      if (more != 0) messages_.AddCost(v, static_cast<int32_t>(i - core_.first(v)), more);
      costs_[i] = core_.all_costs()[i] + priced[i];
    }
  }
  label_prices_ = std::move(priced);
  room_value_ = 0;
  for (size_t t = 0; t < prices_.size(); ++t) {
    room_value_ += prices_[t] * static_cast<double>(core_.room()[t]);
  }
}

void PricedMessages::Step(const std::vector<int64_t>& loads, double expected_gain) {
  double norm = 0;
  for (size_t t = 0; t < loads.size(); ++t) {
    const auto load = static_cast<double>(loads[t]);
    if (load > 0 || prices_[t] > 0) norm += load * load;
  }
  if (norm == 0) return;
  std::vector<double> prices = prices_;
  for (size_t t = 0; t < loads.size(); ++t) {
    prices[t] = std::max(0.0, prices[t] + expected_gain / norm * static_cast<double>(loads[t]));
  }
  SetPrices(prices);
}

}  // namespace gt::placement
