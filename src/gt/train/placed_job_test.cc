// Jobs that train under a plan: against one rank on the same batches, policy against policy, and from one
// plan to another.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/sim/routing_loads.h"
#include "gt/storage/file_writer.h"
#include "gt/testing/slow_tests.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/job_test_util.h"
#include "gt/train/placed_job_test_util.h"

namespace gt::placed_job_test {
namespace {

using placement::AxisUse;
using placement::DeviceMesh;

constexpr int64_t kLength = 16;

class PlacedJobTest : public ::testing::Test {
 protected:
  PlacedJobTest() { WriteLearnableRows(Path("rows.npy"), 4096, kLength); }

  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }

  // `rows` sequences of all ranks in every step.
  Config Job(const std::string& model, const std::string& flavor, int64_t ranks, int64_t rows = 8) {
    Config config;
    config.model.name = model;
    config.model.flavor = flavor;
    config.device = DeviceChoice::kCpu;
    config.ranks = ranks;
    config.threads = 1;
    config.training.seq_len = kLength;
    config.training.local_batch_size = rows / ranks;
    config.training.steps = 4;
    config.training.dataset_path = {Path("rows.npy")};
    config.lr_scheduler.warmup_steps = 0;
    config.metrics.hashes = true;
    config.checkpoint.last_save_in_hf = false;
    config.overwrite = true;
    config.dump_folder = Path(fmt::format("job{}", jobs_++));
    return config;
  }
  Config Placed(Config config, const std::string& mesh) {
    config.compile.enable_autoparallel = true;
    config.mesh = mesh;
    config.dump_folder = Path(fmt::format("job{}", jobs_++));
    return config;
  }

  // Trains a plan that nobody would choose. Ranks sum means of their shards at odd seeds.
  Config Randomly(Config config, const std::string& mesh, uint64_t seed) {
    config = Placed(config, mesh);
    return WithPlan(config, PlansFor(config).AtRandom(seed));
  }
  // Trains the best plan of a hand-written layout.
  Config ByHand(Config config, const std::string& mesh, std::vector<AxisUse> axes) {
    config = Placed(config, mesh);
    return WithPlan(config, PlansFor(config).ByHand(std::move(axes)));
  }
  // Trains the best plan in which rows travel to their experts along the last axis, and each rank has rows of
  // its own.
  Config SendingRows(Config config, const std::string& mesh) {
    config = Placed(config, mesh);
    return WithPlan(config, PlansFor(config).SendingRows());
  }
  Config WithPlan(Config config, const placement::Plan& plan) {
    config.compile.autoparallel_plan = Path(fmt::format("plan{}.json", jobs_));
    WriteFile(config.compile.autoparallel_plan, ToJson(plan));
    return config;
  }

  static void ExpectClose(const JobOutcome& expected, const JobOutcome& actual, double tolerance,
                          const std::string& what) {
    ASSERT_EQ(expected.losses.size(), actual.losses.size()) << what;
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      const double first = i == 0 ? 0.2 * tolerance : tolerance;
      EXPECT_NEAR(actual.losses[i], expected.losses[i], first * expected.losses[i])
          << what << ", step " << i + 1;
      EXPECT_NEAR(actual.norms[i], expected.norms[i], 10 * tolerance * expected.norms[i])
          << what << ", step " << i + 1;
    }
  }

  testing::TempFolder folder_;
  int jobs_ = 0;
};

std::string CodeOf(const Config& config) {
  try {
    Train(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST_F(PlacedJobTest, TrainsAsOneRankDoes) {
  struct Case {
    std::string model, flavor, mesh;
    int64_t ranks, rows;
  };
  for (const Case& c : {Case{"llama3", "tiny", "2x2", 4, 8}, Case{"qwen3", "tiny_moe", "4", 4, 8},
                        Case{"deepseek_v3", "tiny", "3x2", 6, 6}}) {
    const Config many = Job(c.model, c.flavor, c.ranks, c.rows);
    const JobOutcome one = RunJob(Job(c.model, c.flavor, 1, c.rows));
    ExpectClose(one, RunJob(Placed(many, c.mesh)), 1e-5, c.model + " found on " + c.mesh);
    ExpectClose(one, RunJob(Randomly(many, c.mesh, 11)), 1e-5, c.model + " random on " + c.mesh);
  }
}

// Degrees that AutoParallel itself refuses are axes like any other: replicas, contexts, three axes, tensor
// parallelism beside experts.
TEST_F(PlacedJobTest, EveryDegreeIsAnAxis) {
  struct Case {
    std::string model, flavor;
    int64_t replicas, shards, contexts, tensor, experts;
    std::vector<int64_t> mesh;
  };
  for (const Case& c : {Case{"llama3", "tiny", 1, 2, 2, 1, 1, {2, 2}},
                        Case{"llama3", "tiny", 2, 2, 1, 1, 1, {2, 2}},
                        Case{"qwen3", "tiny", 2, 1, 2, 2, 1, {2, 2, 2}},
                        Case{"qwen3", "tiny_moe", 2, 2, 1, 2, 2, {2, 2, 2}},
                        Case{"deepseek_v3", "tiny", 1, 2, 1, 2, 2, {2, 2}},
                        Case{"deepseek_v3", "tiny", 1, 1, 2, 2, 1, {2, 2}}}) {
    const std::string what = fmt::format("{} {} replicas x {} shards x {} contexts x {} tensor",
                                         c.model, c.replicas, c.shards, c.contexts, c.tensor);
    SCOPED_TRACE(what);
    constexpr int64_t kRows = 8;
    const int64_t ranks = c.replicas * c.shards * c.contexts * c.tensor;
    Config config = Job(c.model, c.flavor, ranks, kRows);
    config.parallelism.data_parallel_replicate_degree = c.replicas;
    config.parallelism.data_parallel_shard_degree = c.shards;
    config.parallelism.context_parallel_degree = c.contexts;
    config.parallelism.tensor_parallel_degree = c.tensor;
    config.parallelism.expert_parallel_degree = c.experts;
    config.training.local_batch_size = kRows / (c.replicas * c.shards);
    const JobOutcome one = RunJob(Job(c.model, c.flavor, 1, kRows));
    const Config found = Placed(config, "auto");
    ExpectClose(one, RunJob(found), 1e-5, "found");
    EXPECT_EQ(ReadPlanFile(found.dump_folder + "/plan.json").mesh, c.mesh);
    if (ranks > 4 && !testing::SlowTestsWanted()) continue;
    const std::string mesh = DeviceMesh(c.mesh).ToString();
    ExpectClose(one, RunJob(Randomly(config, mesh, 21)), 1e-5, "random");
  }
}

// The policy after the trace changes no bit of a placed step, and neither do memory policies.
TEST_F(PlacedJobTest, PoliciesAgreeBitForBit) {
  for (const char* model : {"llama3", "deepseek_v3"}) {
    Config native = Randomly(Job(model, "tiny", 4), "2x2", 5);
    const JobOutcome expected = RunJob(native);
    EXPECT_EQ(Difference(expected, RunJob(native)), "") << "run = run";
    Config backend = native;
    backend.compile.inductor_compilation = InductorCompilation::kAutoparallelBackend;
    EXPECT_EQ(Difference(expected, RunJob(backend)), "") << model;
    Config plain = native;
    plain.compile.enable_passes = false;
    EXPECT_EQ(Difference(expected, RunJob(plain)), "") << model;
  }
}

// What is recomputed is computed where its original was, and kept values that travel to the host come back:
// one plan, the same bits under every memory policy. A search of its own knows what the policy keeps.
TEST_F(PlacedJobTest, MemoryPoliciesChangeNoBit) {
  const Config one = Job("qwen3", "tiny_moe", 1), many = Job("qwen3", "tiny_moe", 4);
  Config config = Randomly(many, "2x2", 17);
  const JobOutcome expected = RunJob(config), alone = RunJob(one);
  for (MemoryPolicy policy : {MemoryPolicy::kDefault, MemoryPolicy::kEager, MemoryPolicy::kFull,
                              MemoryPolicy::kSacAndOffload}) {
    SCOPED_TRACE(EnumName(policy));
    config.compile.memory_policy = policy;
    EXPECT_EQ(Difference(expected, RunJob(config)), "");
    if (policy != MemoryPolicy::kFull && !testing::SlowTestsWanted()) continue;
    Config found = Placed(many, "2x2");
    found.compile.memory_policy = policy;
    ExpectClose(alone, RunJob(found), 1e-5, "found");
  }
}

// A policy that draws numbers again reads and sets the state of the generator, of which a plan that was made
// without the policy knows nothing.
TEST_F(PlacedJobTest, MemoryPoliciesRepeatDrawsOfAnotherPlan) {
  for (auto [model, flavor] : {std::pair{"qwen3", "tiny_moe"}, std::pair{"deepseek_v3", "tiny"}}) {
    Config many = Job(model, flavor, 4);
    many.model.dropout = 0.1;
    Config config = Randomly(many, "2x2", 17);
    const JobOutcome expected = RunJob(config);
    for (MemoryPolicy policy : {MemoryPolicy::kDefault, MemoryPolicy::kEager, MemoryPolicy::kFull,
                                MemoryPolicy::kSacAndOffload}) {
      SCOPED_TRACE(fmt::format("{}, {}", model, EnumName(policy)));
      config.compile.memory_policy = policy;
      EXPECT_EQ(Difference(expected, RunJob(config)), "");
    }
  }
}

TEST_F(PlacedJobTest, HandWrittenLayoutsGiveTheSameLosses) {
  const Config llama = Job("llama3", "tiny", 4), deepseek = Job("deepseek_v3", "tiny", 4);
  Config fsdp = llama, tp = llama, ep = deepseek;
  tp.parallelism.tensor_parallel_degree = 2;
  tp.training.local_batch_size = 4;
  ep.parallelism.expert_parallel_degree = 4;
  ExpectClose(RunJob(fsdp), RunJob(ByHand(llama, "4", {AxisUse::kShard})), 1e-6, "FSDP");
  ExpectClose(RunJob(tp), RunJob(ByHand(tp, "2x2", {AxisUse::kShard, AxisUse::kModel})), 1e-6,
              "FSDP x TP");
  ExpectClose(RunJob(ep), RunJob(ByHand(deepseek, "4", {AxisUse::kExperts})), 1e-6, "EP");
}

// Exchanges of tokens hide behind another chunk's compute without changing a bit.
TEST_F(PlacedJobTest, OverlapOfChunksChangesNoBit) {
  Config strict = ByHand(Job("deepseek_v3", "tiny", 4, 16), "4", {AxisUse::kExperts});
  strict.compile.ep_overlap.enabled = AutoSwitch::kTrue;
  strict.compile.ep_overlap.disable_early_grad_accumulation = true;
  strict.compile.ep_overlap.schedule = OverlapSchedule::kNone;
  Config hidden = strict;
  hidden.compile.ep_overlap.schedule = OverlapSchedule::kCost;
  EXPECT_EQ(Difference(RunJob(strict), RunJob(hidden)), "");
}

// Two ranks read, four have different rows: what a rank has of the batch follows from the plan.
TEST_F(PlacedJobTest, ChunksCutWhatThePlanGivesARank) {
  for (const char* mesh : {"4", "2x2"}) {
    SCOPED_TRACE(mesh);
    Config whole = Job("deepseek_v3", "tiny", 4, 16);
    whole.parallelism.tensor_parallel_degree = 2;
    whole.training.local_batch_size = 8;
    whole = SendingRows(whole, mesh);
    Config chunks = whole;
    chunks.compile.ep_overlap.enabled = AutoSwitch::kTrue;
    Config strict = chunks;
    strict.compile.ep_overlap.disable_early_grad_accumulation = true;
    strict.compile.ep_overlap.schedule = OverlapSchedule::kNone;
    Config hidden = strict;
    hidden.compile.ep_overlap.schedule = OverlapSchedule::kCost;
    const JobOutcome expected = RunJob(whole);
    ExpectClose(expected, RunJob(chunks), 1e-5, "in chunks");
    EXPECT_EQ(Difference(RunJob(strict), RunJob(hidden)), "");
    Config too_many = chunks;
    too_many.compile.ep_overlap.num_chunks = 5;
    EXPECT_NE(CodeOf(too_many).find("into 4 shards"), std::string::npos) << CodeOf(too_many);
  }
}

// A search finds a plan that can be cut into chunks also where the best one cannot: in steps as small as these,
// every rank best computes all of it. Two layers have experts.
TEST_F(PlacedJobTest, FoundPlansHaveChunks) {
  struct Case {
    const char *model, *flavor, *mesh;
    int64_t chunks;
  };
  for (const Case& tried : {Case{"deepseek_v3", "tiny", "4", 2}, {"qwen3", "tiny_moe", "2x2", 3}}) {
    SCOPED_TRACE(tried.model);
    const Config whole = Placed(Job(tried.model, tried.flavor, 4, 24), tried.mesh);
    Config chunks = Placed(whole, tried.mesh);
    chunks.compile.ep_overlap.enabled = AutoSwitch::kTrue;
    chunks.compile.ep_overlap.num_chunks = tried.chunks;
    ExpectClose(RunJob(whole), RunJob(chunks), 1e-5, "in chunks");
    // More chunks than any plan has sequences for.
    chunks.compile.ep_overlap.num_chunks = 7;
    EXPECT_NE(CodeOf(chunks), "");
  }
}

// Ranks compare what their experts get; where it is not what the step was planned for, the step is ordered
// anew, and nothing else changes.
TEST_F(PlacedJobTest, FollowsTheLoadsOfItsExperts) {
  std::string said;
  for (const char* load : {"router", "zipf:1.2", "zipf:3"}) {
    SCOPED_TRACE(load);
    Config still = Job("deepseek_v3", "tiny", 4, 16);
    still.debug.moe_load = load;
    still = SendingRows(still, "4");
    still.training.steps = 6;
    still.compile.ep_overlap.enabled = AutoSwitch::kTrue;
    still.compile.ep_overlap.replan_interval = 0;
    Config follows = still;
    follows.compile.ep_overlap.replan_interval = 2;
    follows.dump_folder = Path(fmt::format("follows {}", load));
    const JobOutcome expected = RunJob(still);
    ::testing::internal::CaptureStdout();
    const JobOutcome actual = RunJob(follows);
    said += ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(Difference(expected, actual), "");
    EXPECT_NE(ReadWholeFile(follows.dump_folder + "/metrics.jsonl").find("load_imbalance"),
              std::string::npos);
  }
  EXPECT_NE(said.find("new order: experts of the fullest rank get"), std::string::npos) << said;
}

// What routers are made to do is what a placed step is planned for.
TEST_F(PlacedJobTest, IsPlannedForGivenLoads) {
  Config config = Job("deepseek_v3", "tiny", 4, 16);
  config.debug.moe_load = "zipf:1.2";
  config = SendingRows(config, "2x2");
  config.comm.backend = CommBackend::kFake;
  std::set<double> loads;
  for (int64_t rank = 0; rank < 4; ++rank) {
    config.comm.pretended_rank = rank;
    World::Run(config, [&](World& world) {
      const Mesh mesh(config.parallelism, world.size(), world.rank());
      const ModelPtr model = BuildConfiguredModel(config, world, mesh);
      const CompiledStep step = Compile({*model, config, at::kCPU, mesh, &world});
      ASSERT_FALSE(step.loads.modules.empty());
      double sum = 0;
      for (const auto& [fqn, load] : step.loads.modules) sum += load.max;
      loads.insert(std::round(1e3 * sum / static_cast<double>(step.loads.modules.size())) / 1e3);
      const RoutingLoads hints = MeasuredLoads(*step.graph, step.graph->shapes().Hints());
      ASSERT_EQ(hints.modules.size(), step.loads.modules.size());
      for (const auto& [fqn, load] : hints.modules) {
        EXPECT_NEAR(load.max, step.loads.modules.at(fqn).max, 0.05) << fqn;
      }
    });
  }
  // Experts are spread over two ranks, twice over: one of them has the popular ones.
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_NEAR(*loads.begin() + *loads.rbegin(), 2, 2e-3);
  EXPECT_GT(*loads.rbegin(), 1.05);
}

TEST_F(PlacedJobTest, ContinuesBitForBit) {
  Config whole = Randomly(Job("qwen3", "tiny_moe", 4), "2x2", 3);
  whole.training.steps = 6;
  whole.checkpoint.enable = true;
  whole.checkpoint.interval = 3;
  whole.checkpoint.folder = Path("checkpoints");
  const JobOutcome expected = RunJob(whole);
  Config rest = whole;
  rest.checkpoint.load_step = 3;
  rest.dump_folder = Path("continued");
  EXPECT_EQ(RunJob(rest).hash, expected.hash);
}

// A search need not find the same plan again: a run that goes on has the one it began with.
TEST_F(PlacedJobTest, ContinuesWithThePlanItBeganWith) {
  Config whole = Randomly(Job("llama3", "tiny", 4), "2x2", 3);
  whole.training.steps = 6;
  whole.checkpoint.enable = true;
  whole.checkpoint.interval = 3;
  whole.checkpoint.keep_latest_k = 0;
  const JobOutcome expected = RunJob(whole);
  Config rest = whole;
  rest.compile.autoparallel_plan = "";
  rest.checkpoint.load_step = 3;
  EXPECT_EQ(RunJob(rest).hash, expected.hash);
  Config anew = rest;
  anew.dump_folder = Path("anew");
  anew.checkpoint.folder = whole.dump_folder + "/checkpoint";
  EXPECT_NE(RunJob(anew).hash, expected.hash) << "the search finds the random plan";
  // On another mesh it means nothing.
  Config other = rest;
  other.mesh = "4";
  const JobOutcome moved = RunJob(other);
  EXPECT_NEAR(moved.losses.back(), expected.losses.back(), 1e-5 * expected.losses.back());
}

TEST_F(PlacedJobTest, CheckpointsMoveBetweenPlansAndLayouts) {
  Config whole = Job("llama3", "tiny", 1);
  whole.training.steps = 6;
  const JobOutcome expected = RunJob(whole);
  std::vector<Config> ways = {Randomly(Job("llama3", "tiny", 4), "2x2", 1),
                              Randomly(Job("llama3", "tiny", 4), "4", 2), Job("llama3", "tiny", 4),
                              Job("llama3", "tiny", 1)};
  const std::string checkpoints = Path("checkpoints");
  int64_t steps = 0;
  JobOutcome last;
  for (Config& way : ways) {
    way.checkpoint.enable = true;
    way.checkpoint.folder = checkpoints;
    way.training.steps = 6;
    way.checkpoint.interval = 1;
    way.checkpoint.keep_latest_k = 0;
    way.checkpoint.load_step = steps == 0 ? -1 : steps;
    last = RunJob(way);
    ++steps;
  }
  EXPECT_NEAR(last.losses.back(), expected.losses.back(), 1e-5 * expected.losses.back());
}

TEST_F(PlacedJobTest, PlansForSomethingElseAreRefused) {
  const Config config = Randomly(Job("llama3", "tiny", 4), "2x2", 1);
  Config mesh = config;
  mesh.mesh = "4";
  EXPECT_NE(CodeOf(mesh).find("GT-E0903"), std::string::npos) << CodeOf(mesh);
  EXPECT_NE(CodeOf(mesh).find("the plan is for mesh 2x2, not for 4"), std::string::npos);
  Config ranks = config;
  ranks.ranks = 2;
  ranks.mesh = "2";
  EXPECT_NE(CodeOf(ranks).find("2x2 of 4 ranks, but the job has 2"), std::string::npos);
  Config model = config;
  model.model.name = "qwen3";
  EXPECT_NE(CodeOf(model).find("another model: it says nothing of layers.0.attention.q_norm"),
            std::string::npos)
      << CodeOf(model);
  Config deeper = config;
  deeper.model.n_layers = 3;
  EXPECT_NE(CodeOf(deeper).find("it says nothing of layers.2"), std::string::npos);
  Config missing = config;
  missing.compile.autoparallel_plan = Path("nowhere.json");
  EXPECT_NE(CodeOf(missing).find("GT-E0903"), std::string::npos);
  Config eager = config;
  eager.compile.mode = CompileMode::kEager;
  EXPECT_THROW(Validate(eager), Error);
  Config unused = config;
  unused.compile.enable_autoparallel = false;
  EXPECT_THROW(Validate(unused), Error);
  unused.compile.autoparallel_plan.clear();
  EXPECT_NE(CodeOf(unused).find("mesh 2x2 has axes for a step that is placed"), std::string::npos)
      << CodeOf(unused);
}

TEST_F(PlacedJobTest, AMeshOfOtherRanksIsRefusedBeforeAnythingIsMade) {
  const Config config = Placed(Job("llama3", "tiny", 4), "3");
  EXPECT_NE(CodeOf(config).find("mesh 3 has 3 ranks, but the job has 4"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(config.dump_folder));
}

TEST_F(PlacedJobTest, ThreadsAndProcessesAgree) {
  const Config threads = Randomly(Job("llama3", "tiny", 4), "2x2", 9);
  Config processes = threads;
  processes.dump_folder = Path("processes");
  EXPECT_EQ(Difference(RunJob(threads), RunJobInProcesses(processes, folder_.path())), "");
}

}  // namespace
}  // namespace gt::placed_job_test
