// Message passing with a price on memory (Lagrangian relaxation): every label pays for what it uses
// at each moment, and the room is given back. Whatever the prices are, the bound holds for all
// labellings that fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gt/placement/solver/core_graph.h"
#include "gt/placement/solver/message_passing.h"

namespace gt::placement {

// Of each label, at these prices of a byte by moment.
std::vector<double> LabelPrices(const CoreGraph& core, const std::vector<double>& prices);
// What a labelling uses above the room, by moment; below 0 where there is room left.
std::vector<int64_t> Loads(const CoreGraph& core, const std::vector<int32_t>& x);
bool Fits(const std::vector<int64_t>& loads);

class PricedMessages {
 public:
  // Starts from the prices and messages that the graph of the core remembers.
  PricedMessages(const CoreGraph& core, const LabelGraph& graph);
  void Save(LabelGraph& graph) const;

  double Sweep(double tolerance = 0) { return messages_.Sweep(tolerance); }
  void SetPrices(const std::vector<double>& prices);
  // Moves the prices against the loads of a labelling that is cheap at the present ones.
  void Step(const std::vector<int64_t>& loads, double expected_gain);

  double bound() const { return messages_.bound() - room_value_; }
  const MessagePassing& messages() const { return messages_; }
  MessagePassing& messages() { return messages_; }
  const std::vector<double>& prices() const { return prices_; }
  std::span<const double> costs() const { return costs_; }  // by label, with prices
  bool priced() const { return room_value_ > 0; }
  double price(int32_t v, int32_t x) const {
    return label_prices_[core_.first(v) + static_cast<size_t>(x)];
  }

 private:
  const CoreGraph& core_;
  MessagePassing messages_;
  std::vector<double> prices_;
  std::vector<double> label_prices_;
  std::vector<double> costs_;
  double room_value_ = 0;
};

}  // namespace gt::placement
