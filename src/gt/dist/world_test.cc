// Groups and the backends that stand for ranks that are not there.
#include "gt/dist/world.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/dist/collectives.h"
#include "gt/job/config.h"

namespace gt::world_test {
namespace {

Config Pretended(CommBackend backend, int64_t ranks) {
  Config config;
  config.device = DeviceChoice::kCpu;
  config.comm.backend = backend;
  config.ranks = ranks;
  return config;
}

Group Everybody(const std::string& name, const World& world) {
  Group group;
  group.name = name;
  group.index = world.rank();
  for (int64_t rank = 0; rank < world.size(); ++rank) group.ranks.push_back(rank);
  return group;
}

double Milliseconds(const std::function<void()>& body) {
  auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// The fastest of some tries: a busy machine can only make things slower.
double FastestMilliseconds(const std::function<void()>& body) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) fastest = std::min(fastest, Milliseconds(body));
  return fastest;
}

TEST(WorldTest, TwoGroupsOverTheSameRanksAreTwoQueues) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  Config config = Pretended(CommBackend::kEmulated, 32);
  config.comm.emulated_time_scale = 200;  // long against everything that is not waiting
  World::Run(config, [](World& world) {
    const Group& first = world.MakeGroup(Everybody("first", world));
    const Group& second = world.MakeGroup(Everybody("second", world));
    EXPECT_NE(&first, &second);
    at::Tensor x = at::ones({64});
    auto start = [&x](const Group& group) {
      std::vector<at::Tensor> tensors = {x};
      return c10d::resolve_process_group(group.name)->allreduce(tensors);
    };
    for (const Group* group : {&first, &second}) start(*group)->wait();  // starts their threads
    double one = FastestMilliseconds([&] { start(first)->wait(); });
    double same = FastestMilliseconds([&] {
      auto a = start(first), b = start(first);
      a->wait();
      b->wait();
    });
    double apart = FastestMilliseconds([&] {
      auto a = start(first), b = start(second);
      a->wait();
      b->wait();
    });
    EXPECT_GT(one, 2.0) << "the collective takes no time: there is nothing to compare";
    EXPECT_GT(same, 1.9 * one);
    EXPECT_LT(apart, 1.5 * one);
  });
}

TEST(WorldTest, RanksReduceNumbersOfTheirOwn) {
  Config config;
  config.device = DeviceChoice::kCpu;
  config.ranks = 3;
  World::Run(config, [](World& world) {
    const auto rank = static_cast<double>(world.rank());
    EXPECT_EQ(world.Sum({rank, 1.0}), (std::vector<double>{3, 3}));
    EXPECT_EQ(world.Max({rank, -rank, 0.25}), (std::vector<double>{2, 0, 0.25}));
  });
  // Of ranks that are not there nothing is known.
  World::Run(Pretended(CommBackend::kFake, 8),
             [](World& world) { EXPECT_EQ(world.Max({1.5}), std::vector<double>{1.5}); });
}

// The option reaches the links: two groups share them, or do not.
TEST(WorldTest, ContentionIsAnOption) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  for (const bool contention : {false, true}) {
    Config config = Pretended(CommBackend::kEmulated, 16);
    config.comm.cluster = "slow";
    config.comm.contention = contention;
    constexpr int64_t kFloats = 4'000'000;  // 150 ms at 0.1 GB/s
    World::Run(config, [&](World& world) {
      const Group& first = world.MakeGroup(Everybody("first", world));
      const Group& second = world.MakeGroup(Everybody("second", world));
      std::vector<at::Tensor> parts = {at::ones({kFloats / 16}), at::ones({kFloats / 16})};
      std::vector<at::Tensor> wholes = {at::empty({kFloats}), at::empty({kFloats})};
      auto start = [&](const Group& group, size_t i) {
        return c10d::resolve_process_group(group.name)->_allgather_base(wholes[i], parts[i]);
      };
      const double fastest = FastestMilliseconds([&] {
        auto a = start(first, 0), b = start(second, 1);
        a->wait();
        b->wait();
      });
      if (contention) {
        EXPECT_GE(fastest, 300);
      } else {
        EXPECT_LT(fastest, 290) << "as long as if they shared the links";
      }
    });
  }
}

// Sizes and values of what imitated peers send.
TEST(WorldTest, EmulatedPeersSendWhatThisRankHas) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  Config config = Pretended(CommBackend::kEmulated, 4);
  config.comm.emulated_time_scale = 0;
  config.comm.pretended_rank = 1;
  World::Run(config, [](World& world) {
    const Group& all = world.MakeGroup(Everybody("all", world));
    at::Tensor x = at::arange(8, at::kFloat).view({4, 2});
    EXPECT_TRUE(at::equal(AllGather(x, &all), x.repeat({4, 1})));
    EXPECT_TRUE(at::equal(ReduceScatter(x, &all), x.narrow(0, 1, 1)));
    EXPECT_TRUE(at::equal(AllReduceSum(x, &all), x));
    at::Tensor counts = at::arange(8, at::kLong);
    EXPECT_TRUE(at::equal(AllToAll(counts, {2, 2, 2, 2}, {2, 2, 2, 2}, &all),
                          at::tensor({2, 3, 2, 3, 2, 3, 2, 3}, at::kLong)));
    EXPECT_EQ(AllToAll(x, {3, 0, 2, 1}, {1, 1, 1, 1}, &all).size(0), 6);
    EXPECT_EQ(AllToAll(x, {0, 0, 0, 0}, {1, 1, 1, 1}, &all).size(0), 0);
  });
}

// Parameters travel in the type of the computation, gradients in float32.
TEST(WorldTest, CastsComeBeforeGathersAndSumsAreInFloat32) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  Config config = Pretended(CommBackend::kFake, 64);
  config.model.name = "deepseek_v3";
  config.model.flavor = "tiny";
  config.training.seq_len = 32;
  config.training.local_batch_size = 1;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.parallelism.expert_parallel_degree = 8;
  config.parallelism.data_parallel_replicate_degree = 2;
  config.parallelism.fsdp_reshard_after_forward = ReshardAfterForward::kNever;
  config.compile.fsdp_bucketing = false;
  World::Run(config, [&](World& world) {
    Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    CompiledStep captured = Compile(
        {.model = *model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world});
    int gathers = 0, scatters = 0, reduces = 0;
    for (const Node* node : captured.graph->nodes()) {
      Collective kind = node->op().collective;
      if (kind == Collective::kAllGather) {
        ++gathers;
        EXPECT_EQ(node->operand(0)->type().dtype, DType::kBFloat16);
        EXPECT_NE(node->meta().phase, Phase::kBackward);
      }
      bool sums = kind == Collective::kReduceScatter || kind == Collective::kAllReduce;
      if (sums) {
        ++(kind == Collective::kAllReduce ? reduces : scatters);
        EXPECT_EQ(node->operand(0)->type().dtype, DType::kFloat32);
        EXPECT_EQ(node->meta().phase, Phase::kBackward);
        EXPECT_FALSE(node->meta().module.empty());
      }
    }
    auto parameters = static_cast<int>(model->parameters().size());
    EXPECT_EQ(gathers, parameters);
    EXPECT_EQ(scatters, parameters);
    EXPECT_EQ(reduces, parameters) << "over the replicas";
  });
}

}  // namespace
}  // namespace gt::world_test
