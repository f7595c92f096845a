// Training on many ranks: against one rank on the same batches, eager against captured, threads against
// processes, and from one layout to another.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "gt/base/error.h"
#include "gt/compile/configured_model.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/testing/slow_tests.h"
#include "gt/train/job_test_util.h"
#include "gt/train/step_plan.h"

namespace gt::ranks_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLength = 32;

// A layout of ranks, and what runs on it.
struct Layout {
  std::string name;
  std::string model, flavor;
  int64_t ranks = 4;
  int64_t replicate = 1, cp = 1, tp = 1, ep = 1;

  int64_t readers() const { return ranks / (cp * tp); }
  // Of a batch on all ranks: eight, or more if those cannot be dealt out evenly.
  int64_t rows() const { return (7 + readers()) / readers() * readers(); }
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

const Layout kLayouts[] = {
    {.name = "llama3_fsdp4", .model = "llama3", .flavor = "tiny"},
    {.name = "llama3_tp2_fsdp2", .model = "llama3", .flavor = "tiny", .tp = 2},
    {.name = "llama3_hsdp_2x2", .model = "llama3", .flavor = "tiny", .replicate = 2},
    {.name = "llama3_cp2_fsdp2", .model = "llama3", .flavor = "tiny", .cp = 2},
    {.name = "qwen3_tp2_fsdp2", .model = "qwen3", .flavor = "tiny", .tp = 2},
    {.name = "deepseek_v3_ep4", .model = "deepseek_v3", .flavor = "tiny", .ep = 4},
    {.name = "deepseek_v3_ep2_fsdp4", .model = "deepseek_v3", .flavor = "tiny", .ep = 2},
    {.name = "deepseek_v3_ep4_tp2_fsdp2",
     .model = "deepseek_v3",
     .flavor = "tiny",
     .tp = 2,
     .ep = 4},
    {.name = "qwen3_moe_ep4", .model = "qwen3", .flavor = "tiny_moe", .ep = 4},
};

// More ways to combine them, for which eager against captured and against one rank is enough.
const Layout kFurtherLayouts[] = {
    {.name = "llama3_replicas_alone", .model = "llama3", .flavor = "tiny", .replicate = 4},
    {.name = "llama3_tp2_cp2", .model = "llama3", .flavor = "tiny", .cp = 2, .tp = 2},
    {.name = "deepseek_v3_tp2_fsdp2", .model = "deepseek_v3", .flavor = "tiny", .tp = 2},
    {.name = "deepseek_v3_hsdp_ep2",
     .model = "deepseek_v3",
     .flavor = "tiny",
     .replicate = 2,
     .ep = 2},
    {.name = "deepseek_v3_cp2_ep4", .model = "deepseek_v3", .flavor = "tiny", .cp = 2, .ep = 4},
    {.name = "qwen3_moe_replica2_tp2_ep2",
     .model = "qwen3",
     .flavor = "tiny_moe",
     .replicate = 2,
     .tp = 2,
     .ep = 2},
};

// Shards of different sizes, empty ones among them: three ranks for what does not divide by three. The
// ranks of a shard and its replicas have sizes of their own.
const Layout kUnevenLayouts[] = {
    {.name = "llama3_hsdp_2x3", .model = "llama3", .flavor = "tiny", .ranks = 6, .replicate = 2},
    {.name = "llama3_hsdp_3x3", .model = "llama3", .flavor = "tiny", .ranks = 9, .replicate = 3},
    {.name = "qwen3_hsdp_2x3_tp2",
     .model = "qwen3",
     .flavor = "tiny",
     .ranks = 12,
     .replicate = 2,
     .tp = 2},
    {.name = "deepseek_v3_ep2_efsdp3",
     .model = "deepseek_v3",
     .flavor = "tiny",
     .ranks = 6,
     .ep = 2},
    {.name = "deepseek_v3_hsdp_2x6_ep2",
     .model = "deepseek_v3",
     .flavor = "tiny",
     .ranks = 12,
     .replicate = 2,
     .ep = 2},
    {.name = "qwen3_moe_hsdp_3x6_ep2",
     .model = "qwen3",
     .flavor = "tiny_moe",
     .ranks = 18,
     .replicate = 3,
     .ep = 2},
};

class RanksTest : public ::testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("gt_ranks_test_{}", getpid());
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    // As an .npy file: every rank's rows are known, so one rank can be given the batches of many.
    WriteLearnableRows(folder_ / "rows.npy", 256, kLength);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Config OneRank(const Layout& layout) const {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.threads = 1;
    config.model.name = layout.model;
    config.model.flavor = layout.flavor;
    config.model.tokenizer_path = "bytes";
    config.training.dataset_path = {(folder_ / "rows.npy").string()};
    config.training.seq_len = kLength;
    config.training.local_batch_size = layout.rows();
    config.training.steps = 20;
    config.training.deterministic = true;
    config.checkpoint.last_save_in_hf = false;
    config.dump_folder = (folder_ / "one").string();
    config.overwrite = true;
    config.comm.train_timeout_seconds = 60;
    return config;
  }

  Config ManyRanks(const Layout& layout, const std::string& name) const {
    Config config = OneRank(layout);
    config.ranks = layout.ranks;
    config.training.local_batch_size = layout.rows() / layout.readers();
    config.parallelism.data_parallel_replicate_degree = layout.replicate;
    config.parallelism.context_parallel_degree = layout.cp;
    config.parallelism.tensor_parallel_degree = layout.tp;
    config.parallelism.expert_parallel_degree = layout.ep;
    config.dump_folder = (folder_ / name).string();
    config.overwrite = true;
    return config;
  }

  using Outcome = JobOutcome;
  static Outcome Run(const Config& config) { return RunJob(config); }
  Outcome RunProcesses(const Config& config) const { return RunJobInProcesses(config, folder_); }

  void ExpectWhatOneRankLearns(const Layout& layout, int64_t steps);

  static std::string MessageOf(const Config& config, ErrorCode code) {
    try {
      Train(config);
    } catch (const Error& error) {
      EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  fs::path folder_;
};

void RanksTest::ExpectWhatOneRankLearns(const Layout& layout, int64_t steps) {
  Config single = OneRank(layout);
  single.training.steps = steps;
  Outcome one = Run(single);
  Config config = ManyRanks(layout, "captured");
  config.training.steps = steps;
  Outcome captured = Run(config);
  ASSERT_EQ(captured.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(captured.losses[i], one.losses[i], 1e-5 * one.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(captured.norms[i], one.norms[i], 1e-4 * one.norms[i]) << "step " << i + 1;
  }
  if (steps >= 20) EXPECT_LT(captured.losses.back(), captured.losses.front());
  config.compile.mode = CompileMode::kEager;
  config.dump_folder += "_eager";
  EXPECT_EQ(Run(config), captured) << "eager against captured";
}

TEST_P(RanksTest, FourRanksLearnWhatOneDoes) { ExpectWhatOneRankLearns(GetParam(), 20); }

// Chunks of three, of five rows or of positions that are no multiple of three.
class ChunkedRanksTest : public RanksTest {
 protected:
  Config Chunked(const char* modules, ChunkDim dim, const std::string& name) const {
    Config config = ManyRanks(GetParam(), name);
    config.training.steps = 3;
    config.training.local_batch_size = 5;
    config.training.mixed_precision_param = ComputeDtype::kBfloat16;
    config.metrics.hashes = true;
    config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
    config.compile.ep_overlap.module_fqn = modules;
    config.compile.ep_overlap.chunk_dim = dim;
    config.compile.ep_overlap.num_chunks = 3;
    return config;
  }

  void ExpectEagerBits(const char* modules, ChunkDim dim) {
    Config config = Chunked(modules, dim, "eager");
    config.compile.mode = CompileMode::kEager;
    config.compile.ep_overlap.strategy = ChunkStrategy::kEager;
    Outcome expected = Run(config);
    ASSERT_EQ(expected.hashes.size(), 3u * 3);
    config = Chunked(modules, dim, "strict");
    config.compile.ep_overlap.disable_early_grad_accumulation = true;
    EXPECT_EQ(Run(config), expected) << "each chunk's gradients on their own";
    config = Chunked(modules, dim, "early");
    Outcome early = Run(config);
    ASSERT_EQ(early.losses.size(), expected.losses.size());
    for (size_t i = 0; i < early.losses.size(); ++i) {
      EXPECT_NEAR(early.losses[i], expected.losses[i], 1e-6 * expected.losses[i]) << i;
    }
  }
};

TEST_P(ChunkedRanksTest, BlocksAlongTheBatch) { ExpectEagerBits("layers.*", ChunkDim::kBatch); }
TEST_P(ChunkedRanksTest, ExpertsAlongTheBatch) {
  ExpectEagerBits("layers.*.moe", ChunkDim::kBatch);
}
TEST_P(ChunkedRanksTest, ExpertsAlongTheSequence) {
  ExpectEagerBits("layers.*.moe", ChunkDim::kSeq);
}

std::vector<Layout> LayoutsOfExperts() {
  std::vector<Layout> layouts(std::begin(kLayouts), std::end(kLayouts));
  layouts.insert(layouts.end(), std::begin(kFurtherLayouts), std::end(kFurtherLayouts));
  std::erase_if(layouts, [](const Layout& layout) { return layout.ep == 1; });
  return layouts;
}

// What hides communication, in the order of the pipeline: all passes, both schedules, and, on the first
// layout or where slow tests are wanted, each pass alone and every prefix of them, against eager chunks.
class OverlappedRanksTest : public ChunkedRanksTest {
 protected:
  static constexpr std::array kPasses = {"isolate_ep_process_group",  "separate_count_exchanges",
                                         "reassign_fsdp_all_gathers", "bucket_fsdp",
                                         "ep_overlap_schedule",       "fsdp_dense_regions"};

  Config Overlapped(const char* modules, ChunkDim dim, const std::string& name) const {
    Config config = Chunked(modules, dim, name);
    config.training.steps = 2;
    config.comm.share_groups = true;  // so that there is something to isolate
    config.compile.enable_fsdp_dense_region_overlap = true;
    config.compile.ep_overlap.disable_early_grad_accumulation = true;
    return config;
  }

  static bool EverySubset() {
    return testing::SlowTestsWanted() || GetParam().name == LayoutsOfExperts()[0].name;
  }

  void ExpectEagerBitsOfAll(const char* modules, ChunkDim dim) {
    Config config = Overlapped(modules, dim, "eager");
    config.compile.mode = CompileMode::kEager;
    config.compile.ep_overlap.strategy = ChunkStrategy::kEager;
    config.compile.ep_overlap.disable_early_grad_accumulation = false;
    const Outcome expected = Run(config);
    const size_t all = kPasses.size() - 1;
    for (size_t last = EverySubset() ? 0 : all; last <= all; ++last) {
      for (size_t first : {size_t{0}, EverySubset() ? last : all}) {
        SCOPED_TRACE(fmt::format("{} to {}", kPasses[first], kPasses[last]));
        config = Overlapped(modules, dim, "some");
        for (size_t i = 0; i < kPasses.size(); ++i) {
          if (i < first || i > last) config.compile.disable_passes.emplace_back(kPasses[i]);
        }
        EXPECT_EQ(Run(config), expected);
      }
    }
    config = Overlapped(modules, dim, "structural");
    config.compile.ep_overlap.schedule = OverlapSchedule::kStructural;
    EXPECT_EQ(Run(config), expected);
    config = Overlapped(modules, dim, "far");
    config.compile.ep_overlap.memory_headroom = 10;
    config.compile.fsdp_prefetch = 2;
    EXPECT_EQ(Run(config), expected);
  }
};

TEST_P(OverlappedRanksTest, BlocksAlongTheBatch) {
  ExpectEagerBitsOfAll("layers.*", ChunkDim::kBatch);
}
TEST_P(OverlappedRanksTest, ExpertsAlongTheSequence) {
  ExpectEagerBitsOfAll("layers.*.moe", ChunkDim::kSeq);
}

INSTANTIATE_TEST_SUITE_P(Layouts, OverlappedRanksTest, ::testing::ValuesIn(LayoutsOfExperts()),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Layouts, ChunkedRanksTest, ::testing::ValuesIn(LayoutsOfExperts()),
                         ::testing::PrintToStringParamName());

// Layouts whose ranks have shards of different sizes.
class UnevenRanksTest : public RanksTest {};
class UnevenStepsTest : public ChunkedRanksTest {};

TEST_P(UnevenRanksTest, LearnWhatOneRankDoes) { ExpectWhatOneRankLearns(GetParam(), 3); }

// Whatever is packed together, re-gathered or hidden: the bits are those of the eager run.
TEST_P(UnevenStepsTest, PackedAndHiddenTheyGiveTheSameBits) {
  const bool experts = GetParam().ep > 1;
  auto configured = [&](const char* name) {
    if (experts) return Chunked("layers.*", ChunkDim::kBatch, name);
    Config config = ManyRanks(GetParam(), name);
    config.training.mixed_precision_param = ComputeDtype::kBfloat16;
    config.metrics.hashes = true;
    return config;
  };
  Config config = configured("eager");
  config.training.steps = 2;
  config.compile.mode = CompileMode::kEager;
  config.compile.ep_overlap.strategy = ChunkStrategy::kEager;
  const Outcome expected = Run(config);
  ASSERT_EQ(expected.hashes.size(), 2u * 3);
  for (bool buckets : {false, true}) {
    for (auto schedule : {OverlapSchedule::kCost, OverlapSchedule::kStructural}) {
      if (schedule == OverlapSchedule::kStructural && !(experts && buckets)) continue;
      SCOPED_TRACE(fmt::format("buckets {}, schedule {}", buckets, EnumName(schedule)));
      config = configured("captured");
      config.training.steps = 2;
      config.compile.fsdp_bucketing = buckets;
      config.compile.ep_overlap.schedule = schedule;
      config.compile.ep_overlap.disable_early_grad_accumulation = true;
      config.compile.enable_fsdp_dense_region_overlap = experts && buckets;
      EXPECT_EQ(Run(config), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Uneven, UnevenRanksTest, ::testing::ValuesIn(kUnevenLayouts),
                         ::testing::PrintToStringParamName());
// Eighteen ranks take too long for this one.
INSTANTIATE_TEST_SUITE_P(Uneven, UnevenStepsTest,
                         ::testing::ValuesIn(std::begin(kUnevenLayouts),
                                             std::end(kUnevenLayouts) - 1),
                         ::testing::PrintToStringParamName());

TEST_P(RanksTest, ThreadsProcessesAndAnotherRunAgree) {
  Config config = ManyRanks(GetParam(), "first");
  config.training.steps = 6;
  Outcome first = Run(config);
  config.dump_folder = (folder_ / "second").string();
  EXPECT_EQ(Run(config), first) << "another run";
  config.dump_folder = (folder_ / "processes").string();
  EXPECT_EQ(RunProcesses(config), first) << "processes against threads";
}

INSTANTIATE_TEST_SUITE_P(Layouts, RanksTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return info.param.name; });

using RanksJobTest = RanksTest;

TEST_F(RanksJobTest, UnevenReplicasAreTheSameAsThreadsAndProcesses) {
  Config config = ManyRanks(kUnevenLayouts[0], "threads");
  config.training.steps = 3;
  Outcome threads = Run(config);
  config.dump_folder = (folder_ / "processes").string();
  EXPECT_EQ(RunProcesses(config), threads);
}

TEST_F(RanksJobTest, FurtherLayoutsLearnWhatOneRankDoes) {
  for (const Layout& layout : kFurtherLayouts) {
    SCOPED_TRACE(layout.name);
    ExpectWhatOneRankLearns(layout, 5);
  }
}

// Five experts' worth of rows, a norm of 32 channels over four ranks, a vocabulary that does not
// divide: shards of different sizes.
TEST_F(RanksJobTest, UnevenShardsLearnTheSame) {
  Config one = OneRank(kLayouts[0]);
  one.model.vocab_size = 259;
  one.training.steps = 6;
  Config three = ManyRanks(kLayouts[0], "three");
  three.model.vocab_size = 259;
  three.training.steps = 6;
  three.ranks = 3;
  three.training.local_batch_size = 2;
  one.training.local_batch_size = 6;
  Outcome expected = Run(one), actual = Run(three);
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-5 * expected.losses[i]);
  }
}

// Ranks with shards of different sizes arrive at the same schedule.
TEST_F(RanksJobTest, UnevenShardsOverlapAlike) {
  for (double headroom : {0.0, 0.02, 1.0}) {
    Config config = ManyRanks(LayoutsOfExperts()[1], "uneven");
    config.model.vocab_size = 259;
    config.training.steps = 2;
    config.training.local_batch_size = 4;
    config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
    config.compile.ep_overlap.memory_headroom = headroom;
    EXPECT_EQ(Run(config).losses.size(), 2u);
  }
}

TEST_F(RanksJobTest, KeptAndRepeatedGathersGiveTheSameBits) {
  for (CompileMode mode : {CompileMode::kEager, CompileMode::kAotFxTrace}) {
    Config config = ManyRanks(kLayouts[6], "kept");
    config.compile.mode = mode;
    config.training.steps = 4;
    config.parallelism.fsdp_reshard_after_forward = ReshardAfterForward::kNever;
    Outcome kept = Run(config);
    config.parallelism.fsdp_reshard_after_forward = ReshardAfterForward::kAlways;
    EXPECT_EQ(Run(config), kept);
  }
}

// Recomputing instead of keeping changes no bit, on one rank and on many.
TEST_F(RanksJobTest, EveryMemoryPolicyGivesTheSameBits) {
  for (const Layout& layout : {kLayouts[1], kLayouts[4], kLayouts[6], kLayouts[8]}) {
    for (bool many : {false, true}) {
      Config config = many ? ManyRanks(layout, "policy") : OneRank(layout);
      config.training.steps = 3;
      config.model.dropout = many ? 0.1 : 0.0;  // without it: memory_test.cc
      Outcome kept = Run(config);
      for (MemoryPolicy policy : {MemoryPolicy::kDefault, MemoryPolicy::kEager, MemoryPolicy::kFull,
                                  MemoryPolicy::kSacAndOffload}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", layout.name, many, EnumName(policy)));
        config.compile.memory_policy = policy;
        EXPECT_EQ(Run(config), kept);
      }
      config.compile.memory_policy = MemoryPolicy::kFull;
      config.compile.full_recompute_save_ops = {"layers.*.attention.**::aten::mm"};
      EXPECT_EQ(Run(config), kept);
    }
  }
}

TEST_F(RanksJobTest, HalfPrecisionAndAccumulationAgree) {
  Config config = ManyRanks(kLayouts[7], "half");
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.training.local_batch_size = 2;
  config.training.global_batch_size = 8;
  config.training.steps = 4;
  config.training.z_loss_coeff = 1e-4;
  Outcome captured = Run(config);
  config.compile.mode = CompileMode::kEager;
  EXPECT_EQ(Run(config), captured);
}

const Layout kTwo = {.name = "llama3_fsdp2", .model = "llama3", .flavor = "tiny", .ranks = 2};

// Dumps of passes tell that a graph was made.
TEST_F(RanksJobTest, AnEagerJobCapturesNothing) {
  for (CompileMode mode : {CompileMode::kEager, CompileMode::kAotFxTrace}) {
    Config config = ManyRanks(kTwo, fmt::format("dumps_{}", EnumName(mode)));
    config.compile.mode = mode;
    config.compile.debug_graph_passes = true;
    config.training.steps = 1;
    Train(config);
    EXPECT_EQ(fs::exists(fs::path(config.dump_folder) / "passes/rank_0"),
              mode == CompileMode::kAotFxTrace);
  }
}

// Each rank dumps into a folder of its own, and every dump has a number of its own, also across the
// pipelines of a step whose order follows the load of its experts.
TEST_F(RanksJobTest, DumpsArePerRankAndNumbersRunOn) {
  Config config = ManyRanks(
      {.name = "", .model = "deepseek_v3", .flavor = "tiny", .ranks = 2, .ep = 2}, "dumps");
  config.training.steps = 3;
  config.compile.debug_graph_passes = true;
  config.compile.debug_graph_passes_ranks = {"all"};
  config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
  config.compile.ep_overlap.replan_interval = 1;
  config.debug.moe_load = "zipf:1.5";
  Train(config);
  const auto dumps = [&config](int64_t rank) {
    std::set<std::string> names;
    const fs::path folder = fs::path(config.dump_folder) / "passes" / fmt::format("rank_{}", rank);
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
  };
  const std::set<std::string> names = dumps(0);
  EXPECT_EQ(names, dumps(1));
  std::map<std::string, std::set<std::string>> passes;  // by number
  std::set<std::string> pipelines;
  for (const std::string& name : names) {
    const std::regex form(R"((\d+)_([a-z_0-9]+)\.([a-z_0-9]+)\.[a-z.]+)");
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(name, parts, form)) << name;
    passes[parts[1]].insert(parts[2].str() + "." + parts[3].str());
    pipelines.insert(parts[2]);
  }
  for (const auto& [number, named] : passes) EXPECT_EQ(named.size(), 1U) << number;
  EXPECT_GE(pipelines.size(), 2U) << "the step was not planned again";
  config.compile.debug_graph_passes_ranks = {"1"};
  config.overwrite = true;
  Train(config);
  EXPECT_FALSE(fs::exists(fs::path(config.dump_folder) / "passes/rank_0"));
  EXPECT_TRUE(fs::exists(fs::path(config.dump_folder) / "passes/rank_1"));
}

// The first rank moves profiles of an earlier run away before another writes its own.
TEST_F(RanksJobTest, EveryRankLeavesItsProfile) {
  Config config =
      ManyRanks({.name = "", .model = "llama3", .flavor = "tiny", .ranks = 4}, "profiled");
  config.training.steps = 1;
  config.profiling.steps = "1";
  for (int run = 0; run < 3; ++run) {
    Train(config);
    for (const char* folder : {"", "previous/"}) {
      if (run == 0 && *folder != '\0') continue;
      for (const char* file : {"step_1.json", "step_1_rank_1.json", "step_1_rank_2.json",
                               "step_1_rank_3.json", "costs.json"}) {
        const fs::path path = fs::path(config.dump_folder) / folder / "profile" / file;
        EXPECT_TRUE(fs::exists(path)) << path;
      }
    }
  }
}

// Eager ranks whose files describe different models are refused before they wait for each other.
TEST_F(RanksJobTest, EagerRanksCompareTheirModels) {
  const Config config = ManyRanks(kTwo, "models");
  auto compare = [&](int64_t more_layers) {
    World::Run(config, [&](World& world) {
      Config own = config;
      own.model.n_layers = 2 + more_layers * world.rank();
      ModelPtr model = BuildConfiguredModel(own);
      AgreeOnModel(world, *model);
    });
  };
  EXPECT_NO_THROW(compare(0));
  try {
    compare(1);
    ADD_FAILURE() << "models of different depth were not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRanksDisagree) << error.what();
    EXPECT_NE(std::string(error.what()).find("layers.2."), std::string::npos) << error.what();
  }
}

// Saved under one layout, continued under another: the same weights bit for bit, and the losses that
// the first layout would have seen.
TEST_F(RanksJobTest, CheckpointsMoveBetweenLayouts) {
  Config saving = ManyRanks(kLayouts[0], "saved");
  saving.training.steps = 4;
  saving.lr_scheduler.decay_type = DecayType::kNone;
  saving.checkpoint.enable = true;
  uint64_t hash = Train(saving).state_hash;
  Config straight = saving;
  straight.checkpoint.enable = false;
  straight.training.steps = 8;
  straight.dump_folder = (folder_ / "straight").string();
  Outcome expected = Run(straight);

  Config two_by_two = ManyRanks(kLayouts[1], "two_by_two"), one = OneRank(kLayouts[0]);
  for (Config* config : {&two_by_two, &one}) {
    config->lr_scheduler.decay_type = DecayType::kNone;
    config->checkpoint.enable = true;
    config->checkpoint.folder = (folder_ / "saved" / "checkpoint").string();
    config->checkpoint.load_step = 4;
    config->checkpoint.keep_latest_k = 0;
    config->training.steps = 4;
    EXPECT_EQ(Train(*config).state_hash, hash) << "weights of the checkpoint";
    config->training.steps = 8;
    Outcome continued = Run(*config);
    ASSERT_EQ(continued.losses.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(continued.losses[i], expected.losses[4 + i], 1e-5 * expected.losses[4 + i]);
    }
  }
}

TEST_F(RanksJobTest, ResumedOnTheSameRanksItEndsWithTheSameBits) {
  for (const Layout& layout : {kLayouts[2], kLayouts[7]}) {
    Config straight = ManyRanks(layout, "straight");
    straight.training.steps = 6;
    Outcome expected = Run(straight);
    Config halves = straight;
    halves.dump_folder = (folder_ / ("halves_" + layout.name)).string();
    halves.checkpoint.enable = true;
    halves.checkpoint.interval = 3;
    halves.debug.fault = "throw:1:5";
    MessageOf(halves, ErrorCode::kInternal);
    halves.debug.fault = "";
    EXPECT_EQ(Run(halves), expected);
  }
}

TEST_F(RanksJobTest, WeightsGoToHuggingFaceAndBackShardByShard) {
  Config config = ManyRanks(kLayouts[7], "export");
  config.training.steps = 2;
  config.checkpoint.last_save_in_hf = true;
  uint64_t hash = Train(config).state_hash;
  for (int64_t ranks : {1, 4}) {
    Config reading = ranks == 1 ? OneRank(kLayouts[5]) : ManyRanks(kLayouts[6], "import");
    reading.model.hf_path = (folder_ / "export" / "hf").string();
    reading.training.steps = 1;
    reading.optimizer.lr = 0;
    reading.optimizer.weight_decay = 0;
    EXPECT_EQ(Train(reading).state_hash, hash) << ranks << " ranks";
  }
}

TEST_F(RanksJobTest, WhatCannotBeSharedOutIsSaidAtOnce) {
  Config config = ManyRanks(kLayouts[1], "bad");
  config.parallelism.tensor_parallel_degree = 4;
  EXPECT_NE(MessageOf(config, ErrorCode::kNotDivisible).find("2 key/value heads"),
            std::string::npos);
  config = ManyRanks(kLayouts[0], "bad");
  config.parallelism.expert_parallel_degree = 2;
  EXPECT_NE(MessageOf(config, ErrorCode::kUnsupportedParallelism).find("no experts"),
            std::string::npos);
  config = ManyRanks(kLayouts[3], "bad");
  config.training.seq_len = 30;
  config.training.dataset_path = {};
  EXPECT_NE(MessageOf(config, ErrorCode::kNotDivisible).find("--training.seq_len 30"),
            std::string::npos);
  config = ManyRanks(kLayouts[3], "bad");
  config.model.attn = AttentionBackend::kFlex;
  MessageOf(config, ErrorCode::kUnsupportedParallelism);
  config = ManyRanks(kLayouts[0], "bad");
  config.training.global_batch_size = 6;
  MessageOf(config, ErrorCode::kConflictingOptions);
  config.training.global_batch_size = 0;
  config.debug.fault = "stumble:1";
  MessageOf(config, ErrorCode::kBadOptionValue);
  config.debug.fault = "";
  config.comm.backend = CommBackend::kFake;
  MessageOf(config, ErrorCode::kConflictingOptions);
  config.comm.backend = CommBackend::kEmulated;
  config.checkpoint.enable = true;
  MessageOf(config, ErrorCode::kConflictingOptions);
  // Without checkpoints it runs to its end, and leaves out the weights, of which it has a part alone.
  config.checkpoint.enable = false;
  config.checkpoint.last_save_in_hf = true;
  config.training.steps = 2;
  EXPECT_EQ(Run(config).losses.size(), 2u);
}

}  // namespace
}  // namespace gt::ranks_test
