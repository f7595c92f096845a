// Feeds arbitrary bytes to the reader of plans. What it accepts must be written and read again without
// a change. Run with ./gt fuzz plan 600.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gt/base/error.h"
#include "gt/placement/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gt::placement::Plan;
  try {
    const Plan plan = gt::placement::PlanFromJson(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    const std::string text = ToJson(plan);
    const Plan again = gt::placement::PlanFromJson(text, "fuzz");
    if (ToJson(again) != text || !Differences(plan, again).empty()) std::abort();
  } catch (const gt::Error& error) {
    if (error.code() != gt::ErrorCode::kBadPlan) throw;
  }
  return 0;
}
