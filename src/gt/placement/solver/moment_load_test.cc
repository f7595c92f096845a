#include "gt/placement/solver/moment_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "gt/placement/solver/label_graph.h"
#include "gt/placement/solver/moment_pruning.h"

namespace gt::moment_load_test {
namespace {

using placement::LabelGraph;
using placement::LabelProblem;
using placement::MomentLoad;

TEST(MomentLoad, KnowsTheFullestMoment) {
  std::mt19937_64 random(7);
  for (const size_t moments : {1, 2, 5, 64, 100}) {
    std::vector<int64_t> room(moments);
    for (int64_t& bytes : room) bytes = static_cast<int64_t>(random() % 100);
    MomentLoad load(room);
    std::vector<int64_t> plain(moments);
    for (size_t t = 0; t < moments; ++t) plain[t] = -room[t];
    for (int change = 0; change < 200; ++change) {
      const auto begin = static_cast<int32_t>(random() % moments);
      const auto end =
          begin + static_cast<int32_t>(random() % (moments - static_cast<size_t>(begin) + 1));
      const int64_t bytes = static_cast<int64_t>(random() % 41) - 20;
      load.Add(begin, end, bytes);
      for (int32_t t = begin; t < end; ++t) plain[static_cast<size_t>(t)] += bytes;
      ASSERT_EQ(load.Largest(), std::ranges::max(plain));
    }
  }
}

TEST(MomentLoad, IsNeverFullWithoutMoments) { EXPECT_LT(MomentLoad({}).Largest(), 0); }

TEST(Moments, AreThoseWithTheMostAlive) {
  LabelProblem problem;
  for (const auto& [begin, end] :
       {std::pair(0, 4), std::pair(1, 3), std::pair(2, 6), std::pair(5, 8)}) {
    problem.variables.push_back({{0, 0}, {0, 10}, {{begin, end, 1}}});
  }
  problem.usage_limit = 15;
  // Of the pieces, only [2, 3) and [5, 6) have something that began and something that ends.
  EXPECT_EQ(placement::FindMoments(problem).room, (std::vector<int64_t>{15, 15}));
  problem.usage_limit = 25;  // only three at a time are too much
  EXPECT_EQ(placement::FindMoments(problem).room, (std::vector<int64_t>{25}));
}

TEST(PruneMoments, DropsWhatAnotherImplies) {
  LabelProblem problem;
  problem.variables.push_back({{0, 0}, {0, 10}, {{0, 9, 1}}});
  problem.variables.push_back({{0, 0}, {0, 6}, {{0, 2, 1}}});
  problem.variables.push_back({{0, 0}, {0, 8}, {{3, 9, 1}}});
  problem.usage_limit = 12;
  LabelGraph graph = LabelGraph::From(problem);
  ASSERT_EQ(graph.room.size(), 2U);
  placement::PruneMoments(graph);
  EXPECT_EQ(graph.room.size(), 2U);  // either of the two small ones may be the one too many
}

TEST(PruneMoments, KeepsTheFullerOfTwoMomentsOfTheSameVariables) {
  LabelProblem problem;
  problem.variables.push_back({{0, 0}, {0, 10}, {{0, 9, 1}}});
  problem.variables.push_back({{0, 0}, {0, 6}, {{0, 2, 1}, {3, 9, 2}}});
  problem.usage_limit = 12;
  LabelGraph graph = LabelGraph::From(problem);
  ASSERT_EQ(graph.room.size(), 2U);
  placement::PruneMoments(graph);
  ASSERT_EQ(graph.room.size(), 1U);
  EXPECT_EQ(graph.vertices[1].usage.front().usage[1], 12);
}

}  // namespace
}  // namespace gt::moment_load_test
