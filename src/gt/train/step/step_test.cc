// The heart of the foundation: a captured step gives the bits of the eager one, however the graph
// was treated in between.
#include "gt/train/step/step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/exec/reference.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/pipeline/pipeline.h"
#include "gt/testing/temp_folder.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/optimizer.h"
#include "gt/train/step/step_test_util.h"

namespace gt::step_test {
namespace {

Config TinyConfig() {
  Config config;
  config.model.flavor = "tiny";
  config.training.local_batch_size = 8;
  config.training.seq_len = 16;
  return config;
}

std::shared_ptr<LanguageModel> TinyModel(const Config& config, bool bf16_compute = false) {
  auto model =
      BuildModel(config.model.name, config.model.flavor, {.max_length = config.training.seq_len});
  nn::Materialize(*model, at::kCPU, config.training.seed);
  if (bf16_compute) CastParametersForCompute(*model, at::kBFloat16);
  return model;
}

Batch RandomBatch(int64_t batch_size, int64_t length, int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  Batch batch;
  batch.tokens = at::randint(256, {batch_size, length}, at::kLong);
  batch.labels = at::randint(256, {batch_size, length}, at::kLong);
  batch.positions = at::arange(length).expand({batch_size, length}).contiguous();
  batch.valid_tokens = batch_size * length;
  return batch;
}

// Runs a graph on the model's own tensors.
StepResult RunGraph(LanguageModel& model, std::unique_ptr<Graph> graph,
                    std::vector<at::Tensor> bound_inputs, const Batch& batch,
                    ExecutorKind executor = ExecutorKind::kFast) {
  CompiledStep step;
  step.graph = std::move(graph);
  step.bound_inputs = std::move(bound_inputs);
  return MakeCapturedStep(model, std::move(step), {.executor = executor})
      ->Run(batch, batch.valid_tokens);
}

CompiledStep CaptureRaw(LanguageModel& model, Config config, bool symbolic_batch) {
  config.compile.enable_passes = false;
  CompiledStep captured = Compile(
      {.model = model, .config = config, .device = at::kCPU, .symbolic_batch = symbolic_batch});
  Verify(*captured.graph);
  return captured;
}

TEST(TrainStep, CapturedEqualsEagerOverManySteps) {
  for (bool bf16 : {false, true}) {
    Config config = TinyConfig();
    auto eager_model = TinyModel(config, bf16), captured_model = TinyModel(config, bf16);
    auto eager = MakeEagerStep(*eager_model, LossConfigOf(TinyConfig(), *eager_model));
    auto captured = MakeCapturedStep(
        *captured_model, Compile({.model = *captured_model, .config = config, .device = at::kCPU}));
    AdamW eager_optimizer(NamedParameters(*eager_model), config.optimizer);
    AdamW captured_optimizer(NamedParameters(*captured_model), config.optimizer);
    for (int64_t step = 0; step < 5; ++step) {
      Batch batch = RandomBatch(8, 16, step);
      StepResult expected = eager->Run(batch, batch.valid_tokens),
                 actual = captured->Run(batch, batch.valid_tokens);
      ExpectSameBits(expected, actual, *eager_model);
      eager_optimizer.Step(OwnGradients(eager_model->parameters(), expected.gradients), 1e-3);
      captured_optimizer.Step(OwnGradients(captured_model->parameters(), actual.gradients), 1e-3);
    }
  }
}

TEST(TrainStep, OneCaptureServesOtherBatchSizes) {
  Config config = TinyConfig();
  auto model = TinyModel(config);
  auto eager = MakeEagerStep(*model, LossConfigOf(TinyConfig(), *model));
  auto captured = MakeCapturedStep(
      *model,
      Compile({.model = *model, .config = config, .device = at::kCPU, .symbolic_batch = true}));
  for (int64_t batch_size : {2, 5, 8, 3, 8}) {
    Batch batch = RandomBatch(batch_size, 16, batch_size);
    ExpectSameBits(eager->Run(batch, batch.valid_tokens), captured->Run(batch, batch.valid_tokens),
                   *model);
  }
}

TEST(TrainStep, ReferenceExecutorAgreesAndChecksEveryType) {
  Config config = TinyConfig();
  auto model = TinyModel(config);
  auto eager = MakeEagerStep(*model, LossConfigOf(TinyConfig(), *model));
  auto captured = MakeCapturedStep(
      *model,
      Compile({.model = *model, .config = config, .device = at::kCPU, .symbolic_batch = true}),
      {.executor = ExecutorKind::kReference});
  for (int64_t batch_size : {8, 5}) {
    Batch batch = RandomBatch(batch_size, 16, 7);
    ExpectSameBits(eager->Run(batch, batch.valid_tokens), captured->Run(batch, batch.valid_tokens),
                   *model);
  }
}

TEST(TrainStep, PrintedAndParsedAgainGivesTheSameBits) {
  Config config = TinyConfig();
  auto model = TinyModel(config);
  Batch batch = RandomBatch(8, 16, 3);
  StepResult expected =
      MakeEagerStep(*model, LossConfigOf(TinyConfig(), *model))->Run(batch, batch.valid_tokens);
  for (bool symbolic : {false, true}) {
    CompiledStep captured = CaptureRaw(*model, config, symbolic);
    std::string text = Print(*captured.graph);
    std::unique_ptr<Graph> parsed = Parse(text);
    Verify(*parsed);
    EXPECT_EQ(parsed->Hash(), captured.graph->Hash());
    EXPECT_EQ(Print(*parsed), text);
    ExpectSameBits(expected, RunGraph(*model, std::move(parsed), captured.bound_inputs, batch),
                   *model);
  }
}

TEST(TrainStep, EachPassAloneAndEverySubsetGiveTheSameBits) {
  Config config = TinyConfig();
  auto model = TinyModel(config);
  Batch batch = RandomBatch(8, 16, 4);
  StepResult expected =
      MakeEagerStep(*model, LossConfigOf(TinyConfig(), *model))->Run(batch, batch.valid_tokens);
  std::vector<std::string> names;
  for (const auto& pass : DefaultPipeline()) {
    if (std::find(names.begin(), names.end(), pass->name()) == names.end())
      names.emplace_back(pass->name());
  }
  CompiledStep captured = CaptureRaw(*model, config, true);
  for (size_t subset = 0; subset < (size_t{1} << names.size()); ++subset) {
    std::string spec;
    for (size_t i = 0; i < names.size(); ++i) {
      if ((subset >> i) & 1) spec += (spec.empty() ? "" : ",") + names[i];
    }
    SCOPED_TRACE(spec);
    std::unique_ptr<Graph> graph = captured.graph->Clone();
    if (!spec.empty()) PassManager(ParsePipeline(spec)).Run(*graph);
    ExpectSameBits(expected, RunGraph(*model, std::move(graph), captured.bound_inputs, batch),
                   *model);
  }
}

// On a CPU a fused node runs its operators; both executors look inside.
TEST(TrainStep, FusedNodesGiveTheSameBits) {
  for (bool bf16 : {false, true}) {
    Config config = TinyConfig();
    auto model = TinyModel(config, bf16);
    Batch batch = RandomBatch(8, 16, 4);
    StepResult expected =
        MakeEagerStep(*model, LossConfigOf(TinyConfig(), *model))->Run(batch, batch.valid_tokens);
    CompiledStep captured = CaptureRaw(*model, config, true);
    PassManager(ParsePipeline("dce,canonicalize,cse,dce,fuse{any_device=true}"))
        .Run(*captured.graph);
    int64_t fused = 0;
    for (const Node* node : captured.graph->nodes()) fused += FusedBody(*node) != nullptr;
    EXPECT_GT(fused, 4);
    for (ExecutorKind executor : {ExecutorKind::kFast, ExecutorKind::kReference}) {
      ExpectSameBits(
          expected,
          RunGraph(*model, captured.graph->Clone(), captured.bound_inputs, batch, executor),
          *model);
    }
  }
}

TEST(TrainStep, PassesOfTheJobCanBeAddedToOrReplaced) {
  Config config = TinyConfig();
  auto model = TinyModel(config);
  const auto passes_with = [&](const std::string& passes) {
    config.compile.passes = passes;
    CompiledStep step = Compile({.model = *model, .config = config, .device = at::kCPU});
    std::vector<std::string> specs;
    for (const PassRun& run : step.passes.runs) specs.push_back(run.spec);
    return Join(specs, ",");
  };
  const std::string own = passes_with("");
  EXPECT_EQ(passes_with("+cse{cross_phase=none}"), own + ",cse{cross_phase=none}");
  EXPECT_EQ(passes_with("canonicalize,dce"), "canonicalize,dce");
  testing::ExpectError(ErrorCode::kUnknownPass, {"canonicalise"},
                       [&] { passes_with("+canonicalise"); });
}

TEST(TrainStep, EveryNodeNamesItsModuleAndPhase) {
  Config config = TinyConfig();
  auto model = BuildModel("llama3", "tiny", {.max_length = 16});
  CompiledStep captured = CaptureRaw(*model, config, true);
  std::set<std::string> modules;
  for (const auto& item : model->named_modules("", false)) modules.insert(item.key());
  modules.insert("loss");
  int64_t backward = 0;
  for (const Node* node : captured.graph->nodes()) {
    const Meta& meta = node->meta();
    bool root = meta.module.empty();
    EXPECT_TRUE(root || modules.contains(meta.module.str())) << Print(*node);
    // Only looking up the positions' rotations happens in the model's own forward.
    if (root) EXPECT_EQ(node->op().name.str(), "aten::index.Tensor") << Print(*node);
    EXPECT_FALSE(meta.source.empty() && !root) << Print(*node);
    backward += meta.phase == Phase::kBackward;
  }
  EXPECT_GT(backward, captured.graph->node_count() / 2);
}

}  // namespace
}  // namespace gt::step_test
