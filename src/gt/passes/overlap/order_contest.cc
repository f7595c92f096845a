#include "gt/passes/overlap/order_contest.h"

#include <algorithm>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/base/logging.h"

namespace gt {

bool OrderContest::Enter(std::string_view name, OverlapOrder::Result result) {
  log::Debug("overlap, {}: {:.1f} ms, {} of {} allowed", name, result.microseconds / 1e3,
             ByteText(result.peak), budget_ == kNoLimit ? "any" : ByteText(budget_));
  const bool fits = result.peak <= budget_;
  ++entered_;
  if (!fits) ++over_budget_;
  if (!fastest_ || result.microseconds < fastest_->microseconds) {
    fastest_ = {{}, result.microseconds, result.peak};
  }
  if (!best_ || IsBetter(result, *best_)) best_ = std::move(result);
  return fits;
}

bool OrderContest::IsBetter(const OverlapOrder::Result& a, const OverlapOrder::Result& b) const {
  const int64_t excess_a = std::max<int64_t>(a.peak - budget_, 0);
  const int64_t excess_b = std::max<int64_t>(b.peak - budget_, 0);
  if (excess_a != excess_b) return excess_a < excess_b;
  return a.microseconds < b.microseconds;
}

}  // namespace gt
