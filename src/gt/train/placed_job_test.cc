// Jobs that train under a plan: against one rank on the same batches, policy against policy, and from one
// plan to another.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "gt/base/error.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/compile/global_step.h"
#include "gt/compile/step_capture.h"
#include "gt/passes/framework/registry.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/storage/file_writer.h"
#include "gt/testing/random_placement.h"
#include "gt/testing/slow_tests.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/job_test_util.h"

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
    config.training.dataset_path = Path("rows.npy");
    config.lr_scheduler.warmup_steps = 0;
    config.metrics.hashes = true;
    config.checkpoint.last_save_in_hf = false;
    config.dump_folder = Path(fmt::format("job{}", jobs_++));
    return config;
  }
  Config Placed(Config config, const std::string& mesh) {
    config.compile.enable_autoparallel = true;
    config.mesh = mesh;
    config.dump_folder = Path(fmt::format("job{}", jobs_++));
    return config;
  }

  // The step that a job would place.
  std::unique_ptr<Graph> StepOf(const Config& config) {
    model_ = BuildConfiguredModel(config);
    const Config global = GlobalConfig(config, config.ranks, *model_);
    EpOverlapSection off;
    off.enabled = AutoSwitch::kFalse;
    std::unique_ptr<Graph> graph =
        CaptureUncompiled({*model_, global, c10::Device(c10::kCPU)}, off).graph;
    for (auto& pass : ParsePipeline("dce,canonicalize,cse,dce")) pass->Run(*graph);
    graph->NumberNodes();
    return graph;
  }
  placement::Pricing PricingOn(const std::string& mesh) const {
    return placement::Pricing(DeviceMesh::Parse(mesh), links_, SpeedOf("cpu"));
  }

  // Trains a plan that nobody would choose.
  Config Randomly(Config config, const std::string& mesh, uint64_t seed) {
    config = Placed(config, mesh);
    const std::unique_ptr<Graph> graph = StepOf(config);
    const placement::Pricing pricing = PricingOn(mesh);
    const placement::PlaceProblem problem(*graph, pricing, {});
    return WithPlan(config, MakePlan(problem, testing::RandomPlacement(problem, seed), "random"));
  }
  // Trains the best plan of a hand-written layout.
  Config ByHand(Config config, const std::string& mesh, std::vector<AxisUse> axes) {
    config = Placed(config, mesh);
    const std::unique_ptr<Graph> graph = StepOf(config);
    const placement::Pricing pricing = PricingOn(mesh);
    placement::ProblemOptions options;
    options.axes = std::move(axes);
    options.finest_parameters = true;
    const placement::PlaceProblem problem(*graph, pricing, options);
    const placement::Placement found = Search(problem, {});
    EXPECT_TRUE(found.feasible);
    return WithPlan(config, MakePlan(problem, found, "by hand"));
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
  LinkModel links_{ReadCluster(ClusterPath("h100"))};
  ModelPtr model_;
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
}

TEST_F(PlacedJobTest, ThreadsAndProcessesAgree) {
  const Config threads = Randomly(Job("llama3", "tiny", 4), "2x2", 9);
  Config processes = threads;
  processes.dump_folder = Path("processes");
  EXPECT_EQ(Difference(RunJob(threads), RunJobInProcesses(processes, folder_.path())), "");
}

}  // namespace
}  // namespace gt::placed_job_test
