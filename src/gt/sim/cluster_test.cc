#include "gt/sim/cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gt/base/error.h"

namespace gt::cluster_test {
namespace {

constexpr const char* kSimpleText = R"([cluster]
name = "two machines"
generation = "any"
gpus_per_node = 4

[simple.node]
latency_us = 5
bandwidth_gb_per_s = 20.5
[simple.network]
latency_us = 30.0
bandwidth_gb_per_s = 1.25
)";

std::filesystem::path Folder() {
  return std::filesystem::path(GT_SOURCE_DIR) / "configs" / "clusters";
}

std::string H100Text() {
  std::ifstream file(Folder() / "h100.toml", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The text with `from`, which it must contain, replaced by `to`.
std::string With(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// What is wrong with the text, by the error that reading it gives; empty if it is fine.
std::string Problem(const std::string& text) {
  try {
    ParseCluster(text, "mine.toml");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadCluster) << error.what();
    return error.message();
  }
}

::testing::AssertionResult Contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
}

TEST(ClusterTest, ReadsSimpleLinks) {
  const Cluster cluster = ParseCluster(kSimpleText, "mine.toml");
  EXPECT_EQ(cluster.name, "two machines");
  EXPECT_EQ(cluster.generation, "any");
  EXPECT_EQ(cluster.gpus_per_node, 4);
  const auto& links = std::get<SimpleLinks>(cluster.links);
  EXPECT_EQ(links.node.latency_us, 5);
  EXPECT_EQ(links.node.bandwidth_gb_per_s, 20.5);
  EXPECT_EQ(links.network.latency_us, 30);
  EXPECT_EQ(links.network.bandwidth_gb_per_s, 1.25);
}

TEST(ClusterTest, ReadsEveryFileThatComesWithTheProgram) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    EXPECT_NO_THROW(ReadCluster(entry.path())) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4);
}

constexpr const char* kGpuText = R"([gpu]
memory_gb = 96.5
multiprocessors = 100
[contention]
all_gather = 1
reduce_scatter = 2
all_reduce = 3
all_to_all = 25
broadcast = 99
)";

TEST(ClusterTest, ReadsTheGpuAndWhatCollectivesTakeFromIt) {
  const Cluster cluster = ParseCluster(std::string(kSimpleText) + kGpuText, "mine.toml");
  EXPECT_EQ(cluster.gpu.memory_gb, 96.5);
  EXPECT_EQ(cluster.gpu.multiprocessors, 100);
  EXPECT_DOUBLE_EQ(cluster.ComputeShareTaken(Collective::kAllGather), 0.01);
  EXPECT_DOUBLE_EQ(cluster.ComputeShareTaken(Collective::kReduceScatter), 0.02);
  EXPECT_DOUBLE_EQ(cluster.ComputeShareTaken(Collective::kAllReduce), 0.03);
  EXPECT_DOUBLE_EQ(cluster.ComputeShareTaken(Collective::kAllToAll), 0.25);
  EXPECT_DOUBLE_EQ(cluster.ComputeShareTaken(Collective::kBroadcast), 0.99);
  EXPECT_EQ(cluster.ComputeShareTaken(Collective::kWait), 0);
  EXPECT_EQ(cluster.ComputeShareTaken(Collective::kNone), 0);
}

// 16 to 24 of Hopper's 132 multiprocessors for tokens.
TEST(ClusterTest, HopperGivesATenthOfItselfToCollectives) {
  const Cluster h200 = ReadCluster(Folder() / "h200.toml");
  EXPECT_EQ(h200.gpu.memory_gb, 141);
  EXPECT_DOUBLE_EQ(h200.ComputeShareTaken(Collective::kAllToAll), 20.0 / 132);
  EXPECT_DOUBLE_EQ(h200.ComputeShareTaken(Collective::kReduceScatter), 16.0 / 132);
}

TEST(ClusterTest, WithoutFiguresOfTheGpuNothingIsTaken) {
  const Cluster cluster = ParseCluster(kSimpleText, "mine.toml");
  EXPECT_EQ(cluster.gpu.memory_gb, 0);
  EXPECT_EQ(cluster.gpu.multiprocessors, 0);
  EXPECT_EQ(cluster.ComputeShareTaken(Collective::kAllToAll), 0);
  const Cluster no_contention = ParseCluster(
      std::string(kSimpleText) + "[gpu]\nmemory_gb = 8\nmultiprocessors = 4\n", "mine.toml");
  EXPECT_EQ(no_contention.gpu.multiprocessors, 4);
  EXPECT_EQ(no_contention.ComputeShareTaken(Collective::kAllToAll), 0);
}

TEST(ClusterTest, CollectivesLeaveSomethingToCompute) {
  const std::string text = std::string(kSimpleText) + kGpuText;
  EXPECT_TRUE(Contains(Problem(With(text, "= 99", "= 100")),
                       "contention.broadcast is the integer 100; it must be an integer between 0 "
                       "and 99"));
  EXPECT_TRUE(Contains(Problem(With(text, "= 25", "= -1")), "an integer between 0 and 99"));
  EXPECT_TRUE(Contains(Problem(With(text, "all_to_all = 25\n", "")),
                       "the key contention.all_to_all is missing"));
  EXPECT_TRUE(Contains(Problem(With(text, "multiprocessors = 100\n", "")),
                       "the key gpu.multiprocessors is missing"));
  EXPECT_TRUE(Contains(Problem(With(text, "memory_gb = 96.5", "memory_gb = 0")),
                       "a number of GiB between"));
}

TEST(ClusterTest, TreesMayBeMissing) {
  const std::string text = H100Text();
  const std::size_t begin = text.find("[all_reduce.tree]");
  const std::size_t end = text.find("[all_to_all.node]");
  const Cluster cluster = ParseCluster(text.substr(0, begin) + text.substr(end), "mine.toml");
  const auto& links = std::get<NcclLinks>(cluster.links);
  EXPECT_FALSE(links.all_reduce_tree);
  EXPECT_FALSE(links.all_reduce_nvls_tree);
  EXPECT_TRUE(std::get<NcclLinks>(ParseCluster(text, "h100.toml").links).all_reduce_tree);
}

TEST(ClusterTest, MissingKeysAreNamed) {
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "latency_us = 30.0\n", "")),
                       "mine.toml: the key simple.network.latency_us is missing (a latency in "
                       "microseconds); add it to section [simple.network]"));
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "ramp_deepening = 0.2", "")),
                       "all_reduce.ring.ramp_deepening is missing"));
  EXPECT_TRUE(Contains(Problem(""), "cluster.name is missing"));
}

TEST(ClusterTest, MisspelledKeysAreRecognized) {
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "latency_us = 30.0", "latencyus = 30.0")),
                       "line 10 has simple.network.latencyus, is that what was meant?"));
  EXPECT_TRUE(
      Contains(Problem(With(kSimpleText, "latency_us = 30.0", "latency_us = 30.0\nlatency_u = 1")),
               "mine.toml:11: unknown key simple.network.latency_u; did you mean "
               "simple.network.latency_us?"));
  EXPECT_TRUE(Contains(Problem(kSimpleText + std::string("[switch]\nkind = 1\n")),
                       "mine.toml:13: unknown key switch.kind"));
}

TEST(ClusterTest, ValuesOutsideOfTheirRangeAreRefused) {
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "latency_us = 5", "latency_us = -5")),
                       "mine.toml:7: simple.node.latency_us has the integer -5 where a latency in "
                       "microseconds between 0 and"));
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "20.5", "0")), "a bandwidth in GB/s"));
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "20.5", "1e300")), "a bandwidth in GB/s"));
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "20.5", "\"20.5\"")), "the string \"20.5\""));
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "20.5", "[20.5]")), "a list"));
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "= 4", "= 0")), "an integer between 1 and 4096"));
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "= 4", "= 2.5")), "cluster.gpus_per_node is"));
  EXPECT_TRUE(Contains(Problem(With(kSimpleText, "\"any\"", "3")), "a text in quotes"));
}

TEST(ClusterTest, ListsMustFitTogether) {
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "[6.6, 14.0, 8.4]", "[6.6, 14.0]")),
                       "all_gather.ring.base_latency_us has 2 entries; it needs three"));
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "[8.0, 17.0, 30.0]", "[8.0, 17.0]")),
                       "all_gather.node.latency_us has 2 entries; it needs as many as "
                       "all_gather.node.ranks, 3"));
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "ranks = [2, 4, 8]", "ranks = [2, 8, 4]")),
                       "all_gather.node.ranks must ascend"));
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "ranks = [2, 4, 8]", "ranks = []")),
                       "a list of 1 to 64 numbers"));
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "ranks = [2, 4, 8]", "ranks = 2")),
                       "a list of 1 to 64 numbers"));
  EXPECT_TRUE(
      Contains(Problem(With(H100Text(), "ramp_full_nodes_only = true", "ramp_full_nodes_only = 1")),
               "true or false"));
}

// Bandwidth that more than doubles when the message doubles would make large messages faster.
TEST(ClusterTest, RampsRiseAtMostTwofold) {
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "0.01, 0.02,", "0.01, 0.021,")),
                       "all_gather.ring.ramp rises from 0.01 to 0.021 at entry 2"));
  EXPECT_TRUE(Contains(Problem(With(H100Text(), "0.01, 0.02,", "0.0, 0.02,")),
                       "a part of the whole between 0.001 and 1"));
}

TEST(ClusterTest, TwoDescriptionsAreOneTooMany) {
  EXPECT_TRUE(
      Contains(Problem(H100Text() + "[simple.node]\nlatency_us = 1\n"), "keep one of them"));
}

TEST(ClusterTest, UnreadableFiles) {
  EXPECT_THROW(ReadCluster("/nonexistent/x.toml"), Error);
  EXPECT_THROW(ReadCluster(Folder()), Error);
}

Ramp MakeRamp(std::initializer_list<double> factors) {
  Ramp ramp;
  for (const double factor : factors) ramp.log2_factors.push_back(std::log2(factor));
  return ramp;
}

TEST(RampTest, HoldsItsEndsAndFollowsAPowerLawBetweenEntries) {
  const Ramp ramp = MakeRamp({0.25, 0.5, 1});
  EXPECT_DOUBLE_EQ(ramp.At(0), 0.25);
  EXPECT_DOUBLE_EQ(ramp.At(64), 0.25);
  EXPECT_DOUBLE_EQ(ramp.At(128), 0.5);
  EXPECT_DOUBLE_EQ(ramp.At(192), 0.75);  // time does not change while the factor doubles
  EXPECT_DOUBLE_EQ(ramp.At(1e15), 1);
}

// 0.3 squared is more than twice 0.18 squared: the steps that follow catch up.
TEST(RampTest, ExponentsKeepStepsTwofold) {
  const Ramp ramp = MakeRamp({0.18, 0.3, 0.3, 1});
  EXPECT_NEAR(ramp.At(64, 2), 0.0324, 1e-12);
  EXPECT_NEAR(ramp.At(128, 2), 0.0648, 1e-12);
  EXPECT_NEAR(ramp.At(256, 2), 0.09, 1e-12);
  EXPECT_NEAR(ramp.At(512, 2), 0.18, 1e-12);
}

// The other ways to read a ramp agree with the power law at its entries only.
TEST(RampTest, StraightLinesAndSteps) {
  Ramp ramp = MakeRamp({0.4, 0.5, 0.8});
  const double middle = 192;
  ramp.between = Ramp::Between::kStraight;
  EXPECT_NEAR(ramp.At(middle), 0.5 + 0.3 * std::log2(1.5), 1e-12);
  EXPECT_NEAR(ramp.At(191), 0.5, 1e-12) << "units of 64 bytes count";
  EXPECT_NEAR(ramp.At(128), 0.5, 1e-12);
  ramp.between = Ramp::Between::kStep;
  EXPECT_NEAR(ramp.At(middle), 0.5, 1e-12);
  EXPECT_NEAR(ramp.At(1e9), 0.8, 1e-12);
}

TEST(CurveTest, InterpolatesAndHoldsItsEnds) {
  const Curve curve{{2, 4, 8}, {10, 20, 100}};
  EXPECT_DOUBLE_EQ(curve.Linear(1), 10);
  EXPECT_DOUBLE_EQ(curve.Linear(3), 15);
  EXPECT_DOUBLE_EQ(curve.Linear(8), 100);
  EXPECT_DOUBLE_EQ(curve.Linear(72), 100);
  EXPECT_DOUBLE_EQ(curve.Logarithmic(2), 10);
  EXPECT_DOUBLE_EQ(curve.Logarithmic(std::sqrt(32.0)), 60);
  EXPECT_DOUBLE_EQ(curve.Logarithmic(16), 200);
}

}  // namespace
}  // namespace gt::cluster_test
