#include "gt/base/bounded_list.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gt::bounded_list_test {
namespace {

TEST(BoundedList, ShowsTwentyAndCountsTheRest) {
  std::vector<std::string> parts(20, "x");
  std::string all = "x";
  for (int i = 1; i < 20; ++i) all += ", x";
  EXPECT_EQ(JoinFirst({}, ", "), "");
  EXPECT_EQ(JoinFirst(parts, ", "), all);
  parts.resize(1254, "y");
  EXPECT_EQ(JoinFirst(parts, ", "), all + ", and 1,234 more");
}

TEST(BoundedList, CutsLongPartsBetweenCharacters) {
  std::string name = "x";
  for (int i = 0; i < 1000; ++i) name += "\u00e9";
  const std::string shown = JoinFirst(std::vector<std::string>{name}, ", ");
  EXPECT_EQ(shown, name.substr(0, 399) + "...");
}

}  // namespace
}  // namespace gt::bounded_list_test
