#include "gt/base/name.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gt::name_test {
namespace {

TEST(Name, EqualTextsAreOneName) {
  EXPECT_EQ(Name("layers.0"), Name(std::string("layers.") + "0"));
  EXPECT_EQ(Name("layers.0").id(), Name("layers.0").id());
  EXPECT_NE(Name("layers.0"), Name("layers.1"));
  EXPECT_EQ(Name(""), Name());
  EXPECT_EQ(Name("layers.0").str(), "layers.0");
}

// Looking for a name does not make it.
TEST(Name, FindsWhatWasMade) {
  EXPECT_FALSE(Name::Find("name_test: nobody made this").has_value());
  EXPECT_FALSE(Name::Find("name_test: nobody made this").has_value());
  const Name made("name_test: made");
  EXPECT_EQ(Name::Find("name_test: made"), made);
  EXPECT_EQ(Name::Find(""), Name());
}

// Tables grow while several threads look the same texts up.
TEST(Name, ThreadsGetTheSameNames) {
  constexpr size_t kThreads = 4, kNames = 5000;
  std::vector<std::vector<Name>> names(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&names, t] {
      for (size_t i = 0; i < kNames; ++i) names[t].emplace_back(fmt::format("name_test {}", i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 1; t < kThreads; ++t) EXPECT_EQ(names[t], names[0]);
  for (size_t i = 0; i < kNames; ++i) ASSERT_EQ(names[0][i].str(), fmt::format("name_test {}", i));
}

}  // namespace
}  // namespace gt::name_test
