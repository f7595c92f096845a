// Chunked train steps: the pass `chunk` against modules that run chunk by chunk, bit by bit; what both
// say about their nodes; what is not repeated; and what is refused.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_advice.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/parallel/chunk_modules.h"
#include "gt/torch_bridge/generator.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/step.h"
#include "gt/train/step/step_test_util.h"

namespace gt::chunk_test {
namespace {

struct Region {
  const char *name, *modules;
  ChunkDim dim;
};
constexpr Region kRegions[] = {{"block_batch", "layers.*", ChunkDim::kBatch},
                               {"moe_batch", "layers.*.moe", ChunkDim::kBatch},
                               {"moe_seq", "layers.*.moe", ChunkDim::kSeq}};

Config JobOf(const char* model, const char* flavor, const Region& region, int64_t chunks) {
  Config config;
  config.device = DeviceChoice::kCpu;
  config.model.name = model;
  config.model.flavor = flavor;
  config.model.n_layers = 3;
  config.training.local_batch_size =
      5;  // neither extent is a multiple of any number of chunks here
  config.training.seq_len = 23;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  EpOverlapSection& overlap = config.compile.ep_overlap;
  overlap.enabled = AutoSwitch::kTrue;
  overlap.module_fqn = region.modules;
  overlap.chunk_dim = region.dim;
  overlap.num_chunks = chunks;
  overlap.disable_early_grad_accumulation = true;
  return config;
}

// Documents of different lengths, so that block-causal masks differ from row to row.
Batch DocumentBatch(const Config& config, int64_t vocab) {
  Batch batch = RandomBatch(config, vocab);
  int64_t rows = config.training.local_batch_size, length = config.training.seq_len;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t second = 3 + 4 * row;  // where this row's second document begins
    batch.positions[row].narrow(0, second, length - second).sub_(second);
  }
  return batch;
}

// The reference: modules that run in chunks. Captured as config says, or not at all.
Config EagerlyChunked(Config config) {
  config.compile.ep_overlap.strategy = ChunkStrategy::kEager;
  config.compile.ep_overlap.disable_early_grad_accumulation = false;
  return config;
}

Config Eager(Config config) {
  config.compile.mode = CompileMode::kEager;
  config.compile.memory_policy = MemoryPolicy::kNone;
  return EagerlyChunked(config);
}

// ---- bits ----

struct Case {
  const char *model, *flavor;
  Region region;
  AttentionBackend attention;
  int64_t chunks;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << fmt::format("{}_{}_{}_{}_chunks", c.model, c.region.name, EnumName(c.attention),
                            c.chunks);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (auto [model, flavor] : {std::pair{"deepseek_v3", "tiny"}, std::pair{"qwen3", "tiny_moe"}}) {
    for (const Region& region : kRegions) {
      for (AttentionBackend attention : {AttentionBackend::kSdpa, AttentionBackend::kFlex}) {
        for (int64_t chunks : {2, 3, 5})
          cases.push_back({model, flavor, region, attention, chunks});
      }
    }
  }
  return cases;
}

// A model and one batch for it, run under several configurations from the same buffers and seeds.
class Comparison {
 public:
  Comparison() { at::set_num_threads(1); }
  ~Comparison() { at::set_num_threads(threads_); }

  struct Outcome {
    StepResult result;
    std::vector<at::Tensor> buffers;
  };

  // Two steps: the second draws what the first has left, and counts on.
  Outcome Run(const Config& config) {
    GeneratorScope generator;
    ModelPtr model = BuildConfiguredModel(config);
    const EpOverlapSection& overlap = config.compile.ep_overlap;
    if (overlap.enabled == AutoSwitch::kTrue && overlap.strategy == ChunkStrategy::kEager)
      ChunkModules(*model, overlap);
    InitializeModel(*model, config, at::kCPU);
    Batch batch = DocumentBatch(config, model->vocab_size());
    std::unique_ptr<TrainStep> step =
        config.compile.mode == CompileMode::kEager
            ? MakeEagerStep(*model, LossConfigOf(config, *model))
            : MakeCapturedStep(*model,
                               Compile({.model = *model, .config = config, .device = at::kCPU}));
    SeedGenerator(at::kCPU, 11);
    step->Run(batch, batch.valid_tokens);
    Outcome outcome{step->Run(batch, batch.valid_tokens), {}};
    for (const at::Tensor& buffer : model->buffers()) outcome.buffers.push_back(buffer.clone());
    model_ = std::move(model);
    return outcome;
  }

  void ExpectSame(const Outcome& expected, const Config& config) {
    Outcome outcome = Run(config);
    ExpectSameBits(expected.result, outcome.result, *model_);
    ASSERT_EQ(expected.buffers.size(), outcome.buffers.size());
    for (size_t i = 0; i < expected.buffers.size(); ++i) {
      EXPECT_TRUE(SameBits(expected.buffers[i], outcome.buffers[i])) << "buffer " << i;
    }
  }

 private:
  ModelPtr model_;
  int threads_ = at::get_num_threads();
};

class ChunkedSteps : public ::testing::TestWithParam<Case> {};

TEST_P(ChunkedSteps, HaveTheBitsOfModulesThatRunInChunks) {
  const Case& c = GetParam();
  Config config = JobOf(c.model, c.flavor, c.region, c.chunks);
  config.model.attn = c.attention;
  if (c.attention == AttentionBackend::kFlex) {
    config.model.attn_mask_type = AttentionMask::kBlockCausal;
  }
  Comparison comparison;
  Comparison::Outcome expected = comparison.Run(Eager(config));
  {
    SCOPED_TRACE("the same modules, captured");
    comparison.ExpectSame(expected, EagerlyChunked(config));
  }
  SCOPED_TRACE("the pass");
  comparison.ExpectSame(expected, config);
}
INSTANTIATE_TEST_SUITE_P(TinyModels, ChunkedSteps, ::testing::ValuesIn(Cases()),
                         ::testing::PrintToStringParamName());

// Draws, recomputed and offloaded values, and chunks that do not cross module borders.
TEST(ChunkedStep, KeepsItsBitsUnderEveryOtherOption) {
  for (const Region& region : kRegions) {
    Config config = JobOf("deepseek_v3", "tiny", region, 2);
    config.model.dropout = 0.1;
    Comparison comparison;
    Comparison::Outcome expected = comparison.Run(Eager(config));
    for (MemoryPolicy policy : {MemoryPolicy::kNone, MemoryPolicy::kDefault, MemoryPolicy::kEager,
                                MemoryPolicy::kFull, MemoryPolicy::kSacAndOffload}) {
      SCOPED_TRACE(fmt::format("{}, memory policy {}", region.name, EnumName(policy)));
      config.compile.memory_policy = policy;
      comparison.ExpectSame(expected, config);
      comparison.ExpectSame(expected, EagerlyChunked(config));
    }
    SCOPED_TRACE(region.name);
    config.compile.memory_policy = MemoryPolicy::kNone;
    config.compile.ep_overlap.keep_chunks_across_roots = false;
    comparison.ExpectSame(expected, config);
    config.compile.ep_overlap.keep_chunks_across_roots = true;
    config.compile.executor = ExecutorKind::kReference;
    comparison.ExpectSame(expected, config);
    // One rank has no collective to add gradients before.
    config.compile.ep_overlap.disable_early_grad_accumulation = false;
    comparison.ExpectSame(expected, config);
  }
}

// Experts that are taken in turn, or drawn, belong to tokens like those that the router chooses.
TEST(ChunkedStep, KeepsItsBitsUnderForcedLoads) {
  for (auto [model, flavor] : {std::pair{"deepseek_v3", "tiny"}, std::pair{"qwen3", "tiny_moe"}}) {
    for (const Region& region : kRegions) {
      for (const char* load : {"balanced", "zipf:1.2"}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", model, region.name, load));
        Config config = JobOf(model, flavor, region, 2);
        config.debug.moe_load = load;
        Comparison comparison;
        Comparison::Outcome expected = comparison.Run(Eager(config));
        comparison.ExpectSame(expected, EagerlyChunked(config));
        comparison.ExpectSame(expected, config);
      }
    }
  }
}

TEST(ChunkedStep, LearnsWhatTheWholeOneDoes) {
  for (const Region& region : kRegions) {
    SCOPED_TRACE(region.name);
    Config config = JobOf("deepseek_v3", "debugmodel", region, 2);
    config.training.mixed_precision_param = ComputeDtype::kFloat32;
    Comparison comparison;
    Comparison::Outcome chunked = comparison.Run(config);
    config.compile.ep_overlap.enabled = AutoSwitch::kFalse;
    Comparison::Outcome whole = comparison.Run(config);
    EXPECT_NEAR(chunked.result.loss.item<double>(), whole.result.loss.item<double>(),
                1e-5 * whole.result.loss.item<double>());
    for (size_t i = 0; i < whole.result.gradients.size(); ++i) {
      const at::Tensor &a = chunked.result.gradients[i], &b = whole.result.gradients[i];
      EXPECT_LT((a - b).norm().item<double>(), 1e-4 * b.norm().item<double>() + 1e-9) << i;
    }
  }
}

// ---- graphs of many ranks ----

Config ManyRanks(const Region& region, int64_t chunks, bool strict) {
  Config config = JobOf("deepseek_v3", "tiny", region, chunks);
  config.ranks = 16;
  config.comm.backend = CommBackend::kFake;
  config.training.seq_len = 24;
  config.parallelism.expert_parallel_degree = 4;
  config.parallelism.data_parallel_replicate_degree = 2;
  config.compile.ep_overlap.disable_early_grad_accumulation = strict;
  // As chunking leaves them.
  config.compile.fsdp_bucketing = config.compile.enable_fsdp_ag_rs_overlap = false;
  config.compile.ep_overlap.schedule = OverlapSchedule::kNone;
  return config;
}

void WithGraph(const Config& config, const std::function<void(const Graph&)>& use) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  World::Run(config, [&](World& world) {
    Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    use(*Compile(
             {.model = *model, .config = config, .device = at::kCPU, .mesh = mesh, .world = &world})
             .graph);
  });
}

// Operators that prepare parameters or bring gradients home: collectives by kind and group, and casts
// of what mentions no symbol.
std::map<std::string, int> Collectives(const Config& config) {
  std::map<std::string, int> counts;
  WithGraph(config, [&](const Graph& graph) {
    for (const Node* node : graph.nodes()) {
      Collective kind = node->op().collective;
      if (kind != Collective::kNone && kind != Collective::kWait) {
        const auto& group = std::get<std::string>(node->arg(node->op().group_arg));
        ++counts[fmt::format("{} {}", node->op().name.str(), group)];
      }
      bool cast = node->op().name.str() == "aten::_to_copy" && node->operand(0)->is_input();
      if (cast) ++counts["casts of parameters"];
    }
  });
  return counts;
}

TEST(ChunkedGraph, RepeatsExchangesAndNothingThatPreparesParameters) {
  for (const Region& region : kRegions) {
    SCOPED_TRACE(region.name);
    Config whole = ManyRanks(region, 3, false);
    whole.compile.ep_overlap.enabled = AutoSwitch::kFalse;
    std::map<std::string, int> expected = Collectives(whole), strict = expected;
    for (auto& [name, count] : expected) {
      bool of_tokens = name.find("all_to_all") != std::string::npos;
      if (of_tokens) count *= 3;
    }
    EXPECT_EQ(Collectives(ManyRanks(region, 3, false)), expected);
    // Strict: each chunk's gradients travel, those of the chunked modules.
    std::map<std::string, int> found = Collectives(ManyRanks(region, 3, true));
    for (const auto& [name, count] : expected) {
      bool of_gradients = name.find("reduce") != std::string::npos;
      if (of_gradients) {
        EXPECT_GT(found[name], count) << name;
      } else {
        EXPECT_EQ(found[name], count) << name;
      }
    }
  }
}

// Modules that run in chunks prepare their parameters in each; the captured step prepares them once,
// as the step without chunks does, and once more for the backward where that repeats gathers.
TEST(ChunkedGraph, ChunksOfModulesShareGathersOfParameters) {
  for (const Region& region : kRegions) {
    for (auto reshard : {ReshardAfterForward::kNever, ReshardAfterForward::kAlways}) {
      SCOPED_TRACE(fmt::format("{}, reshard {}", region.name, EnumName(reshard)));
      Config config = ManyRanks(region, 3, true);
      config.parallelism.fsdp_reshard_after_forward = reshard;
      Config whole = config;
      whole.compile.ep_overlap.enabled = AutoSwitch::kFalse;
      std::map<std::string, int> without = Collectives(whole);
      std::map<std::string, int> found = Collectives(EagerlyChunked(config));
      for (const auto& [name, count] : without) {
        bool prepares = name.find("all_gather") != std::string::npos || name.starts_with("casts");
        if (prepares) {
          EXPECT_EQ(found[name], count) << name;
        }
      }
      EXPECT_EQ(found, Collectives(config)) << "the pass that cuts the graph";
      config.compile.disable_passes = {"cse"};
      std::map<std::string, int> once_per_chunk = Collectives(EagerlyChunked(config));
      EXPECT_GT(once_per_chunk["_c10d_functional::all_gather_into_tensor efsdp"],
                found["_c10d_functional::all_gather_into_tensor efsdp"]);
    }
  }
}

// Sharing among chunks keeps nothing from the forward of a block for its backward.
TEST(ChunkedGraph, SharedGathersEndWithTheForward) {
  Config config = EagerlyChunked(ManyRanks(kRegions[0], 3, true));
  config.parallelism.fsdp_reshard_after_forward = ReshardAfterForward::kAlways;
  WithGraph(config, [](const Graph& graph) {
    std::set<const Value*> gathered;
    for (const Node* node : graph.nodes()) {
      const Meta& meta = node->meta();
      if (node->op().collective == Collective::kAllGather && meta.phase == Phase::kForward &&
          meta.module.str().starts_with("layers.")) {
        gathered.insert(node->result());
      }
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        if (!gathered.contains(node->operand(i))) continue;
        EXPECT_NE(meta.phase, Phase::kBackward) << node->op().name.str();
        bool same_memory =
            node->op().collective == Collective::kWait || node->op().aliasing != Aliasing::kNone;
        if (same_memory) gathered.insert(node->result());
      }
    }
    EXPECT_FALSE(gathered.empty());
  });
}

// What a consumer of chunks sees of them: for each region, direction and chunk the labels of its
// exchanges, in order.
std::map<std::string, std::vector<std::string>> Exchanges(const Config& config) {
  std::map<std::string, std::vector<std::string>> exchanges;
  WithGraph(config, [&](const Graph& graph) {
    for (const Node* node : graph.nodes()) {
      const Meta& meta = node->meta();
      if (node->op().collective != Collective::kAllToAll) continue;
      ASSERT_NE(meta.chunk, nullptr);
      EXPECT_EQ(meta.chunk->role, ChunkRole::kBody);
      EXPECT_EQ(meta.chunk->backward, meta.phase == Phase::kBackward);
      exchanges[fmt::format("{} {} chunk {}", meta.chunk->region.str(), Spelling(meta.phase),
                            meta.chunk->id)]
          .push_back(fmt::format("{} {}", Spelling(meta.ep_role), Spelling(meta.exchange)));
    }
  });
  return exchanges;
}

TEST(ChunkedGraph, LooksTheSameToConsumersWhicheverProducerMadeIt) {
  for (const Region& region : kRegions) {
    SCOPED_TRACE(region.name);
    Config config = ManyRanks(region, 3, true);
    auto graph = Exchanges(config);
    EXPECT_EQ(graph, Exchanges(EagerlyChunked(config)));
    const std::vector<std::string> forward = {"dispatch count_exchange", "dispatch exchange",
                                              "combine exchange"};
    const std::vector<std::string> backward = {"combine exchange", "dispatch exchange"};
    for (const auto& [where, labels] : graph) {
      EXPECT_EQ(labels, where.find("forward") != std::string::npos ? forward : backward) << where;
    }
    // Two of the three layers have experts.
    EXPECT_EQ(graph.size(), 2u * 2 * 3);
  }
}

TEST(ChunkedGraph, MarksWhatItMakesAtTheBordersOfItsRegions) {
  for (ChunkStrategy strategy : {ChunkStrategy::kEager, ChunkStrategy::kGraph}) {
    Config config = ManyRanks(kRegions[1], 2, true);
    config.compile.ep_overlap.strategy = strategy;
    if (strategy == ChunkStrategy::kEager) config = EagerlyChunked(config);
    SCOPED_TRACE(std::string(EnumName(strategy)));
    std::map<std::pair<ChunkRole, bool>, std::set<std::string>> operators;
    WithGraph(config, [&](const Graph& graph) {
      for (const Node* node : graph.nodes()) {
        const ChunkMeta* chunk = node->meta().chunk.get();
        if (chunk == nullptr) continue;
        bool eager = chunk->producer == ChunkProducer::kEager;
        EXPECT_EQ(eager, strategy == ChunkStrategy::kEager);
        bool of_all =
            chunk->role == ChunkRole::kSplitBoundary || chunk->role == ChunkRole::kMaterialization;
        EXPECT_EQ(chunk->id == -1, of_all) << node->op().name.str();
        operators[{chunk->role, chunk->backward}].insert(node->op().name.str());
      }
    });
    for (bool backward : {false, true}) {
      EXPECT_TRUE(
          (operators[{ChunkRole::kSplitBoundary, backward}].contains("aten::split_with_sizes")) ||
          (operators[{ChunkRole::kSplitBoundary, backward}].contains("aten::slice.Tensor")));
      EXPECT_TRUE((operators[{ChunkRole::kMaterialization, backward}].contains("aten::cat")));
    }
  }
}

TEST(ChunkedGraph, HasNoSymbolOfTheBatchLeft) {
  WithGraph(ManyRanks(kRegions[0], 2, false), [](const Graph& graph) {
    EXPECT_TRUE(graph.shapes().guards().empty());
    for (const Node* node : graph.nodes()) {
      for (int32_t i = 0; i < node->result_count(); ++i) {
        for (const Dim& size : node->result(i)->type().sizes) {
          size.ForEachSymbol(
              [&](SymbolId id) { EXPECT_EQ(graph.shapes().symbol(id).kind, Symbol::Kind::kData); });
        }
      }
    }
  });
}

// ---- what is refused ----

std::string Refusal(const Config& config, ErrorCode code) {
  try {
    WithGraph(config, [](const Graph&) {});
  } catch (const Error& error) {
    EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ChunkedJob, RefusesSequencesThroughAttention) {
  Config config = ManyRanks({"", "layers.*", ChunkDim::kSeq}, 2, false);
  for (const Config& job : {config, EagerlyChunked(config)}) {
    std::string message = Refusal(job, ErrorCode::kChunkAttention);
    EXPECT_NE(message.find("layers.1"), std::string::npos) << message;
  }
}

TEST(ChunkedJob, RefusesPatternsWithoutExperts) {
  for (const char* pattern : {"layers.*.attention", "norm", "blocks.*"}) {
    Config config = ManyRanks({"", pattern, ChunkDim::kBatch}, 2, false);
    for (const Config& job : {config, EagerlyChunked(config)}) {
      std::string message = Refusal(job, ErrorCode::kNothingToChunk);
      EXPECT_NE(message.find(pattern), std::string::npos) << message;
    }
  }
}

TEST(ChunkedJob, AcceptsAnyPatternWhoseRootsMakeSense) {
  for (const char* pattern : {"layers.1", "**.moe", "layers.2.moe", "*.*"}) {
    Config config = ManyRanks({"", pattern, ChunkDim::kBatch}, 2, true);
    config.compile.ep_overlap.num_chunks = 4;
    WithGraph(config, [&](const Graph& graph) {
      std::set<int32_t> ids;
      for (const Node* node : graph.nodes()) {
        if (node->meta().chunk) ids.insert(node->meta().chunk->id);
      }
      EXPECT_TRUE(ids.contains(3)) << pattern;
    });
  }
}

// Patterns that name the list of blocks, every module, or the model select what runs: its blocks. A list is
// never called, so neither strategy could cut it.
TEST(ChunkedJob, CutsTheBlocksOfAListWithEitherStrategy) {
  const Region blocks = kRegions[0];
  Comparison comparison;
  const Comparison::Outcome expected =
      comparison.Run(EagerlyChunked(JobOf("deepseek_v3", "tiny", blocks, 2)));
  for (const char* pattern : {"layers", "*", "**"}) {
    SCOPED_TRACE(pattern);
    const Config config = JobOf("deepseek_v3", "tiny", {"", pattern, ChunkDim::kBatch}, 2);
    for (const Config& job : {config, EagerlyChunked(config), Eager(config)}) {
      comparison.ExpectSame(expected, job);
    }
    const Config many = ManyRanks({"", pattern, ChunkDim::kBatch}, 2, true);
    EXPECT_EQ(Exchanges(many), Exchanges(EagerlyChunked(many)));
    EXPECT_EQ(Exchanges(many), Exchanges(ManyRanks(blocks, 2, true)));
  }
}

TEST(ChunkedJob, RefusalsNameThePatternsThatWork) {
  const auto refusal = [](const char* pattern, ChunkDim dim, ErrorCode code) {
    const Config config = ManyRanks({"", pattern, dim}, 2, false);
    const std::string message = Refusal(config, code);
    EXPECT_EQ(message, Refusal(EagerlyChunked(config), code));
    EXPECT_NE(message.find("'layers.*.moe'"), std::string::npos) << message;
    return message;
  };
  std::string message = refusal("layers.*", ChunkDim::kSeq, ErrorCode::kChunkAttention);
  EXPECT_EQ(message.find("'layers.*' for whole blocks"), std::string::npos) << message;
  refusal("layers", ChunkDim::kSeq, ErrorCode::kChunkAttention);
  message = refusal("layers.*.attention", ChunkDim::kBatch, ErrorCode::kNothingToChunk);
  EXPECT_NE(message.find("layers.0.attention and 2 more"), std::string::npos) << message;
  EXPECT_NE(message.find("'layers.*' for whole blocks"), std::string::npos) << message;
  message = refusal("blocks.*", ChunkDim::kBatch, ErrorCode::kNothingToChunk);
  EXPECT_NE(message.find("matches no module"), std::string::npos) << message;

  Config dense = ManyRanks(kRegions[0], 2, false);
  dense.model.name = "llama3";
  dense.parallelism.expert_parallel_degree = 1;
  message = Refusal(dense, ErrorCode::kNothingToChunk);
  EXPECT_NE(message.find("no mixture of experts"), std::string::npos) << message;
}

TEST(ChunkedJob, GetsAdviceThatItsChunksAllow) {
  Config config = ManyRanks(kRegions[0], 2, false);
  config.training.local_batch_size = 2;
  World::Run(config, [&](World& world) {
    Mesh mesh(config.parallelism, world.size(), world.rank());
    std::string advice = MemoryAdvice(config, world, mesh, at::kCPU, int64_t{1} << 30);
    EXPECT_NE(advice.find("--training.local_batch_size 1 --compile.ep_overlap.enabled=false"),
              std::string::npos)
        << advice;
  });
}

// ---- modules with other signatures ----

class Odd : public nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x, int64_t) { return x; }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) {
    return {x * 2, y + 1};
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) { return {x, x.sum(1, true)}; }
};

class Summing : public nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) { return x.sum(0); }
};

class Counting : public nn::Module {
 public:
  int64_t forward(const at::Tensor& x) { return x.size(0); }
};

class Holder : public nn::Module {
 public:
  Holder() {
    odd = AddChild<Odd>("odd");
    summing = AddChild<Summing>("summing");
    counting = AddChild<Counting>("counting");
    nn::NameModules(*this);
    for (nn::Module* module : nn::ModulesOf(*this)) module->set_chunking({.dim = 0, .count = 3});
  }
  nn::Ref<Odd> odd;
  nn::Ref<Summing> summing;
  nn::Ref<Counting> counting;
};

TEST(ModuleInChunks, PutsTuplesAndListsTogetherAgain) {
  Holder holder;
  at::Tensor x = at::arange(8, at::kFloat).view({4, 2}), y = at::arange(4, at::kFloat);
  auto [twice, more] = holder.odd(x, y);
  EXPECT_TRUE(twice.equal(x * 2));
  EXPECT_TRUE(more.equal(y + 1));
  std::vector<at::Tensor> list = holder.odd(x);
  EXPECT_TRUE(list[1].equal(x.sum(1, true)));
}

TEST(ModuleInChunks, RefusesWhatHasNoChunksAndNamesRootAndInput) {
  Holder holder;
  at::Tensor x = at::ones({4, 2});
  auto refusal = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(CodeName(error.code()), CodeName(ErrorCode::kChunkSignature)) << error.what();
      return std::string(error.what());
    }
    ADD_FAILURE() << "no error";
    return std::string();
  };
  std::string message = refusal([&] { holder.odd(x, int64_t{3}); });
  EXPECT_NE(message.find("odd"), std::string::npos) << message;
  EXPECT_NE(message.find("input 2 is long"), std::string::npos) << message;
  message = refusal([&] { holder.odd(x, at::ones({5, 2})); });
  EXPECT_NE(message.find("input 2 is a tensor of shape [5, 2]"), std::string::npos) << message;
  message = refusal([&] { holder.summing(x); });
  EXPECT_NE(message.find("summing"), std::string::npos) << message;
  message = refusal([&] { holder.counting(x); });
  EXPECT_NE(message.find("returns long"), std::string::npos) << message;
  message = refusal([&] { holder.summing(at::ones({})); });
  EXPECT_NE(message.find("input 1"), std::string::npos) << message;
}

TEST(ModuleInChunks, MustBeCalledAsAModule) {
  Holder holder;
  std::vector<nn::Module*> chunked = {&*holder.odd, &*holder.summing};
  const at::Tensor x = at::ones({4, 2});
  holder.odd(x, x);
  holder.summing->forward(x);  // past nn::Ref: runs whole
  try {
    RequireCalled(chunked);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNothingToChunk);
    EXPECT_NE(std::string(error.what()).find("summing"), std::string::npos) << error.what();
  }
  chunked.pop_back();
  EXPECT_NO_THROW(RequireCalled(chunked));
}

TEST(ModuleInChunks, NeedsAnElementForEachChunk) {
  Holder holder;
  try {
    holder.summing(at::ones({2, 2}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kChunkExtent);
  }
}

}  // namespace
}  // namespace gt::chunk_test
