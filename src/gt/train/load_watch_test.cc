// Loads of experts in steps that run: given ones give the same bits however the step is run, ranks
// measure and agree on them, and what is expected of a rank is what it gets.
#include "gt/train/load_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/expert_loads.h"
#include "gt/exec/program.h"
#include "gt/job/config.h"
#include "gt/nn/moe.h"
#include "gt/torch_bridge/generator.h"
#include "gt/torch_bridge/one_thread_test_util.h"
#include "gt/train/metrics.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/step.h"
#include "gt/train/step/step_test_util.h"

namespace gt::load_watch_test {
namespace {

Config Job(const char* model, const char* flavor, int64_t ranks) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  Config config;
  config.device = DeviceChoice::kCpu;
  config.threads = 1;
  config.model.name = model;
  config.model.flavor = flavor;
  config.model.n_layers = 3;
  config.training.local_batch_size = 5;
  config.training.seq_len = 48;
  config.ranks = ranks;
  config.parallelism.expert_parallel_degree = ranks;
  config.debug.moe_load = "zipf:1.0";
  return config;
}

Config InChunks(Config config, const char* modules, ChunkDim dim, int64_t chunks) {
  EpOverlapSection& overlap = config.compile.ep_overlap;
  overlap.enabled = AutoSwitch::kTrue;
  overlap.module_fqn = modules;
  overlap.chunk_dim = dim;
  overlap.num_chunks = chunks;
  overlap.disable_early_grad_accumulation = true;
  return config;
}

Config EagerChunks(Config config) {
  config.compile.ep_overlap.strategy = ChunkStrategy::kEager;
  config.compile.ep_overlap.disable_early_grad_accumulation = false;
  return config;
}

using Use = std::function<void(World&, LanguageModel&, const Mesh&)>;
void WithModel(const Config& config, const Use& use) {
  testing::OneThread one_thread;
  World::Run(config, [&](World& world) {
    Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    InitializeModel(*model, config, at::kCPU);
    use(world, *model, mesh);
  });
}

// ---- bits ----

struct Outcome {
  StepResult result;
  std::vector<at::Tensor> buffers;
};

Outcome OutcomeOf(const Config& config) {
  Outcome outcome;
  WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
    std::unique_ptr<TrainStep> step = config.compile.mode == CompileMode::kEager
                                          ? MakeEagerStep(model, LossConfigOf(config, model))
                                          : MakeCapturedStep(model, Compile({.model = model,
                                                                             .config = config,
                                                                             .device = at::kCPU,
                                                                             .mesh = mesh,
                                                                             .world = &world}));
    Batch batch = RandomBatch(config, model.vocab_size());
    Outcome own{step->Run(batch, batch.valid_tokens), {}};
    for (const at::Tensor& buffer : model.buffers()) own.buffers.push_back(buffer.clone());
    if (world.first()) outcome = std::move(own);
  });
  return outcome;
}

void ExpectSame(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(SameBits(a.result.loss, b.result.loss));
  ASSERT_EQ(a.result.gradients.size(), b.result.gradients.size());
  for (size_t i = 0; i < a.result.gradients.size(); ++i) {
    EXPECT_TRUE(SameBits(a.result.gradients[i], b.result.gradients[i])) << "gradient " << i;
  }
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_TRUE(SameBits(a.buffers[i], b.buffers[i])) << "buffer " << i;
  }
}

TEST(GivenLoads, HaveTheSameBitsEagerAndCaptured) {
  for (auto [model, flavor] : {std::pair{"deepseek_v3", "tiny"}, std::pair{"qwen3", "tiny_moe"}}) {
    for (int64_t ranks : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", model, ranks));
      Config config = Job(model, flavor, ranks);
      Config eager = config;
      eager.compile.mode = CompileMode::kEager;
      const Outcome expected = OutcomeOf(eager);
      ExpectSame(expected, OutcomeOf(config));
      config.compile.executor = ExecutorKind::kReference;
      ExpectSame(expected, OutcomeOf(config));
      config.compile.executor = ExecutorKind::kFast;
      config.compile.memory_policy = MemoryPolicy::kFull;
      ExpectSame(expected, OutcomeOf(config));
    }
  }
}

// Each chunk counts its positions from 0, whoever cuts.
TEST(GivenLoads, HaveTheSameBitsInChunksOfEitherProducer) {
  struct Cut {
    const char* modules;
    ChunkDim dim;
    int64_t chunks;
  };
  for (const Cut& cut : {Cut{"layers.*", ChunkDim::kBatch, 2}, Cut{"layers.*", ChunkDim::kBatch, 3},
                         Cut{"layers.2", ChunkDim::kBatch, 2}, Cut{"layers.1", ChunkDim::kBatch, 2},
                         Cut{"layers.*.moe", ChunkDim::kSeq, 5}}) {
    for (int64_t ranks : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} in {} chunks, {} ranks", cut.modules, cut.chunks, ranks));
      Config config = Job("deepseek_v3", "tiny", ranks);
      config.debug.moe_load = "zipf:1.3";
      config = InChunks(config, cut.modules, cut.dim, cut.chunks);
      Config eager = EagerChunks(config);
      eager.compile.mode = CompileMode::kEager;
      const Outcome expected = OutcomeOf(eager);
      ExpectSame(expected, OutcomeOf(EagerChunks(config)));
      ExpectSame(expected, OutcomeOf(config));
    }
  }
}

// Without the data of the layer in it, the choice could be made, and its tokens counted and announced,
// before the layer is reached: no schedule of a real job can do that.
TEST(GivenLoads, AreDrawnWhenTheScoresAreThere) {
  Config config = Job("deepseek_v3", "tiny", 4);
  config.comm.backend = CommBackend::kFake;
  WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
    CompiledStep captured = Compile(
        {.model = model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world});
    int choices = 0;
    for (const Node* node : captured.graph->nodes()) {
      if (node->op().name.str() != "aten::topk") continue;
      ++choices;
      const Node* race = node->operand(0)->producer();
      ASSERT_NE(race, nullptr);
      EXPECT_EQ(race->op().name.str(), "aten::add.Tensor");
      ASSERT_EQ(race->operand_count(), 2);
      const Node* scores = race->operand(1)->producer();
      ASSERT_NE(scores, nullptr);
      const std::string name = scores->op().name.str();
      EXPECT_TRUE(name == "aten::sigmoid" || name == "aten::_softmax" || name == "aten::detach")
          << name;
    }
    EXPECT_GT(choices, 0);
  });
}

// ---- how many rows ----

// A captured step whose counts can be looked at.
class CountedStep {
 public:
  CountedStep(LanguageModel& model, CompiledStep captured)
      : captured_(std::move(captured)), program_(*captured_.graph) {
    std::map<std::string, at::Tensor> tensors;
    for (const auto& each : model.named_parameters()) tensors[each.key()] = each.value();
    for (const auto& each : model.named_buffers()) tensors[each.key()] = each.value();
    for (const auto& input : captured_.graph->inputs()) {
      auto found = tensors.find(input->name);
      if (found != tensors.end()) {
        captured_.bound_inputs[static_cast<size_t>(input->value.index())] = found->second;
      }
    }
  }

  SymbolValues Run(const Batch& batch) {
    const std::map<std::string, at::Tensor> inputs = {
        {"tokens", batch.tokens},
        {"labels", batch.labels},
        {"positions", batch.positions},
        {"valid_tokens", at::scalar_tensor(static_cast<double>(batch.valid_tokens), at::kFloat)}};
    for (const auto& input : captured_.graph->inputs()) {
      if (input->role != InputRole::kInput) continue;
      captured_.bound_inputs[static_cast<size_t>(input->value.index())] = inputs.at(input->name);
    }
    program_.Run(captured_.bound_inputs);
    return program_.symbol_values();
  }
  const Graph& graph() const { return *captured_.graph; }

 private:
  CompiledStep captured_;
  Program program_;
};

RoutingLoads LoadsOfARun(const Config& config, LanguageModel& model, World& world,
                         const Mesh& mesh) {
  CountedStep step(
      model,
      Compile(
          {.model = model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world}));
  return MeasuredLoads(step.graph(), step.Run(RandomBatch(config, model.vocab_size())));
}

void ExpectNear(const RoutingLoads& expected, const RoutingLoads& actual, double tolerance) {
  ASSERT_EQ(expected.modules.size(), actual.modules.size());
  for (const auto& [fqn, load] : expected.modules) {
    ASSERT_TRUE(actual.modules.contains(fqn)) << fqn;
    EXPECT_NEAR(load.mean, actual.modules.at(fqn).mean, tolerance) << fqn;
    EXPECT_NEAR(load.max, actual.modules.at(fqn).max, tolerance) << fqn;
  }
}

// An emulated rank's peers send what it sends to itself: its experts' share, from every rank. So it
// gets what the rank of that number would get in a job where all draw alike.
TEST(GivenLoads, ReachEmulatedRanksAsExpected) {
  Config config = Job("deepseek_v3", "tiny", 4);
  config.comm.backend = CommBackend::kEmulated;
  config.comm.emulated_time_scale = 0;
  double sum = 0;
  std::vector<double> loads;
  for (int64_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    config.comm.pretended_rank = rank;
    WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
      const ExpectedRouting expected = ConfiguredLoads(model, config, mesh);
      const RoutingLoads measured = LoadsOfARun(config, model, world, mesh);
      // The same draws: only a rounding of the logarithm could decide otherwise.
      ExpectNear(expected.own, measured, 0.02);
      EXPECT_FALSE(measured.modules.empty());
      loads.push_back(measured.modules.begin()->second.max);
      sum += loads.back();
      const Config chunked = InChunks(config, "layers.*", ChunkDim::kBatch, 2);
      ExpectNear(expected.own, LoadsOfARun(chunked, model, world, mesh), 0.3);
    });
  }
  EXPECT_NEAR(sum, 4, 1e-9);
  std::sort(loads.begin(), loads.end());
  EXPECT_LT(loads.front(), 0.8);
  EXPECT_GT(loads.back(), 1.3);
}

TEST(GivenLoads, OfAFileDecideForEachModule) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("gt_loads_{}.json", static_cast<int>(getpid()));
  Config config = Job("deepseek_v3", "tiny", 2);
  config.comm.backend = CommBackend::kEmulated;
  config.comm.emulated_time_scale = 0;
  config.debug.moe_load = path.string();
  ModelPtr model = [&] {
    Config plain = config;
    plain.debug.moe_load = "router";
    return BuildConfiguredModel(plain);
  }();
  std::vector<const nn::Moe*> modules;
  for (nn::Module* module : nn::ModulesOf(*model)) {
    if (auto* moe = dynamic_cast<nn::Moe*>(module)) modules.push_back(moe);
  }
  ASSERT_GE(modules.size(), 2u);
  const int64_t experts = modules[0]->config().experts;
  // All rows of the first module to the first half of the experts, even loads elsewhere.
  std::vector<double> first(static_cast<size_t>(experts), 0.0);
  std::fill(first.begin(), first.begin() + experts / 2, 1.0);
  std::ofstream(path) << fmt::format(R"({{"{}": [{}], "layers.*.moe": [{}]}})",
                                     modules[0]->fqn().str(), fmt::join(first, ", "),
                                     fmt::join(std::vector<int>(first.size(), 1), ", "));
  for (int64_t rank : {0, 1}) {
    config.comm.pretended_rank = rank;
    WithModel(config, [&](World& world, LanguageModel& built, const Mesh& mesh) {
      const RoutingLoads measured = LoadsOfARun(config, built, world, mesh);
      EXPECT_EQ(measured.modules.at(modules[0]->fqn().str()).max, rank == 0 ? 2.0 : 0.0);
      EXPECT_NEAR(measured.modules.at(modules[1]->fqn().str()).max, 1.0, 0.15);
      ExpectNear(ConfiguredLoads(built, config, mesh).own, measured, 0.02);
    });
  }
  std::ofstream(path) << "[1, 2]";
  try {
    BuildConfiguredModel(config);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadMoeLoads) << error.what();
    EXPECT_NE(error.message().find(path.string()), std::string::npos) << error.what();
  }
  std::filesystem::remove(path);
}

TEST(GivenLoads, BalancedIsTheOlderFlag) {
  Config config = Job("qwen3", "tiny_moe", 1);
  config.debug.moe_load = "balanced";
  const Outcome balanced = OutcomeOf(config);
  config.debug.moe_load = "router";
  config.debug.moe_force_load_balance = true;
  ExpectSame(balanced, OutcomeOf(config));
  config.debug.moe_force_load_balance = false;
  EXPECT_FALSE(SameBits(balanced.result.loss, OutcomeOf(config).result.loss));
}

// ---- agreeing ----

TEST(LoadWatch, ComparesOnStepsThatFollowFromTheirNumber) {
  Config config = Job("deepseek_v3", "tiny", 1);
  World::Run(config, [](World& world) {
    auto due = [&](int64_t interval, int64_t first) {
      LoadWatch watch(world, interval, first);
      std::vector<int64_t> steps;
      for (int64_t step = first; step < first + 40; ++step) {
        if (watch.IsDue(step)) steps.push_back(step);
      }
      return steps;
    };
    EXPECT_EQ(due(16, 1), (std::vector<int64_t>{2, 4, 16, 32}));
    EXPECT_EQ(due(16, 101), (std::vector<int64_t>{102, 104, 116, 132})) << "after a resume";
    EXPECT_EQ(due(0, 1), std::vector<int64_t>{});
    EXPECT_EQ(due(3, 1).size(), 15u);
  });
}

// Four ranks: each has its own loads, and all reach the same mean, maximum and answer.
TEST(LoadWatch, RanksAgreeOnMeanAndMaximum) {
  for (const char* load : {"zipf:1.2", "router", "balanced"}) {
    SCOPED_TRACE(load);
    Config config = Job("deepseek_v3", "tiny", 4);
    config.debug.moe_load = load;
    config = InChunks(config, "layers.*.moe", ChunkDim::kSeq, 3);
    std::mutex mutex;
    std::vector<LoadWatch::Agreement> agreements;
    std::vector<RoutingLoads> own;
    RoutingLoads expected;
    WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
      CountedStep step(model, Compile({.model = model,
                                       .config = config,
                                       .device = at::kCPU,
                                       .mesh = mesh,
                                       .world = &world}));
      LoadWatch watch(world, 16);
      watch.SetPlan(step.graph(), {});
      GeneratorScope generator;
      Batch batch = RandomBatch(config, model.vocab_size());
      batch.tokens = (batch.tokens + 7 * world.rank()).remainder(model.vocab_size());
      RoutingLoads loads = MeasuredLoads(step.graph(), step.Run(batch));
      watch.Add(step.Run(batch));
      EXPECT_FALSE(watch.AfterStep(1).has_value());
      watch.Add(step.Run(batch));
      std::optional<LoadWatch::Agreement> agreement = watch.AfterStep(2);
      ASSERT_TRUE(agreement.has_value());
      std::lock_guard lock(mutex);
      agreements.push_back(*agreement);
      own.push_back(loads);
      expected = ConfiguredLoads(model, config, mesh).over_ranks;
    });
    ASSERT_EQ(agreements.size(), 4u);
    const RoutingLoads& loads = agreements[0].loads;
    for (const LoadWatch::Agreement& other : agreements) {
      EXPECT_EQ(other.loads, loads);
      EXPECT_EQ(other.renew, agreements[0].renew);
      EXPECT_EQ(other.drift, agreements[0].drift);
    }
    ASSERT_FALSE(loads.modules.empty());
    for (const auto& [fqn, module] : loads.modules) {
      double largest = 0;
      for (const RoutingLoads& each : own) {
        largest = std::max(largest, each.modules.at(fqn).max);
      }
      EXPECT_DOUBLE_EQ(module.max, largest) << fqn;
      EXPECT_NEAR(module.mean, 1.0, 1e-9) << "what leaves one rank arrives at another";
    }
    if (std::string(load) == "balanced") {
      EXPECT_FALSE(agreements[0].renew) << agreements[0].Describe();
      EXPECT_NEAR(agreements[0].imbalance, 1.0, 0.05);
    }
    if (std::string(load) == "zipf:1.2") {
      EXPECT_TRUE(agreements[0].renew) << agreements[0].Describe();
      EXPECT_GT(agreements[0].imbalance, 1.3);
      EXPECT_NE(agreements[0].Describe().find("planned for 1.00 x"), std::string::npos);
      // Chunks draw from position 0 each, so that what the whole draws is met in the mean only.
      ExpectNear(expected, loads, 0.5);
    }
  }
}

// Loads that a plan was made for need no other one; those that have moved on do.
TEST(LoadWatch, AsksForANewPlanWhenLoadsHaveMoved) {
  Config config = Job("deepseek_v3", "tiny", 4);
  config.comm.backend = CommBackend::kEmulated;
  config.comm.emulated_time_scale = 0;
  config.comm.pretended_rank = 2;
  WithModel(config, [&](World& world, LanguageModel& model, const Mesh& mesh) {
    CountedStep step(
        model,
        Compile(
            {.model = model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world}));
    const Batch batch = RandomBatch(config, model.vocab_size());
    LoadWatch watch(world, 4);
    auto after = [&](RoutingLoads planned, double factor) {
      for (auto& [fqn, load] : planned.modules) load.max *= factor;
      watch.SetPlan(step.graph(), planned);
      watch.Add(step.Run(batch));
      return *watch.AfterStep(4);
    };
    const RoutingLoads own = MeasuredLoads(step.graph(), step.Run(batch));
    EXPECT_EQ(after(own, 1.0).loads, own) << "a rank that stands for all has its own alone";
    EXPECT_FALSE(after(own, 1.0).renew);
    EXPECT_FALSE(after(own, 1.08).renew);
    EXPECT_FALSE(after(own, 0.92).renew);
    EXPECT_TRUE(after(own, 1.2).renew);
    EXPECT_TRUE(after(own, 0.8).renew);
    // A comparison starts the next one from nothing.
    watch.SetPlan(step.graph(), own);
    watch.Add(step.Run(batch));
    EXPECT_TRUE(watch.AfterStep(4).has_value());
    EXPECT_FALSE(watch.AfterStep(8).has_value()) << "nothing has run";
  });
}

TEST(Metrics, SayHowUnevenLoadsAre) {
  const auto folder = std::filesystem::temp_directory_path() /
                      fmt::format("gt_load_metrics_{}", static_cast<int>(getpid()));
  {
    MetricsFile file(folder.string());
    file.Write({.step = 1});
    file.Write({.step = 2, .load_imbalance = 1.75});
  }
  std::ifstream file(folder / "metrics.jsonl");
  std::string line;
  std::getline(file, line);
  EXPECT_FALSE(nlohmann::json::parse(line).contains("load_imbalance"));
  std::getline(file, line);
  EXPECT_EQ(nlohmann::json::parse(line)["load_imbalance"], 1.75);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gt::load_watch_test
