// A model may call its blocks what it likes: passes and parallelisms ask for roles. The same model
// with blocks called layers.N and h.N compiles to the same step and learns the same, bit for bit, and
// one that declares no blocks is told so.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>

#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/ir/text.h"
#include "gt/models/grouped_query_attention.h"
#include "gt/parallel/parallelize.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/optimizer.h"
#include "gt/train/step/step.h"
#include "gt/train/step/step_test_util.h"

namespace gt::block_names_test {
namespace {

constexpr int64_t kWidth = 32, kVocab = 256, kBlocks = 3, kExperts = 4, kHeadWidth = 8;
const nn::Init kInit = nn::Init::TruncatedNormal(0.02);

class SparseBlock : public nn::Module {
 public:
  SparseBlock(const nn::AttentionConfig& attention, bool declares) {
    if (declares) set_role(ModuleRole::kBlock);
    const GroupedQueryConfig heads = {
        .width = kWidth, .heads = 4, .kv_heads = 2, .head_width = kHeadWidth};
    attention_ = AddChild<GroupedQueryAttention>("mix", heads, attention, kInit, kInit);
    const nn::MoeConfig moe = {.width = kWidth, .experts = kExperts, .hidden = 24, .top_k = 2};
    moe_ = AddChild<nn::Moe>("mlp", moe, nn::MoeInits{.router = kInit, .in = kInit, .out = kInit});
    before_mix_ = AddChild<nn::RmsNorm>("ln_1", kWidth, 1e-5);
    before_mlp_ = AddChild<nn::RmsNorm>("ln_2", kWidth, 1e-5);
  }
  at::Tensor forward(const at::Tensor& x, const nn::AttentionInputs& inputs) {
    at::Tensor h = x + attention_(before_mix_(x), inputs);
    return h + moe_(before_mlp_(h));
  }

 private:
  nn::Ref<GroupedQueryAttention> attention_;
  nn::Ref<nn::Moe> moe_;
  nn::Ref<nn::RmsNorm> before_mix_, before_mlp_;
};

// Its blocks are called list.0, list.1 and so on.
class SparseModel : public LanguageModel {
 public:
  SparseModel(const std::string& list, bool declares, int64_t max_length) {
    embeddings_ = AddChild<nn::Embedding>("wte", kVocab, kWidth, kInit);
    auto blocks = register_module(list, std::make_shared<nn::Module>());
    for (int64_t i = 0; i < kBlocks; ++i) {
      auto block = std::make_shared<SparseBlock>(nn::AttentionConfig(), declares);
      blocks_.emplace_back(blocks->register_module(std::to_string(i), std::move(block)));
    }
    norm_ = AddChild<nn::RmsNorm>("ln_f", kWidth, 1e-5);
    head_ = AddChild<nn::Linear>("lm_head", kWidth, kVocab, kInit);
    AddBuffer("rope", rope_, nn::RopeTable(max_length, kHeadWidth, {}), nn::BufferKind::kTable);
    nn::NameModules(*this);
  }

  at::Tensor Hidden(const ModelInputs& inputs) override {
    nn::AttentionInputs attention;
    attention.rotation = at::index(rope_, {inputs.positions});
    at::Tensor h = embeddings_(inputs.tokens);
    for (const auto& block : blocks_) h = block(h, attention);
    return norm_(h);
  }
  at::Tensor HeadWeight() const override { return head_->weight(); }
  int64_t vocab_size() const override { return kVocab; }
  int64_t FlopsPerToken(int64_t) const override { return 0; }
  int64_t ActiveParameters() const override { return 0; }
  std::vector<HfTensor> HfTensors() const override { return {}; }
  nlohmann::json HfConfigJson() const override { return {}; }

 private:
  nn::Ref<nn::Embedding> embeddings_;
  std::vector<nn::Ref<SparseBlock>> blocks_;
  nn::Ref<nn::RmsNorm> norm_;
  nn::Ref<nn::Linear> head_;
  at::Tensor rope_;
};

// Buckets, a memory policy with offload, and chunks whose tokens travel while others compute.
Config JobOf(CompileMode mode) {
  Config config;
  config.device = DeviceChoice::kCpu;
  config.threads = 1;
  config.ranks = 2;
  config.parallelism.expert_parallel_degree = 2;
  config.training.local_batch_size = 4;
  config.training.seq_len = 32;
  config.training.mixed_precision_param = ComputeDtype::kFloat32;
  config.training.memory_limit_gb = 1;
  config.compile.mode = mode;
  config.compile.memory_policy = MemoryPolicy::kSacAndOffload;
  config.compile.fsdp_bucketing = true;
  config.compile.enable_fsdp_ag_rs_overlap = true;
  config.compile.enable_fsdp_dense_region_overlap = true;
  config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
  return config;
}

// Parameters have the same values whatever they are called.
void FillByPosition(LanguageModel& model) {
  at::NoGradGuard no_gradients;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  for (at::Tensor& parameter : model.parameters()) {
    parameter.copy_(at::randn(parameter.sizes(), generator) * 0.05);
  }
}

struct Trained {
  std::vector<at::Tensor> tensors;  // losses, gradients and, at the end, parameters
  std::string graph;
};

Trained TrainRank(World& world, const Config& config, const std::string& list, bool declares) {
  const Mesh mesh(config.parallelism, world.size(), world.rank());
  auto model = std::make_shared<SparseModel>(list, declares, config.training.seq_len);
  nn::StoreAs(*model, at::kFloat);
  Parallelize(*model, world, mesh, config, at::kFloat);
  nn::Materialize(*model, at::kCPU, /*seed=*/1);
  FillByPosition(*model);
  Trained trained;
  std::unique_ptr<TrainStep> step;
  if (config.compile.mode == CompileMode::kEager) {
    step = MakeEagerStep(*model, LossConfigOf(config, *model));
  } else {
    CompiledStep compiled = Compile(
        {.model = *model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world});
    trained.graph = Print(*compiled.graph);
    step = MakeCapturedStep(*model, std::move(compiled));
  }
  AdamW optimizer(NamedParameters(*model), config.optimizer);
  const Batch batch = RandomBatch(config, kVocab);
  for (int i = 0; i < 3; ++i) {
    StepResult result = step->Run(batch, batch.valid_tokens * world.size());
    trained.tensors.push_back(result.loss.clone());
    for (const at::Tensor& gradient : result.gradients) trained.tensors.push_back(gradient.clone());
    optimizer.Step(OwnGradients(model->parameters(), result.gradients), 1e-2);
  }
  for (const at::Tensor& parameter : model->parameters()) trained.tensors.push_back(parameter);
  return trained;
}

// By rank.
std::vector<Trained> TrainBoth(const Config& config, const std::string& list,
                               bool declares = true) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  std::vector<Trained> ranks(2);
  World::Run(config, [&](World& world) {
    ranks[static_cast<size_t>(world.rank())] = TrainRank(world, config, list, declares);
  });
  return ranks;
}

void ExpectSame(const std::vector<Trained>& expected, const std::vector<Trained>& actual) {
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    const auto &ours = expected[rank].tensors, &theirs = actual[rank].tensors;
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(SameBits(ours[i], theirs[i])) << "rank " << rank << ", tensor " << i;
    }
  }
}

// The list h, and every h.0, h.1 and so on, becomes layers, layers.0, layers.1.
std::string Renamed(const std::string& text) {
  static const std::regex kList("([%\"])h(?=[.\"])");
  return std::regex_replace(text, kList, "$1layers");
}

TEST(BlockNames, BlocksCalledOtherwiseGiveTheSameStepAndTheSameBits) {
  const Config config = JobOf(CompileMode::kAotFxTrace);
  const std::vector<Trained> layers = TrainBoth(config, "layers"), h = TrainBoth(config, "h");
  ExpectSame(layers, h);
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto graph = Parse(h[rank].graph);
    EXPECT_EQ(Parse(Renamed(h[rank].graph))->Hash(), Parse(layers[rank].graph)->Hash());
    EXPECT_EQ(graph->modules().With(ModuleRole::kBlock).size(), size_t{kBlocks});
    std::set<std::string> buckets, regions;
    bool offloads = false;
    for (const Node* node : graph->nodes()) {
      buckets.insert(node->meta().fsdp_bucket.str());
      if (node->meta().chunk != nullptr) regions.insert(node->meta().chunk->region.str());
      offloads |= node->op().transfer == Transfer::kOffload;
    }
    EXPECT_TRUE(buckets.contains("h.1"));
    EXPECT_TRUE(regions.contains("h.1"));
    EXPECT_TRUE(offloads);
  }
}

TEST(BlockNames, EagerRunsReshardThemAlike) {
  Config config = JobOf(CompileMode::kEager);
  config.compile.ep_overlap.enabled = AutoSwitch::kFalse;
  ExpectSame(TrainBoth(config, "layers"), TrainBoth(config, "h"));
}

TEST(BlockNames, AModelWithoutBlocksIsToldSo) {
  const Config config = JobOf(CompileMode::kAotFxTrace);
  const std::vector<Trained> declared = TrainBoth(config, "layers");
  ::testing::internal::CaptureStderr();
  const std::vector<Trained> undeclared = TrainBoth(config, "layers", /*declares=*/false);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("no module of graph @train_step declares that it is a block, so "
                      "memory_policy, rematerialize, cpu_offload, bucket_fsdp, "
                      "fsdp_dense_regions will do little for it"),
            std::string::npos)
      << said;
  ExpectSame(declared, undeclared);

  Config eager = JobOf(CompileMode::kEager);
  eager.compile.ep_overlap.enabled = AutoSwitch::kFalse;
  ::testing::internal::CaptureStderr();
  TrainBoth(eager, "layers", /*declares=*/false);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("declares that it is a block"),
            std::string::npos);
}

}  // namespace
}  // namespace gt::block_names_test
