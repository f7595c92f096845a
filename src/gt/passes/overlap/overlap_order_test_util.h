// A step, and orders of it.
#pragma once

#include <cstdint>
#include <string>

#include "gt/passes/overlap/overlap_order.h"
#include "gt/passes/overlap/overlap_test_util.h"

namespace gt::overlap_order_test {

inline constexpr int64_t kPlenty = int64_t{1} << 40;

struct Planned {
  explicit Planned(testing::TimedStep& of)
      : step(of), ties(of.graph()), costs(of.Costs()), orders(of.graph(), ties, costs) {
    Verify(of.graph());
  }

  // The order within a window, by names, and its time.
  std::string Order(int32_t window, int64_t budget = kPlenty) {
    OverlapOrder::Result result = orders.WithinWindow(window, budget);
    microseconds = result.microseconds;
    return step.Names(result.order, ties);
  }

  testing::TimedStep& step;
  Dependencies ties;
  testing::NamedCosts costs;
  OverlapOrder orders;
  double microseconds = 0;
};

}  // namespace gt::overlap_order_test
