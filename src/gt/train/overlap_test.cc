// Communication beside compute, in steps that run: groups, costs, the choice of `auto`, and profiles.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/single_device_step.h"
#include "gt/compile/step_costs.h"
#include "gt/dist/world.h"
#include "gt/exec/measure_costs.h"
#include "gt/job/config.h"
#include "gt/placement/place.h"
#include "gt/placement/plan.h"
#include "gt/placement/sending_rows.h"
#include "gt/report/overlap_report.h"
#include "gt/sim/link_model.h"
#include "gt/sim/node_cost.h"
#include "gt/storage/file_writer.h"
#include "gt/train/profile.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"

namespace gt::overlap_test {
namespace {

class OverlapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("overlap_{}_{}", ::getpid(),
                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // One rank of eight, whose links have next to no latency and the given bandwidth.
  Config Emulated(double gb_per_s) const {
    Config config;
    config.model.name = "deepseek_v3";
    config.model.flavor = "tiny";
    config.training.local_batch_size = 4;
    config.training.seq_len = 64;
    config.threads = 1;
    config.ranks = 8;
    config.parallelism.expert_parallel_degree = 8;
    config.comm.backend = CommBackend::kEmulated;
    config.comm.cluster = (folder_ / fmt::format("links_{}.toml", gb_per_s)).string();
    config.debug.moe_force_load_balance = true;
    config.dump_folder = folder_.string();
    config.overwrite = true;
    std::ofstream(config.comm.cluster) << fmt::format(
        "[cluster]\nname = \"test\"\ngeneration = \"hopper\"\ngpus_per_node = 8\n"
        "[simple.node]\nlatency_us = 1.0\nbandwidth_gb_per_s = {:.6f}\n"
        "[simple.network]\nlatency_us = 1.0\nbandwidth_gb_per_s = {:.6f}\n",
        gb_per_s, gb_per_s);
    return config;
  }

  using Use = std::function<void(World&, LanguageModel&, const Mesh&)>;
  static void WithModel(const Config& config, const Use& use) {
    World::Run(config, [&](World& world) {
      Mesh mesh(config.parallelism, world.size(), world.rank());
      ModelPtr model = BuildConfiguredModel(config, world, mesh);
      use(world, *model, mesh);
    });
  }

  // The plan that sends rows to experts on all ranks.
  std::string ExpertPlan(const Config& config) const {
    const ModelPtr model = BuildConfiguredModel(config);
    const StepRequest request{*model, config, at::kCPU, Mesh(config.parallelism, config.ranks, 0)};
    SingleDeviceStep step(request);
    const LinkModel links(ReadCluster(config.comm.cluster));
    const placement::Pricing pricing(placement::DeviceMesh({config.ranks}), links,
                                     SpeedOf("hopper"));
    placement::ProblemOptions options;
    options.pins = placement::SendingRows(step.graph(), pricing.mesh());
    const placement::PlaceProblem problem(step.graph(), pricing, options);
    const std::string path = (folder_ / "experts.json").string();
    const placement::Placement found = Search(problem, {});
    EXPECT_TRUE(found.feasible);
    WriteFile(path, ToJson(MakePlan(problem, found, "experts")));
    return path;
  }

  static void ExpectChunksIf(bool slow, const Config& config) {
    WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
      CompiledStep captured = Compile(
          {.model = model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world});
      EXPECT_EQ(captured.chunked, slow);
      bool chunks = false;
      for (const Node* node : captured.graph->nodes()) chunks |= node->meta().chunk != nullptr;
      EXPECT_EQ(chunks, slow);
      ASSERT_TRUE(captured.predicted);
      ASSERT_EQ(captured.choice.size(), 1u);
      EXPECT_EQ(captured.choice[0].starts_with("chunks: no chunks"), !slow) << captured.choice[0];
      // The graph that was chosen runs.
      if (captured.placed) KeepPlacedParts(model, *captured.placed);
      InitializeModel(model, config, at::kCPU);
      auto step = MakeCapturedStep(model, std::move(captured));
      at::Tensor tokens = at::zeros({4, 64}, at::kLong);
      Batch batch{.tokens = tokens,
                  .labels = tokens,
                  .positions = at::arange(64).expand({4, 64}).contiguous()};
      EXPECT_TRUE(step->Run(batch, 256).loss.isfinite().item<bool>());
    });
  }

  static std::set<std::string> GroupsOf(const Graph& graph, Collective kind) {
    std::set<std::string> groups;
    for (const Node* node : graph.nodes()) {
      if (node->op().collective == kind) {
        groups.insert(std::get<std::string>(node->arg(node->op().group_arg)));
      }
    }
    return groups;
  }

  std::filesystem::path folder_;
};

TEST_F(OverlapTest, ExchangesLeaveAGroupOnlyIfTheyShareIt) {
  for (bool shared : {false, true}) {
    for (bool isolate : {false, true}) {
      SCOPED_TRACE(fmt::format("shared {}, isolate {}", shared, isolate));
      Config config = Emulated(1);
      config.comm.share_groups = shared;
      config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
      config.compile.ep_overlap.isolate_process_group = isolate;
      WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
        CompiledStep captured = Compile(
            {.model = model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world});
        std::set<std::string> tokens = GroupsOf(*captured.graph, Collective::kAllToAll);
        std::string expected = shared && isolate ? "ep.tokens" : "ep";
        EXPECT_EQ(tokens, (std::set<std::string>{expected, expected + ".counts"}));
        for (const std::string& name : tokens) {
          ASSERT_NE(world.Find(name), nullptr) << name;
          EXPECT_EQ(world.Find(name)->ranks, world.Find("ep")->ranks);
          const bool made = name != "ep";
          EXPECT_EQ(world.Find(name)->priority == GroupPriority::kHigh, made) << name;
        }
        const std::string scatters = shared ? "ep" : "fsdp";
        EXPECT_EQ(GroupsOf(*captured.graph, Collective::kReduceScatter), std::set{scatters});
        EXPECT_EQ(GroupsOf(*captured.graph, Collective::kAllGather),
                  std::set{scatters + ".gathers"});
      });
    }
  }
}

// Chunks cost smaller kernels: they are worth it only where there is something to hide. Placed steps are
// cut by the same reasoning, each choice under the plan that suits it.
TEST_F(OverlapTest, AutoCutsWhereItPays) {
  for (bool placed : {false, true}) {
    for (double gb_per_s : {100.0, 0.02}) {
      SCOPED_TRACE(fmt::format("{}, {} GB/s", placed ? "placed" : "by hand", gb_per_s));
      Config config = Emulated(gb_per_s);
      config.compile.ep_overlap.enabled = AutoSwitch::kAuto;
      if (placed) {
        config.compile.enable_autoparallel = true;
        config.compile.autoparallel_plan = ExpertPlan(config);
        config.mesh = "8";
      }
      ExpectChunksIf(gb_per_s < 1, config);
    }
  }
}

// A plan that sends nothing to experts leaves nothing to hide, however slow the links are.
TEST_F(OverlapTest, AutoCutsNothingOfPlansWithoutExchanges) {
  Config config = Emulated(0.02);
  config.model.name = "llama3";
  config.parallelism.expert_parallel_degree = 1;
  config.compile.enable_autoparallel = true;
  config.compile.ep_overlap.enabled = AutoSwitch::kAuto;
  config.mesh = "8";
  WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
    const CompiledStep step = Compile({model, config, at::kCPU, mesh, &world});
    EXPECT_FALSE(step.chunked);
    EXPECT_EQ(step.choice, std::vector<std::string>{"chunks: no, since the model has no experts"});
  });
}

TEST_F(OverlapTest, AProfileShowsWhatWasHidden) {
  Config config = Emulated(0.05);
  config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
  WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
    InitializeModel(model, config, at::kCPU);
    CompiledStep captured = Compile(
        {.model = model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world});
    int64_t collectives = 0;
    for (const Node* node : captured.graph->nodes()) {
      const Collective kind = node->op().collective;
      collectives += kind != Collective::kNone && kind != Collective::kWait ? 1 : 0;
    }
    auto step = MakeCapturedStep(model, std::move(captured));
    at::Tensor tokens = at::zeros({4, 64}, at::kLong);
    Batch batch{.tokens = tokens,
                .labels = tokens,
                .positions = at::arange(64).expand({4, 64}).contiguous()};
    step->Run(batch, 256);
    StepProfile profile(at::kCPU);
    step->Run(batch, 256);
    std::optional<StepProfile::Shown> shown = profile.Finish((folder_ / "step.json").string());
    ASSERT_TRUE(shown.has_value());
    EXPECT_GT(std::filesystem::file_size(folder_ / "step.json"), 10000u);

    const OverlapSummary summary = SummarizeOverlap(shown->timeline);
    int64_t seen = 0;
    for (const OverlapRow& row : OverlapRows(*shown->graph, shown->timeline)) seen += row.count;
    EXPECT_EQ(seen, collectives);
    EXPECT_GT(summary.communication, 0);
    EXPECT_GT(summary.compute, 0);
    EXPECT_LE(summary.compute, summary.step);
    EXPECT_NEAR(summary.hidden + summary.exposed, summary.communication, 1e-6);
    // At least the time between launch and end that the links predict.
    EXPECT_GE(summary.communication, 0.5 * SummarizeOverlap(*captured.predicted).communication);
    EXPECT_GT(shown->costs.size(), 20u);
    EXPECT_NE(CompareTable(*shown->graph, *captured.predicted, shown->timeline).find("all_to_all"),
              std::string::npos);
  });
}

TEST_F(OverlapTest, CostsAreMeasuredOnceAndKept) {
  Config config = Emulated(1);
  config.compile.costs = CostSource::kMeasured;
  config.compile.costs_file = (folder_ / "costs.json").string();
  std::string first;
  auto read = [&] {
    std::ifstream file(config.compile.costs_file);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (int round = 0; round < 2; ++round) {
    WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
      CompiledStep captured = Compile(
          {.model = model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world});
      ASSERT_TRUE(captured.predicted.has_value());
      CostTable table = CostTable::FromJson(read(), "costs.json");
      EXPECT_GT(table.size(), 30u);
      EXPECT_EQ(MeasureCosts(*captured.graph, at::kCPU, &table), 0) << "all are known";
    });
    if (round == 0) first = read();
  }
  EXPECT_EQ(read(), first) << "a second job measures nothing";

  std::ofstream(config.compile.costs_file)
      << "{\"device\": \"cuda\", \"unit\": \"us\", \"costs\": {}}";
  try {
    StepCosts costs(config, nullptr, at::kCPU);
    FAIL() << "costs of another device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadCosts);
    EXPECT_NE(error.message().find("cuda"), std::string::npos);
  }
}

// Sums are those of the elements in the order of the ranks, alone, packed, or cut otherwise.
TEST_F(OverlapTest, SumsOfGlooDoNotDependOnPacking) {
  Config config;
  config.ranks = 4;
  World::Run(config, [&](World& world) {
    Group group{.name = "all", .description = "all ranks", .ranks = {0, 1, 2, 3}};
    group.index = world.rank();
    world.MakeGroup(group);
    auto process_group = c10d::resolve_process_group("all");
    at::Generator generator = at::detail::createCPUGenerator(17);
    std::vector<at::Tensor> of_ranks;
    for (int i = 0; i < 4; ++i) of_ranks.push_back(at::randn({4, 1001}, generator));
    at::Tensor own = of_ranks[static_cast<size_t>(world.rank())], expected = of_ranks[0].clone();
    for (size_t i = 1; i < 4; ++i) expected += of_ranks[i];

    auto scatter = [&](at::Tensor input) {
      at::Tensor output = at::empty({input.size(1)});
      input = input.contiguous().view(-1);
      process_group->_reduce_scatter_base(output, input)->wait();
      return output;
    };
    at::Tensor whole = scatter(own);
    EXPECT_TRUE(whole.equal(expected[world.rank()]));
    EXPECT_TRUE(scatter(own.narrow(1, 100, 13)).equal(whole.narrow(0, 100, 13)));

    for (int64_t count : {1001L, 1000L, 3L}) {
      std::vector<at::Tensor> sum = {own.narrow(1, 0, count).clone()};
      process_group->allreduce(sum)->wait();
      EXPECT_TRUE(sum[0].equal(expected.narrow(1, 0, count))) << count;
    }
  });
}

}  // namespace
}  // namespace gt::overlap_test
