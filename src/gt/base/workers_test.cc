#include "gt/base/workers.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace gt {
namespace {

class Workers : public ::testing::TestWithParam<int64_t> {
 protected:
  Workers() { LimitWorkers(GetParam()); }
  ~Workers() override { LimitWorkers(0); }
};
INSTANTIATE_TEST_SUITE_P(Threads, Workers, ::testing::Values(0, 1, 5));

TEST_P(Workers, EveryItemIsDoneOnce) {
  for (const int64_t count : {0, 1, 3, 1000}) {
    std::vector<int> done(static_cast<size_t>(count));
    RunWorkers(count, [&](WorkItems& items) {
      while (const auto item = items.Next()) ++done[static_cast<size_t>(*item)];
    });
    EXPECT_EQ(done, std::vector<int>(static_cast<size_t>(count), 1));
  }
}

TEST_P(Workers, NoMoreThanTheLimit) {
  std::atomic<int64_t> workers = 0;
  RunWorkers(100, [&](WorkItems& items) {
    ++workers;
    while (items.Next()) {
    }
  });
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  EXPECT_EQ(workers, GetParam() > 0 ? GetParam() : cores);
}

// The rest is left undone, and the caller learns why.
TEST_P(Workers, AFailureEndsTheWork) {
  std::atomic<int64_t> done = 0;
  const auto worker = [&](WorkItems& items) {
    while (const auto item = items.Next()) {
      if (*item == 10) throw std::runtime_error("item 10");
      ++done;
    }
  };
  EXPECT_THROW(RunWorkers(1'000'000'000'000, worker), std::runtime_error);
  EXPECT_GE(done, 10);
}

// As ranks that are threads do.
TEST_P(Workers, SeveralCallersAtTheSameTime) {
  std::atomic<int64_t> done = 0;
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 20; ++i) {
      callers.emplace_back([&done] {
        RunWorkers(50, [&done](WorkItems& items) {
          while (items.Next()) ++done;
        });
      });
    }
  }
  EXPECT_EQ(done, 20 * 50);
}

}  // namespace
}  // namespace gt
