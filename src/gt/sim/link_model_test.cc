#include "gt/sim/link_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gt/base/error.h"

namespace gt::link_model_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr Collective kKinds[] = {Collective::kAllGather, Collective::kReduceScatter,
                                 Collective::kAllReduce, Collective::kAllToAll,
                                 Collective::kBroadcast};

LinkModel Model(const std::string& name) {
  return LinkModel(ReadCluster(std::string(GT_SOURCE_DIR) + "/configs/clusters/" + name + ".toml"));
}

// Microseconds of NCCL's own cost model for message sizes in MiB, to the one decimal they are
// known with.
struct Golden {
  const char* cluster;
  GroupSpan span;
  std::int64_t mib;
  double all_gather, all_reduce, all_to_all;
};

void PrintTo(const Golden& row, std::ostream* out) {
  *out << row.cluster << " " << row.span.nodes << "x" << row.span.ranks_per_node << " " << row.mib
       << " MiB";
}

void ExpectRow(const LinkModel& model, const Golden& row) {
  // Half of the last printed digit, and what rounding it may have added.
  constexpr double kPrinted = 0.0501;
  const auto time = [&](Collective kind) {
    return model.Microseconds(kind, row.mib * kMiB, row.span);
  };
  EXPECT_NEAR(time(Collective::kAllGather), row.all_gather, kPrinted);
  EXPECT_NEAR(time(Collective::kReduceScatter), row.all_gather, kPrinted);
  EXPECT_NEAR(time(Collective::kAllReduce), row.all_reduce, kPrinted);
  EXPECT_NEAR(time(Collective::kAllToAll), row.all_to_all, kPrinted);
}

class LinkModelGoldenTest : public ::testing::TestWithParam<Golden> {};

TEST_P(LinkModelGoldenTest, ReproducesNcclsModel) {
  ExpectRow(Model(GetParam().cluster), GetParam());
}

INSTANTIATE_TEST_SUITE_P(H100, LinkModelGoldenTest,
                         ::testing::Values(Golden{"h100", {1, 8}, 1, 32.7, 34.9, 52.8},
                                           Golden{"h100", {1, 8}, 64, 200.3, 282.3, 226.6},
                                           Golden{"h100", {1, 8}, 1024, 2755.2, 4052.5, 2875.6},
                                           Golden{"h100", {1, 2}, 64, 133.0, 217.1, 226.6},
                                           Golden{"h100", {1, 4}, 64, 171.6, 299.4, 226.6},
                                           Golden{"h100", {8, 1}, 1, 86.6, 164.3, 84.0},
                                           Golden{"h100", {8, 1}, 64, 1328.8, 3533.5, 1323.8},
                                           Golden{"h100", {8, 1}, 1024, 19664.5, 37949.7, 19944.1},
                                           Golden{"h100", {8, 8}, 64, 479.2, 691.5, 1382.1},
                                           Golden{"h100", {16, 1}, 64, 1529.1, 4318.7, 1418.3},
                                           Golden{"h100", {32, 8}, 64, 898.4, 872.7, 1716.8}));

// Worked out by hand for spans, sizes and protocols that the rows above do not reach.
TEST(LinkModelTest, FollowsTheClosedForms) {
  const LinkModel model = Model("h100");
  const auto all_reduce = [&](std::int64_t bytes, const GroupSpan& span) {
    return model.Microseconds(Collective::kAllReduce, bytes, span);
  };
  // LL on two nodes: six steps of 1.0 and one of 2.7; 39 GB/s on the link.
  EXPECT_NEAR(model.Microseconds(Collective::kAllGather, 8192, {2, 4}),
              6.6 + 6 * 1.0 + 2.7 + 8.192 / 44.6, 1e-9);
  // LL128 on four: twelve steps and three; 92 % of four network cards.
  EXPECT_NEAR(model.Microseconds(Collective::kAllGather, 32 * kMiB, {4, 4}),
              14 + 12 * 1.9 + 3 * 4.0 + 33554.432 / 188.4, 1e-9);
  // A full node has the ramp: 64 KiB for each of 16 ranks reach 68 %.
  EXPECT_NEAR(model.Microseconds(Collective::kAllGather, kMiB, {2, 8}),
              14 + 14 * 1.9 + 4.0 + 1048.576 / (313.2 * 0.68), 1e-9);
  // Tree with LL, at 70 % for 4 KiB: 85 % of 39 GB/s, half of it in each direction.
  EXPECT_NEAR(all_reduce(4096, {2, 2}), 6.8 + 2 * (0.6 + 5.0) + 4.096 / (16.6 * 0.7), 1e-9);
  // The ring wins with 1 GiB on two ranks of two nodes each: 100 GB/s and six steps for four parts.
  EXPECT_NEAR(all_reduce(1024 * kMiB, {2, 2}),
              1.4 * (8.4 + 2 * (2 * 3.4 + 14) + 2 * 4.7) + 1073741.824 / (100 * 4.0 / 6), 1e-9);
  // The NVLS tree wins with four or more ranks per node.
  EXPECT_NEAR(all_reduce(64 * kMiB, {2, 8}), 25 + 28 + 67108.864 / 266.7, 1e-9);
  EXPECT_NEAR(all_reduce(64 * kMiB, {2, 4}), 25 + 28 + 67108.864 / 160, 1e-9);
  EXPECT_NEAR(all_reduce(64 * kMiB, {4, 4}), 25 + 2 * 28 + 67108.864 / 80, 1e-9);
  // Numbers of nodes between the measured ones and above them.
  EXPECT_NEAR(model.Microseconds(Collective::kAllToAll, 300'000'000, {3, 1}),
              37 + 5 * std::log2(1.5) + 200'000 / (50 * (1 - 0.44 / 3)), 1e-9);
  EXPECT_NEAR(model.Microseconds(Collective::kAllToAll, 0, {64, 8}), 580, 1e-9);
}

// What AutoParallel's cost model says of H100 nodes, to a thousandth of a microsecond: where it parts
// from the closed forms (sums over two nodes, the smallest and the largest messages), and for numbers
// of nodes that were not measured.
TEST(LinkModelTest, FollowsThePublishedFormulas) {
  const LinkModel model(WithPublishedFormulas(Model("h100").cluster()));
  struct Golden {
    Collective kind;
    std::int64_t bytes;
    GroupSpan span;
    double us;
  };
  const Golden goldens[] = {
      {Collective::kAllReduce, 4718592, {2, 1}, 66.402},
      {Collective::kAllReduce, 1024 * kMiB, {2, 2}, 5116.325},
      {Collective::kAllReduce, 1024 * kMiB, {32, 2}, 26087.173},
      {Collective::kAllGather, 2805, {4, 8}, 55.994},
      {Collective::kAllGather, 16 * kMiB, {3, 8}, 230.300},
      {Collective::kReduceScatter, kMiB, {6, 1}, 235.843},
      {Collective::kAllGather, 8 * kMiB, {64, 1}, 13134.416},
      {Collective::kAllReduce, 16 * kMiB, {3, 8}, 167.289},
      {Collective::kAllReduce, kMiB, {3, 1}, 66.962},
      {Collective::kAllReduce, 256 * kMiB, {12, 4}, 2778.831},
      {Collective::kAllReduce, 262144, {64, 8}, 53.465},
      {Collective::kAllReduce, 4096 * kMiB, {64, 2}, 85504.057},
      {Collective::kAllToAll, kMiB, {3, 4}, 86.311},
      {Collective::kAllToAll, 64 * kMiB, {64, 8}, 1760.002},
  };
  for (const Golden& golden : goldens) {
    EXPECT_NEAR(model.Microseconds(golden.kind, golden.bytes, golden.span), golden.us, 1e-3)
        << golden.bytes << " bytes on " << golden.span.nodes << "x" << golden.span.ranks_per_node;
  }
}

// A100 nodes without switches fit the same closed forms: within a node a ring of 87.7 GB/s with
// 3.4 us per step. With two nodes NCCL's model takes that bandwidth for the network as well.
constexpr const char* kA100 = R"(
[cluster]
name = "A100"
generation = "ampere"
gpus_per_node = 8
[all_gather.node]
ranks = [2, 4, 8]
latency_us = [11.8, 18.6, 32.2]
bandwidth_gb_per_s = [175.4, 116.933333, 100.228571]
[all_gather.ring]
base_latency_us = [6.6, 14.0, 8.4]
gpu_hop_latency_us = [1.0, 1.9, 3.4]
node_hop_latency_us = [2.7, 4.0, 14.0]
lone_rank_hop_latency_us = [5.0, 8.5, 14.0]
node_latency_us = 4.7
node_latency_exponent = 0.65
large_message_latency_factor = 1.0
large_message_bytes_per_rank = 768
rank_bandwidth_gb_per_s = 87.7
node_bandwidth_gb_per_s = 87.7
protocol_share = [0.5, 0.92, 1.0]
protocol_limit_gb_per_s = [20.4, 240.0, 240.0]
two_node_protocol_limit_gb_per_s = [39.0, 240.0, 240.0]
bandwidth_step_gb_per_s = 0.0
ramp_full_nodes_only = false
ramp_deepening = 0.2
ramp = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.1, 0.18, 0.3, 0.43, 0.63, 0.55, 0.78, 0.93, 1]
[all_reduce.node]
ranks = [2, 4, 8]
latency_us = [15.2, 28.8, 56.0]
bandwidth_gb_per_s = [87.7, 58.466667, 50.1142857]
[all_reduce.ring]
base_latency_us = [6.6, 14.0, 8.4]
gpu_hop_latency_us = [1.0, 1.9, 3.4]
node_hop_latency_us = [2.7, 4.0, 14.0]
lone_rank_hop_latency_us = [5.0, 8.5, 14.0]
node_latency_us = 4.7
node_latency_exponent = 0.65
large_message_latency_factor = 1.4
large_message_bytes_per_rank = 768
rank_bandwidth_gb_per_s = 87.7
node_bandwidth_gb_per_s = 87.7
protocol_share = [0.5, 0.92, 1.0]
protocol_limit_gb_per_s = [20.4, 240.0, 240.0]
two_node_protocol_limit_gb_per_s = [39.0, 240.0, 240.0]
bandwidth_step_gb_per_s = 0.0
ramp_full_nodes_only = false
ramp_deepening = 0.2
ramp = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.1, 0.18, 0.3, 0.43, 0.63, 0.55, 0.78, 0.93, 1]
[all_to_all.node]
ranks = [2, 4, 8]
latency_us = [15.2, 22.0, 35.6]
bandwidth_gb_per_s = [61.39, 61.39, 61.39]
[all_to_all.network]
nodes = [2]
latency_us = [25.8]
rank_bandwidth_gb_per_s = 30.695
node_loss = 0.0
ramp = [1]
)";

TEST(LinkModelTest, A100NodesFitTheSameForms) {
  const LinkModel model(ParseCluster(kA100, "a100.toml"));
  ExpectRow(model, {"a100", {1, 8}, 64, 701.8, 1395.1, 1128.8});
  ExpectRow(model, {"a100", {2, 1}, 64, 414.4, 829.3, 1119.0});
}

// H200 has the links of an H100.
TEST(LinkModelTest, H200IsAsFastAsH100) {
  const LinkModel h100 = Model("h100");
  const LinkModel h200 = Model("h200");
  for (const Collective kind : kKinds) {
    for (const GroupSpan span : {GroupSpan{1, 8}, GroupSpan{4, 1}, GroupSpan{16, 8}}) {
      EXPECT_EQ(h200.Microseconds(kind, 3 * kMiB, span), h100.Microseconds(kind, 3 * kMiB, span));
    }
  }
}

// Latency of a B200 is that of an H100; what is left when it is subtracted takes half the time.
TEST(LinkModelTest, B200HasTwiceTheBandwidth) {
  const LinkModel h100 = Model("h100");
  const LinkModel b200 = Model("b200");
  for (const Collective kind : {Collective::kAllGather, Collective::kAllReduce}) {
    for (const GroupSpan span : {GroupSpan{1, 8}, GroupSpan{2, 8}, GroupSpan{8, 4}}) {
      const std::int64_t large = 65536 * kMiB;  // the same algorithm and protocol on both
      const double slow = h100.Microseconds(kind, 2 * large, span);
      const double fast = b200.Microseconds(kind, 2 * large, span);
      EXPECT_NEAR((fast - b200.Microseconds(kind, large, span)) /
                      (slow - h100.Microseconds(kind, large, span)),
                  0.5, 1e-9);
      EXPECT_GT(fast, slow / 2);
    }
  }
  EXPECT_NEAR(b200.Microseconds(Collective::kAllToAll, 675'000'000, {1, 8}), 1050, 1e-6);
}

TEST(LinkModelTest, OneRankTakesNoTime) {
  for (const char* name : {"h100", "ethernet"}) {
    const LinkModel model = Model(name);
    for (const Collective kind : kKinds) EXPECT_EQ(model.Microseconds(kind, kMiB, {1, 1}), 0);
    EXPECT_EQ(model.Microseconds(Collective::kWait, kMiB, {2, 8}), 0);
    EXPECT_EQ(model.Microseconds(Collective::kNone, kMiB, {2, 8}), 0);
  }
}

// Latency is what zero bytes take, and the resource says whether the group leaves its node.
TEST(LinkModelTest, SplitsTheTimeOfACollective) {
  const LinkModel model(Cluster{"x", "y", 8, SimpleLinks{{10, 1}, {100, 0.5}}});
  EXPECT_EQ(model.Time(Collective::kAllGather, 7'000'000, {1, 7}),
            (CollectiveTime{60, 6000, LinkResource::kNode}));
  EXPECT_EQ(model.Time(Collective::kAllToAll, 8'000'000, {2, 4}),
            (CollectiveTime{160, 32000, LinkResource::kNetwork}));
  EXPECT_EQ(model.Time(Collective::kAllToAll, 0, {2, 4}),
            (CollectiveTime{160, 0, LinkResource::kNetwork}));
  EXPECT_EQ(model.Time(Collective::kAllGather, 1, {1, 1}), CollectiveTime{});
  EXPECT_EQ(model.Time(Collective::kWait, 1, {2, 4}), CollectiveTime{});
}

std::vector<GroupSpan> ManySpans() {
  std::vector<GroupSpan> spans = {{2, 1, 7}, {3, 2, 1}};
  for (const std::int64_t nodes : {1, 2, 3, 4, 7, 8, 16, 31, 64, 256}) {
    for (const std::int64_t ranks : {1, 2, 3, 4, 6, 8}) {
      if (nodes * ranks > 1) spans.push_back({nodes, ranks});
    }
  }
  return spans;
}

class LinkModelPropertyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LinkModelPropertyTest, TimeIsPositiveAndNeverFallsAsMessagesGrow) {
  const LinkModel model = Model(GetParam());
  for (const GroupSpan& span : ManySpans()) {
    for (const Collective kind : kKinds) {
      double before = 0;
      std::int64_t before_bytes = -1;
      for (double size = 0; size < 1e13; size = size * 1.07 + 1) {
        const auto bytes = static_cast<std::int64_t>(size);
        const double time = model.Microseconds(kind, bytes, span);
        ASSERT_TRUE(std::isfinite(time) && time > 0);
        const CollectiveTime split = model.Time(kind, bytes, span);
        ASSERT_GE(split.transfer_us, 0);
        ASSERT_DOUBLE_EQ(split.total_us(), time);
        ASSERT_GE(time, before * (1 - 1e-12))
            << "collective " << static_cast<int>(kind) << " of " << bytes << " bytes on "
            << span.nodes << "x" << span.ranks_per_node << " is faster than of " << before_bytes;
        before = time;
        before_bytes = bytes;
      }
    }
  }
}

// Twice as many nodes with the same bytes on every rank. In all-reduce and all-to-all these are
// then split into more and smaller parts. Where parts are so small that the ramps count, more nodes
// may well be faster (each ramp is 1 again below its smallest size, and that of all-to-all is
// shallower with more nodes), so messages here are large enough for parts of 1 MiB and more.
// Bandwidths are known to 0.1 of some 50 GB/s, which is what times may fall by.
TEST_P(LinkModelPropertyTest, MoreNodesAreNotFaster) {
  const LinkModel model = Model(GetParam());
  constexpr std::int64_t kMaxNodes = 256;
  constexpr double kResolution = 0.1 / 50;
  for (const Collective kind : kKinds) {
    const bool gathers = kind == Collective::kAllGather || kind == Collective::kReduceScatter;
    for (const std::int64_t ranks : {1, 2, 4, 8}) {
      for (const std::int64_t part : {1 * kMiB, 16 * kMiB, 64 * kMiB, 1024 * kMiB}) {
        double before = 0;
        for (std::int64_t nodes = 2; nodes <= kMaxNodes; nodes *= 2) {
          const std::int64_t bytes = part * ranks * (gathers ? nodes : kMaxNodes);
          const double time = model.Microseconds(kind, bytes, {nodes, ranks});
          EXPECT_GE(time, before * (1 - kResolution))
              << "collective " << static_cast<int>(kind) << ", parts of " << part << " bytes, "
              << nodes << "x" << ranks;
          before = time;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Clusters, LinkModelPropertyTest,
                         ::testing::Values("h100", "h200", "b200", "ethernet"));

// Each rank passes a seventh of 7 MB on, six times; two rounds for a sum; a broadcast passes all.
TEST(LinkModelTest, SimpleLinksWithinANode) {
  const LinkModel model(Cluster{"x", "y", 8, SimpleLinks{{10, 1}, {100, 0.5}}});
  const GroupSpan span{1, 7};
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kAllGather, 7'000'000, span), 60 + 6000);
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kReduceScatter, 7'000'000, span), 60 + 6000);
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kAllReduce, 7'000'000, span), 120 + 12000);
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kBroadcast, 7'000'000, span), 60 + 7000);
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kAllToAll, 7'000'000, span), 60 + 6000);
}

// Two nodes of four: six steps within nodes and one between them; the network is the slower link.
TEST(LinkModelTest, SimpleLinksAcrossNodes) {
  const LinkModel model(Cluster{"x", "y", 8, SimpleLinks{{10, 1}, {100, 0.5}}});
  const GroupSpan span{2, 4};
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kAllGather, 8'000'000, span), 160 + 14000);
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kBroadcast, 8'000'000, span), 160 + 16000);
  // Four ranks send four of eight parts each through one link.
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kAllToAll, 8'000'000, span), 160 + 32000);
}

// In a broadcast all bytes pass every link, in an all-gather only the other ranks' shards do.
TEST(LinkModelTest, BroadcastIsAnAllGatherOfMoreBytes) {
  const LinkModel model = Model("h100");
  EXPECT_DOUBLE_EQ(model.Microseconds(Collective::kBroadcast, 7 * kMiB, {1, 8}),
                   model.Microseconds(Collective::kAllGather, 8 * kMiB, {1, 8}));
}

TEST(LinkModelTest, RefusesNonsense) {
  const LinkModel model = Model("ethernet");
  EXPECT_THROW(model.Microseconds(Collective::kAllGather, -1, {1, 8}), Error);
  EXPECT_THROW(model.Microseconds(Collective::kAllGather, 1, {0, 8}), Error);
  EXPECT_THROW(model.Microseconds(Collective::kAllGather, 1, {1, 0}), Error);
}

GroupSpan Of(std::vector<std::int64_t> ranks, std::int64_t gpus_per_node) {
  return SpanOf(ranks, gpus_per_node);
}

TEST(GroupSpanTest, CountsNodes) {
  EXPECT_EQ(Of({5}, 8), (GroupSpan{1, 1}));
  EXPECT_EQ(Of({0, 1, 2, 3}, 8), (GroupSpan{1, 4}));
  EXPECT_EQ(Of({0, 8, 16, 24}, 8), (GroupSpan{4, 1}));
  EXPECT_EQ(Of({9, 0, 8, 1}, 8), (GroupSpan{2, 2}));
  EXPECT_EQ(Of({6, 7, 8, 9}, 8), (GroupSpan{2, 2}));
}

// The node with the fewest ranks says how many there are per node; none is lost.
TEST(GroupSpanTest, UnevenGroups) {
  const GroupSpan span = Of({0, 1, 2, 3, 4, 8, 16, 17}, 8);
  EXPECT_EQ(span, (GroupSpan{3, 1, 5}));
  EXPECT_EQ(span.ranks(), 8);
}

TEST(GroupSpanTest, RefusesWhatIsNoGroup) {
  EXPECT_THROW(Of({}, 8), Error);
  EXPECT_THROW(Of({1, 2, 1}, 8), Error);
  EXPECT_THROW(Of({-1, 2}, 8), Error);
  EXPECT_THROW(Of({1, 2}, 0), Error);
}

TEST(AllToAllVolumeTest, OneRankCountsWhatItSendsOrReceives) {
  const std::vector<std::int64_t> sent = {1, 2, 3};
  const std::vector<std::int64_t> received = {4, 0, 5};
  EXPECT_EQ(AllToAllVolume(sent, received), 9);
  EXPECT_EQ(AllToAllVolume(received, sent), 9);
  EXPECT_EQ(AllToAllVolume({}, {}), 0);
}

TEST(AllToAllVolumeTest, TheBusiestRankCounts) {
  // Rank 2 receives 3 + 5 + 1; nobody sends more than 8.
  const std::vector<std::int64_t> receiver = {0, 0, 3, 1, 0, 5, 7, 0, 1};
  EXPECT_EQ(BusiestAllToAllVolume(receiver, 3), 9);
  const std::vector<std::int64_t> sender = {6, 4, 0, 1};
  EXPECT_EQ(BusiestAllToAllVolume(sender, 2), 10);
  EXPECT_THROW(BusiestAllToAllVolume(sender, 3), Error);
}

// Of 24 ranks as 4 groups of 6 neighbours on nodes of 8 GPUs, the first and the last are in one node,
// the others across two, with 4 and 2 ranks or with 2 and 4. Each is told the same.
TEST(SlowestSpanTest, GroupsOfOneAxisAreToldTheSame) {
  for (std::int64_t first : {0, 6, 12, 18}) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t i = 0; i < 6; ++i) ranks.push_back(first + i);
    EXPECT_EQ(SlowestSpan(ranks, 24, 8), (GroupSpan{2, 2, 2})) << first;
  }
  EXPECT_EQ(Of({0, 1, 2, 3, 4, 5}, 8), (GroupSpan{1, 6}));
  // As many nodes; fewer ranks on one of them are slower.
  EXPECT_EQ(SlowestSpan(std::vector<std::int64_t>{3, 4, 5}, 12, 4), (GroupSpan{2, 1, 1}));
  EXPECT_EQ(SlowestSpan(std::vector<std::int64_t>{17}, 24, 8), (GroupSpan{1, 1}));
}

// Against all groups, found one by one as those ranks that share everything but the coordinate.
TEST(SlowestSpanTest, IsThatOfTheSlowestOfAllGroups) {
  int uneven = 0;
  for (std::int64_t world = 1; world <= 36; ++world) {
    for (std::int64_t stride = 1; stride <= world; ++stride) {
      for (std::int64_t size = 1; stride * size <= world; ++size) {
        if (world % (stride * size) != 0) continue;
        std::vector<std::vector<std::int64_t>> groups(static_cast<std::size_t>(world));
        for (std::int64_t rank = 0; rank < world; ++rank) {
          const std::int64_t first = rank - rank / stride % size * stride;
          groups[static_cast<std::size_t>(first)].push_back(rank);
        }
        std::erase_if(groups, [](const auto& group) { return group.empty(); });
        for (std::int64_t gpus = 1; gpus <= 9; ++gpus) {
          GroupSpan slowest = SpanOf(groups[0], gpus);
          for (const auto& group : groups) {
            const GroupSpan span = SpanOf(group, gpus);
            if (span.nodes > slowest.nodes ||
                (span.nodes == slowest.nodes && span.ranks_per_node < slowest.ranks_per_node)) {
              slowest = span;
            }
          }
          uneven += slowest != SpanOf(groups[0], gpus);
          for (const auto& group : groups) {
            ASSERT_EQ(SlowestSpan(group, world, gpus), slowest)
                << world << " ranks, " << size << " ranks " << stride << " apart, from " << group[0]
                << ", " << gpus << " GPUs on a node";
          }
        }
      }
    }
  }
  EXPECT_GT(uneven, 100);  // worlds in which groups of one axis are not alike
}

// Of a mesh of 2 x 4 x 4 ranks: along the first and the last axis, in any order, wherever it begins.
TEST(SlowestSpanTest, GroupsAlongSeveralAxesAreToldTheSame) {
  auto group = [](std::int64_t first) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t inner = 0; inner < 4; ++inner) {
      for (std::int64_t outer = 0; outer < 2; ++outer) ranks.push_back(first + 16 * outer + inner);
    }
    return ranks;
  };
  for (std::int64_t first : {0, 4, 8, 12}) {
    EXPECT_EQ(SlowestSpan(group(first), 32, 8), (GroupSpan{2, 4})) << first;
  }
  EXPECT_EQ(SlowestSpan(std::vector<std::int64_t>{3, 2, 1, 0}, 8, 8), (GroupSpan{1, 4}));
}

TEST(SlowestSpanTest, RefusesWhatIsNoGroupAlongAnAxis) {
  auto slowest = [](std::vector<std::int64_t> ranks, std::int64_t world) {
    return SlowestSpan(ranks, world, 8);
  };
  EXPECT_THROW(slowest({}, 8), Error);
  EXPECT_THROW(slowest({1, 2}, 8), Error);          // between two groups
  EXPECT_THROW(slowest({0, 1, 2}, 8), Error);       // does not divide the world
  EXPECT_THROW(slowest({8, 9, 10, 11}, 8), Error);  // beyond the world
}

}  // namespace
}  // namespace gt::link_model_test
