#include "gt/dist/mesh.h"

#include <gtest/gtest.h>

#include <limits>

#include "gt/base/error.h"

namespace gt::mesh_test {
namespace {

using Ranks = std::vector<int64_t>;

ParallelismSection Degrees(int64_t replicate, int64_t shard, int64_t cp, int64_t tp, int64_t ep) {
  ParallelismSection degrees;
  degrees.data_parallel_replicate_degree = replicate;
  degrees.data_parallel_shard_degree = shard;
  degrees.context_parallel_degree = cp;
  degrees.tensor_parallel_degree = tp;
  degrees.expert_parallel_degree = ep;
  return degrees;
}

// The group of every rank along an axis, each listed once.
std::vector<Ranks> Groups(const ParallelismSection& degrees, int64_t world, MeshAxis axis) {
  std::vector<Ranks> groups;
  for (int64_t rank = 0; rank < world; ++rank) {
    Mesh mesh(degrees, world, rank);
    Ranks ranks = mesh.Ranks(axis);
    EXPECT_EQ(ranks[static_cast<size_t>(mesh.coordinate(axis))], rank);
    if (mesh.coordinate(axis) == 0) groups.push_back(ranks);
  }
  return groups;
}

std::string MessageOf(const ParallelismSection& degrees, int64_t world) {
  try {
    Mesh mesh(degrees, world, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MeshTest, ExpertGroupsAreNeighboursAndTheirShardsAreFarApart) {
  auto degrees = Degrees(1, 8, 1, 1, 2);
  EXPECT_EQ(Groups(degrees, 8, MeshAxis::kFsdp), (std::vector<Ranks>{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(Groups(degrees, 8, MeshAxis::kEp),
            (std::vector<Ranks>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(Groups(degrees, 8, MeshAxis::kEfsdp), (std::vector<Ranks>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(MeshTest, ExpertGroupsSpanTensorParallelOnes) {
  auto degrees = Degrees(1, 4, 1, 2, 4);
  EXPECT_EQ(Groups(degrees, 8, MeshAxis::kTp),
            (std::vector<Ranks>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(Groups(degrees, 8, MeshAxis::kEp), (std::vector<Ranks>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(Groups(degrees, 8, MeshAxis::kEfsdp),
            (std::vector<Ranks>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(Groups(degrees, 8, MeshAxis::kFsdp), (std::vector<Ranks>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(MeshTest, ReplicasBatchesAndLosses) {
  auto degrees = Degrees(2, 2, 2, 2, 1);
  EXPECT_EQ(Groups(degrees, 16, MeshAxis::kDpReplicate).front(), (Ranks{0, 8}));
  EXPECT_EQ(Groups(degrees, 16, MeshAxis::kCp).front(), (Ranks{0, 2}));
  EXPECT_EQ(Groups(degrees, 16, MeshAxis::kBatch).front(), (Ranks{0, 4, 8, 12}));
  EXPECT_EQ(Groups(degrees, 16, MeshAxis::kLoss).front(), (Ranks{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(Groups(degrees, 16, MeshAxis::kShard).size(), 2u);
}

TEST(MeshTest, TheRestOfTheRanksShareParameters) {
  EXPECT_EQ(Mesh(Degrees(2, -1, 1, 2, 1), 16, 0).size(MeshAxis::kFsdp), 4);
  EXPECT_EQ(Mesh().Describe(), "one rank");
  EXPECT_EQ(Mesh(Degrees(1, -1, 1, 2, 4), 8, 0).Describe(), "dp_shard 4, tp 2, ep 4");
}

TEST(MeshTest, BrokenLawsAreNamed) {
  EXPECT_NE(MessageOf(Degrees(1, -1, 1, 3, 1), 8).find("3 does not divide 8 ranks"),
            std::string::npos);
  EXPECT_NE(MessageOf(Degrees(1, 4, 1, 4, 1), 8).find("is 16, but the job has 8 ranks"),
            std::string::npos);
  EXPECT_NE(MessageOf(Degrees(1, 8, 1, 1, 3), 8).find("must divide dp_shard 8 x cp 1 x tp 1 = 8"),
            std::string::npos);
  EXPECT_NE(MessageOf(Degrees(1, 0, 1, 1, 1), 8).find("leaves no rank"), std::string::npos);
  // Products that do not fit into 64 bits are products that are too large.
  constexpr int64_t kHuge = int64_t{1} << 32, kLargest = std::numeric_limits<int64_t>::max();
  EXPECT_NE(MessageOf(Degrees(1, -1, kHuge, kHuge, 1), 4).find("does not divide 4 ranks"),
            std::string::npos);
  EXPECT_NE(MessageOf(Degrees(1, kLargest, kHuge, 1, 1), 8).find("but the job has 8 ranks"),
            std::string::npos);
  ParallelismSection staged = Degrees(1, -1, 1, 1, 1);
  staged.pipeline_parallel_degree = 2;
  EXPECT_NE(MessageOf(staged, 8).find("no pipeline parallelism yet"), std::string::npos);
}

}  // namespace
}  // namespace gt::mesh_test
