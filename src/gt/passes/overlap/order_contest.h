// Several orders of a step, of which one is taken.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "gt/passes/overlap/overlap_order.h"

namespace gt {

// Orders that were tried: the fastest of all, and the fastest within the budget. If none is within it,
// the one that exceeds it least.
class OrderContest {
 public:
  explicit OrderContest(int64_t budget) : budget_(budget) {}

  // Returns whether the order is within the budget.
  bool Enter(std::string_view name, OverlapOrder::Result result);

  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  const OverlapOrder::Result& best() const { return *best_; }
  const OverlapOrder::Result& fastest() const { return *fastest_; }  // without its order
  int64_t entered() const { return entered_; }
  int64_t over_budget() const { return over_budget_; }

 private:
  bool IsBetter(const OverlapOrder::Result& a, const OverlapOrder::Result& b) const;

  int64_t budget_;
  std::optional<OverlapOrder::Result> best_, fastest_;
  int64_t entered_ = 0, over_budget_ = 0;
};

}  // namespace gt
