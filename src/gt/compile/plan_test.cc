// Plans that ranks make: the same on every one, followed when loads change, and none where there is
// nothing to plan.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/overlap_choice.h"
#include "gt/compile/step_compiler.h"
#include "gt/dist/agreement.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/sim/routing_loads.h"
#include "gt/train/job_test_util.h"

namespace gt::plan_test {
namespace {

namespace fs = std::filesystem;

Config SparseJob(int64_t ranks, int64_t ep) {
  Config config;
  config.model.name = "deepseek_v3";
  config.model.flavor = "tiny";
  config.training.seq_len = 48;
  config.training.local_batch_size = 4;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.ranks = ranks;
  config.parallelism.expert_parallel_degree = ep;
  config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
  return config;
}

// What all ranks must have in common: launches and waits in order.
std::string OrderOnRank(Config config, int64_t rank) {
  config.comm.backend = CommBackend::kFake;
  config.comm.pretended_rank = rank;
  std::string order;
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    CompiledStep captured = Compile({.model = *model,
                                     .config = config,
                                     .device = c10::Device(c10::kCUDA, 0),
                                     .mesh = mesh,
                                     .world = &world});
    order = CollectiveSequence(*captured.graph);
  });
  return order;
}

struct WorldCase {
  std::string name;
  Config config;
};

std::vector<WorldCase> Worlds() {
  std::vector<WorldCase> worlds;
  // 24 = 6 x 4 ranks on nodes of 8: groups of 6 neighbours are in one node or across two.
  worlds.push_back({"24_ranks_tp_and_replicas", SparseJob(24, 4)});
  worlds.back().config.parallelism.data_parallel_replicate_degree = 2;
  worlds.back().config.parallelism.tensor_parallel_degree = 2;
  worlds.push_back({"24_ranks_cp6", SparseJob(24, 4)});
  worlds.back().config.parallelism.context_parallel_degree = 6;
  worlds.push_back({"cp2_ep4", SparseJob(8, 4)});
  worlds.back().config.parallelism.context_parallel_degree = 2;
  // Shards of 3 ranks do not divide evenly.
  worlds.push_back({"uneven_hsdp", SparseJob(12, 2)});
  worlds.back().config.parallelism.data_parallel_replicate_degree = 2;
  worlds.push_back({"uneven_fsdp", SparseJob(6, 2)});
  return worlds;
}

TEST(Plans, AreTheSameOnEveryRank) {
  for (const auto& [name, config] : Worlds()) {
    const std::string first = OrderOnRank(config, 0);
    for (int64_t rank = 1; rank < config.ranks; ++rank) {
      ASSERT_EQ(OrderOnRank(config, rank), first) << name << ", rank " << rank;
    }
  }
}

class FollowedLoads : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("gt_plan_test_{}", getpid());
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    WriteLearnableRows(folder_ / "rows.npy", 256, 48);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Config Job(const std::string& name) const {
    Config config = SparseJob(4, 4);
    config.device = DeviceChoice::kCpu;
    config.training.dataset_path = {(folder_ / "rows.npy").string()};
    config.training.steps = 5;
    config.training.deterministic = true;
    config.metrics.hashes = true;
    config.checkpoint.last_save_in_hf = false;
    config.dump_folder = (folder_ / name).string();
    config.overwrite = true;
    config.compile.ep_overlap.disable_early_grad_accumulation = true;
    return config;
  }

  fs::path folder_;
};

// A plan is made for even loads; experts get others. The order changes on all ranks alike, and no bit
// does.
TEST_F(FollowedLoads, ANewOrderKeepsTheBits) {
  for (const char* load : {"zipf:1.2", "router"}) {
    Config eager = Job("eager");
    eager.debug.moe_load = load;
    eager.compile.mode = CompileMode::kEager;
    eager.compile.ep_overlap.strategy = ChunkStrategy::kEager;
    eager.compile.ep_overlap.disable_early_grad_accumulation = false;
    const JobOutcome expected = RunJob(eager);
    Config config = Job("followed");
    config.debug.moe_load = load;
    config.compile.ep_overlap.replan_interval = 1;
    EXPECT_EQ(RunJob(config), expected) << load;
    std::ifstream metrics(config.dump_folder + "/metrics.jsonl");
    const std::string text(std::istreambuf_iterator<char>(metrics), {});
    EXPECT_NE(text.find("load_imbalance"), std::string::npos) << text;
  }
}

// What the schedule gets to see is what was measured.
TEST(Replanning, PlansForTheLoadsThatItIsGiven) {
  Config config = SparseJob(8, 8);
  config.comm.backend = CommBackend::kFake;
  config.model.flavor = "16B";  // of a small model the host's launches are all that counts
  config.model.n_layers = 3;
  config.model.vocab_size = 32000;
  config.training.seq_len = 2048;
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    CompiledStep captured = Compile({.model = *model,
                                     .config = config,
                                     .device = c10::Device(c10::kCUDA, 0),
                                     .mesh = mesh,
                                     .world = &world});
    ASSERT_NE(captured.replanner, nullptr);
    RoutingLoads loads;
    for (int layer = 1; layer < 3; ++layer) {
      loads.modules[fmt::format("layers.{}.moe", layer)] = {.mean = 1, .max = 4};
    }
    std::unique_ptr<Graph> heavy = captured.replanner->Unordered();
    ApplyLoads(*heavy, loads);
    captured.replanner->Order(*heavy);
    EXPECT_GT(captured.replanner->Predict(*heavy)->step, captured.predicted->step);
    std::unique_ptr<Graph> even = captured.replanner->Unordered();
    captured.replanner->Order(*even);
    EXPECT_EQ(even->Hash(), captured.graph->Hash()) << "the plan for even loads again";
    // Nodes are not counted: the order decides what is next to each other, and so what is fused.
    EXPECT_EQ(even->outputs().size(), heavy->outputs().size());
  });
}

// auto says no where there is nothing to cut, instead of failing.
TEST(Automatic, ChoosesNoChunksWhereThereIsNothingToCut) {
  auto reason = [](Config config) {
    config.compile.ep_overlap.enabled = AutoSwitch::kAuto;
    config.comm.backend = CommBackend::kFake;
    std::string text;
    World::Run(config, [&](World& world) {
      const Mesh mesh(config.parallelism, world.size(), world.rank());
      ModelPtr model = BuildConfiguredModel(config, world, mesh);
      const CompiledStep captured = Compile(
          {.model = *model, .config = config, .device = c10::kCPU, .mesh = mesh, .world = &world});
      EXPECT_FALSE(captured.chunked);
      text = captured.choice.at(0);
    });
    return text;
  };
  Config dense = SparseJob(4, 1);
  dense.model.name = "llama3";
  EXPECT_NE(reason(dense).find("no experts"), std::string::npos);
  EXPECT_NE(reason(SparseJob(4, 1)).find("not spread"), std::string::npos);
  Config one_row = SparseJob(4, 4);
  one_row.training.local_batch_size = 1;
  one_row.compile.ep_overlap.module_fqn = "layers.1";
  EXPECT_NE(reason(one_row).find("chunks: no"), std::string::npos);
  Config along_sequence = SparseJob(4, 4);
  along_sequence.compile.ep_overlap.module_fqn = "layers.1";
  along_sequence.compile.ep_overlap.chunk_dim = ChunkDim::kSeq;
  const std::string attention = reason(along_sequence);
  EXPECT_NE(attention.find("no module could be cut"), std::string::npos) << attention;
  EXPECT_NE(attention.find("use --compile.ep_overlap.module_fqn 'layers.*.moe'"), std::string::npos)
      << attention;
  Config without_passes = SparseJob(4, 4);
  without_passes.compile.enable_passes = false;
  EXPECT_NE(reason(without_passes).find("enable_passes is false"), std::string::npos);
  Config eager_chunks = SparseJob(4, 4);
  eager_chunks.compile.ep_overlap.strategy = ChunkStrategy::kEager;
  EXPECT_NE(reason(eager_chunks).find("cuts no graph"), std::string::npos);
}

// A batch of one sequence leaves the sequence to be cut, and experts alone.
TEST(Automatic, CutsSequencesWhereTheBatchIsOne) {
  Config config = SparseJob(32, 32);
  config.model.flavor = "16B";
  config.model.n_layers = 4;
  config.model.vocab_size = 32000;
  config.training.local_batch_size = 1;
  config.training.seq_len = 8192;
  config.compile.ep_overlap.enabled = AutoSwitch::kAuto;
  config.comm.backend = CommBackend::kFake;
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    const OverlapChoice choice = ChooseOverlap({.model = *model,
                                                .config = config,
                                                .device = c10::Device(c10::kCUDA, 0),
                                                .mesh = mesh,
                                                .world = &world});
    EXPECT_EQ(choice.overlap.enabled, AutoSwitch::kTrue) << choice.reasons.at(0);
    EXPECT_EQ(choice.overlap.chunk_dim, ChunkDim::kSeq);
    EXPECT_EQ(choice.overlap.module_fqn, "layers.*.moe");
  });
}

}  // namespace
}  // namespace gt::plan_test
