#include "gt/sim/shared_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "gt/base/error.h"

namespace gt::shared_links_test {
namespace {

using Ends = std::vector<std::pair<std::int32_t, double>>;

constexpr CollectiveTime OnNetwork(double latency, double transfer) {
  return {latency, transfer, LinkResource::kNetwork};
}
constexpr CollectiveTime OnNode(double latency, double transfer) {
  return {latency, transfer, LinkResource::kNode};
}

// All that end from now on, with their times.
std::map<std::int32_t, double> RunOut(SharedLinks* links) {
  Ends ended;
  links->AdvanceTo(1e15, &ended);
  return {ended.begin(), ended.end()};
}

TEST(SharedLinksTest, AloneACollectiveTakesItsTime) {
  SharedLinks links;
  EXPECT_TRUE(links.idle());
  EXPECT_EQ(links.NextEnd(), std::numeric_limits<double>::infinity());
  const std::int32_t id = links.Begin(0.1, OnNetwork(0.2, 0.7));
  EXPECT_EQ(links.active(), 1);
  // To the last bit what it is without other collectives.
  EXPECT_EQ(links.NextEnd(), 0.1 + (0.2 + 0.7));
  EXPECT_EQ(links.EndOf(id), 0.1 + (0.2 + 0.7));
  Ends ended;
  links.AdvanceTo(0.9, &ended);
  EXPECT_TRUE(ended.empty());
  links.AdvanceTo(links.NextEnd(), &ended);
  EXPECT_EQ(ended, (Ends{{id, 0.1 + (0.2 + 0.7)}}));
  EXPECT_TRUE(links.idle());
}

TEST(SharedLinksTest, TwoEqualTransfersTakeTwiceAsLong) {
  SharedLinks links;
  const std::int32_t a = links.Begin(100, OnNetwork(10, 50));
  const std::int32_t b = links.Begin(100, OnNetwork(10, 50));
  EXPECT_DOUBLE_EQ(links.NextEnd(), 210);
  EXPECT_DOUBLE_EQ(links.EndOf(a), 210);
  EXPECT_DOUBLE_EQ(links.EndOf(b), 210);
  Ends ended;
  links.AdvanceTo(300, &ended);
  EXPECT_EQ(ended, (Ends{{a, 210}, {b, 210}})) << "in the order they began";
}

TEST(SharedLinksTest, WithoutContentionNobodySlowsAnybody) {
  SharedLinks links(/*contention=*/false);
  const std::int32_t a = links.Begin(0, OnNetwork(10, 50));
  const std::int32_t b = links.Begin(20, OnNetwork(10, 20));
  EXPECT_EQ(RunOut(&links), (std::map<std::int32_t, double>{{a, 60}, {b, 50}}));
}

// Of 100 us of a transfer 40 pass alone; then a collective that is all latency begins.
TEST(SharedLinksTest, LatencySlowsNobodyAndIsNotSlowed) {
  SharedLinks links;
  const std::int32_t long_one = links.Begin(0, OnNetwork(0, 100));
  const std::int32_t count = links.Begin(40, OnNetwork(30, 0));
  EXPECT_EQ(links.EndOf(count), 70);
  EXPECT_EQ(links.EndOf(long_one), 100);
  EXPECT_EQ(links.NextEnd(), 70);
}

// NextEnd looks ahead: who is still in its latency will slow the other down.
TEST(SharedLinksTest, TheNextEndCountsTransfersToCome) {
  SharedLinks links;
  const std::int32_t first = links.Begin(0, OnNetwork(0, 100));
  const std::int32_t second = links.Begin(0, OnNetwork(60, 10));
  // 60 alone, then both at half speed until the second has moved its 10.
  EXPECT_DOUBLE_EQ(links.NextEnd(), 80);
  EXPECT_DOUBLE_EQ(links.EndOf(second), 80);
  EXPECT_DOUBLE_EQ(links.EndOf(first), 110);
}

TEST(SharedLinksTest, NodeAndNetworkDoNotMeet) {
  SharedLinks links;
  const std::int32_t inside = links.Begin(0, OnNode(5, 50));
  const std::int32_t across = links.Begin(0, OnNetwork(5, 80));
  const std::int32_t nowhere = links.Begin(0, {1, 30, LinkResource::kNone});
  EXPECT_EQ(RunOut(&links),
            (std::map<std::int32_t, double>{{inside, 55}, {across, 85}, {nowhere, 31}}));
}

// By hand: a alone to 10, a and b to 20, all three until c has moved its 5, and so on.
TEST(SharedLinksTest, ThreeStaggeredTransfers) {
  SharedLinks links;
  const std::int32_t a = links.Begin(0, OnNetwork(0, 30));
  const std::int32_t b = links.Begin(10, OnNetwork(0, 30));
  const std::int32_t c = links.Begin(15, OnNetwork(5, 5));
  const auto ends = RunOut(&links);
  // At 20: a has 15 left, b 25, c 5. At 35 c is done, a has 10 left, b 20. At 55 a is done.
  EXPECT_DOUBLE_EQ(ends.at(c), 35);
  EXPECT_DOUBLE_EQ(ends.at(a), 55);
  EXPECT_DOUBLE_EQ(ends.at(b), 65);
}

TEST(SharedLinksTest, EndsBeforeABeginningAreReportedLater) {
  SharedLinks links;
  const std::int32_t first = links.Begin(0, OnNetwork(0, 10));
  const std::int32_t second = links.Begin(50, OnNetwork(0, 10));
  EXPECT_NE(first, second) << "an id is taken until its end was reported";
  EXPECT_EQ(links.active(), 2);
  EXPECT_EQ(links.NextEnd(), 10);
  EXPECT_EQ(links.EndOf(first), 10);
  EXPECT_EQ(links.EndOf(second), 60);
  Ends ended;
  links.AdvanceTo(50, &ended);
  EXPECT_EQ(ended, (Ends{{first, 10}}));
  EXPECT_EQ(links.Begin(50, OnNetwork(0, 10)), first) << "and free again then";
}

TEST(SharedLinksTest, TakesNoTimeIfItHasNone) {
  SharedLinks links;
  const std::int32_t id = links.Begin(3, {});
  Ends ended;
  links.AdvanceTo(3, &ended);
  EXPECT_EQ(ended, (Ends{{id, 3}}));
}

TEST(SharedLinksTest, ResetForgetsEverything) {
  SharedLinks links;
  links.Begin(1000, OnNetwork(0, 10));
  links.Reset();
  EXPECT_TRUE(links.idle());
  EXPECT_EQ(links.EndOf(links.Begin(0, OnNetwork(0, 10))), 10);
}

TEST(SharedLinksTest, RefusesNonsense) {
  SharedLinks links;
  links.Begin(10, OnNetwork(0, 10));
  EXPECT_THROW(links.Begin(9, OnNetwork(0, 10)), Error);
  EXPECT_THROW(links.EndOf(7), Error);
}

struct Job {
  double begin;
  CollectiveTime time;
};

std::vector<Job> RandomJobs(std::mt19937* random, std::size_t count) {
  std::uniform_int_distribution<int> begin(0, 60), part(0, 20), resource(0, 2);
  std::vector<Job> jobs(count);
  for (Job& job : jobs) {
    job.begin = begin(*random);
    // Each part is 0 now and then.
    job.time = {std::max(0.0, part(*random) - 5.0), std::max(0.0, part(*random) - 3.0),
                static_cast<LinkResource>(resource(*random))};
  }
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.begin < b.begin; });
  return jobs;
}

// The definition, literally: in each small step whoever has spent its latency moves its share.
std::vector<double> EndsInSmallSteps(const std::vector<Job>& jobs, double step) {
  std::vector<double> left(jobs.size()), ends(jobs.size(), -1);
  for (std::size_t i = 0; i < jobs.size(); ++i) left[i] = jobs[i].time.transfer_us;
  const auto transfers = [&](std::size_t i, double now) {
    return ends[i] < 0 && now >= jobs[i].begin + jobs[i].time.latency_us - step / 2;
  };
  std::size_t done = 0;
  for (std::int64_t n = 0; done < jobs.size(); ++n) {
    const double now = static_cast<double>(n) * step;
    int users[3] = {0, 0, 0};
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!transfers(i, now)) continue;
      if (left[i] <= step * 1e-3) {
        ends[i] = now;
        ++done;
      } else {
        ++users[static_cast<int>(jobs[i].time.resource)];
      }
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!transfers(i, now)) continue;
      const bool alone = jobs[i].time.resource == LinkResource::kNone;
      left[i] -= step / (alone ? 1 : users[static_cast<int>(jobs[i].time.resource)]);
    }
  }
  return ends;
}

TEST(SharedLinksTest, AgreesWithSmallSteps) {
  std::mt19937 random(7);
  constexpr double kStep = 0.01;
  for (int round = 0; round < 60; ++round) {
    const std::vector<Job> jobs = RandomJobs(&random, 1 + static_cast<std::size_t>(round) % 9);
    const std::vector<double> expected = EndsInSmallSteps(jobs, kStep);
    // What passes between beginnings must not matter: half of the rounds look at every whole
    // microsecond, the others only at beginnings.
    SharedLinks links;
    std::vector<double> actual(jobs.size(), -1);
    std::map<std::int32_t, std::size_t> job_of;
    Ends ended;
    double previous = 0;
    const auto collect = [&](double now) {
      links.AdvanceTo(now, &ended);
      for (const auto& [id, time] : ended) {
        EXPECT_GE(time, previous - 1e-9);
        previous = time;
        actual[job_of.at(id)] = time;
        job_of.erase(id);
      }
    };
    double now = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      for (; round % 2 == 0 && now < jobs[i].begin; ++now) collect(now);
      const std::int32_t id = links.Begin(jobs[i].begin, jobs[i].time);
      EXPECT_FALSE(job_of.contains(id));
      job_of[id] = i;
    }
    // Look-ahead and what then happens are the same.
    std::map<std::int32_t, double> announced;
    for (const auto& [id, job] : job_of) announced[id] = links.EndOf(id);
    while (!links.idle()) {
      const double next = links.NextEnd();
      collect(std::max(next, jobs.back().begin));
      ASSERT_FALSE(ended.empty());
      EXPECT_DOUBLE_EQ(ended.front().second, next);
      for (const auto& [id, time] : ended) EXPECT_NEAR(time, announced.at(id), 1e-9);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 12 * kStep) << "round " << round << ", job " << i;
    }
  }
}

// Whatever the order, a resource that always has something to move is done when all is moved.
TEST(SharedLinksTest, NoBandwidthIsLost) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> part(0.5, 20);
  for (int round = 0; round < 50; ++round) {
    SharedLinks links;
    double sum = 0, last = 0;
    for (int i = 0; i < 12; ++i) {
      const double transfer = part(random);
      // Never idle: the next begins before what was begun can be done.
      links.Begin(sum * 0.9, OnNetwork(0, transfer));
      sum += transfer;
    }
    for (const auto& [id, time] : RunOut(&links)) last = std::max(last, time);
    EXPECT_NEAR(last, sum, 1e-9);
  }
}

}  // namespace
}  // namespace gt::shared_links_test
