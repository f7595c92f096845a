// Whether ./gt test --slow is running, for tests that try more then.
#pragma once

#include <cstdlib>
#include <string_view>

namespace gt::testing {

inline bool SlowTestsWanted() {
  const char* slow = std::getenv("GT_SLOW");
  return slow != nullptr && slow == std::string_view("1");
}

}  // namespace gt::testing
