// Whole jobs on a GPU, on one rank and on ranks that share it: eager, captured, chunked and overlapped
// steps have the same bits. Only runs that do the same operators at the same sizes are compared, with
// deterministic kernels. Run by ./gt test --gpu; what can be told on a CPU is in ranks_test.cc.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/compile/configured_model.h"
#include "gt/dist/world.h"
#include "gt/exec/transfer.h"
#include "gt/job/config.h"
#include "gt/storage/file_writer.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/job_test_util.h"
#include "gt/train/placed_job_test_util.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/eager_step.h"

namespace gt::gpu_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLength = 32;

struct Region {
  const char* modules;
  ChunkDim dim;
};
constexpr Region kBlocks = {"layers.*", ChunkDim::kBatch};
constexpr Region kExpertsAlongBatch = {"layers.*.moe", ChunkDim::kBatch};
constexpr Region kExpertsAlongSequence = {"layers.*.moe", ChunkDim::kSeq};

struct Case {
  std::string name;
  std::string model, flavor = "tiny";
  ComputeDtype compute = ComputeDtype::kBfloat16;
  AttentionBackend attention = AttentionBackend::kSdpa;
  int64_t ranks = 1, replicate = 1, cp = 1, tp = 1, ep = 1;
  Region region = kBlocks;
  int64_t vocab = 0;
  // Every token of every rank is the same one.
  bool one_token = false;

  bool has_experts() const { return model == "deepseek_v3" || flavor.ends_with("moe"); }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

constexpr ComputeDtype kF32 = ComputeDtype::kFloat32;
constexpr AttentionBackend kFlex = AttentionBackend::kFlex;

const Case kOneRank[] = {
    {.name = "llama3_bf16", .model = "llama3", .flavor = "debugmodel"},
    {.name = "llama3_flex_f32", .model = "llama3", .compute = kF32, .attention = kFlex},
    {.name = "qwen3_moe_bf16", .model = "qwen3", .flavor = "tiny_moe"},
    {.name = "qwen3_moe_flex_f32",
     .model = "qwen3",
     .flavor = "tiny_moe",
     .compute = kF32,
     .attention = kFlex,
     .region = kExpertsAlongSequence},
    {.name = "deepseek_v3_f32",
     .model = "deepseek_v3",
     .compute = kF32,
     .region = kExpertsAlongBatch},
    {.name = "deepseek_v3_flex_bf16", .model = "deepseek_v3", .attention = kFlex},
};

const Case kSharedGpu[] = {
    {.name = "llama3_fsdp2_bf16", .model = "llama3", .flavor = "debugmodel", .ranks = 2},
    {.name = "llama3_tp2_f32", .model = "llama3", .compute = kF32, .ranks = 2, .tp = 2},
    {.name = "llama3_cp2_bf16", .model = "llama3", .ranks = 2, .cp = 2},
    {.name = "llama3_replicate2_flex_f32",
     .model = "llama3",
     .compute = kF32,
     .attention = kFlex,
     .ranks = 2,
     .replicate = 2},
    {.name = "qwen3_moe_ep2_bf16", .model = "qwen3", .flavor = "tiny_moe", .ranks = 2, .ep = 2},
    {.name = "deepseek_v3_ep2_flex_f32",
     .model = "deepseek_v3",
     .compute = kF32,
     .attention = kFlex,
     .ranks = 2,
     .ep = 2,
     .region = kExpertsAlongSequence},
    {.name = "llama3_fsdp3_uneven_bf16", .model = "llama3", .ranks = 3, .vocab = 259},
    {.name = "llama3_hsdp2x2_bf16", .model = "llama3", .ranks = 4, .replicate = 2},
    {.name = "qwen3_tp2_fsdp2_f32", .model = "qwen3", .compute = kF32, .ranks = 4, .tp = 2},
    {.name = "qwen3_moe_ep4_bf16",
     .model = "qwen3",
     .flavor = "tiny_moe",
     .ranks = 4,
     .ep = 4,
     .region = kExpertsAlongBatch},
    {.name = "deepseek_v3_ep2_fsdp4_uneven_f32",
     .model = "deepseek_v3",
     .compute = kF32,
     .ranks = 4,
     .ep = 2,
     .vocab = 259},
    {.name = "deepseek_v3_ep4_tp2_bf16",
     .model = "deepseek_v3",
     .ranks = 4,
     .tp = 2,
     .ep = 4,
     .region = kExpertsAlongSequence},
    {.name = "deepseek_v3_cp2_ep4_bf16", .model = "deepseek_v3", .ranks = 4, .cp = 2, .ep = 4},
    {.name = "deepseek_v3_hsdp_ep2_bf16",
     .model = "deepseek_v3",
     .ranks = 4,
     .replicate = 2,
     .ep = 2},
};

// Tokens that are all alike have the same two experts of eight, so that of four ranks at least two get
// no token at all, in any chunk.
const Case kNoTokens[] = {
    {.name = "qwen3_moe_bf16", .model = "qwen3", .flavor = "tiny_moe", .one_token = true},
    {.name = "deepseek_v3_f32", .model = "deepseek_v3", .compute = kF32, .one_token = true},
    {.name = "qwen3_moe_ep4_f32",
     .model = "qwen3",
     .flavor = "tiny_moe",
     .compute = kF32,
     .ranks = 4,
     .ep = 4,
     .region = kExpertsAlongSequence,
     .one_token = true},
    {.name = "deepseek_v3_ep4_bf16",
     .model = "deepseek_v3",
     .ranks = 4,
     .ep = 4,
     .one_token = true},
};

struct PlacedCase {
  Case job;
  const char* mesh;
  std::vector<placement::AxisUse> axes;  // none: rows are sent to their experts
};
std::ostream& operator<<(std::ostream& out, const PlacedCase& c) { return out << c.job.name; }

const PlacedCase kPlaced[] = {
    {{.name = "llama3_bf16", .model = "llama3", .flavor = "debugmodel", .ranks = 4},
     "2x2",
     {placement::AxisUse::kShard, placement::AxisUse::kModel}},
    {{.name = "qwen3_uneven_flex_f32",
      .model = "qwen3",
      .compute = kF32,
      .attention = kFlex,
      .ranks = 3,
      .vocab = 259},
     "3",
     {placement::AxisUse::kShard}},
    {{.name = "qwen3_moe_f32", .model = "qwen3", .flavor = "tiny_moe", .compute = kF32, .ranks = 4},
     "4",
     {}},
    {{.name = "deepseek_v3_f32", .model = "deepseek_v3", .compute = kF32, .ranks = 4}, "2x2", {}},
    {{.name = "deepseek_v3_bf16", .model = "deepseek_v3", .ranks = 2},
     "2",
     {placement::AxisUse::kExperts}},
};

class Jobs : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("gt_gpu_test_{}", getpid());
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, /*overwrite=*/0);  // the tests may have been carried here
    WriteLearnableRows(folder_ / "rows.npy", 256, kLength);
    WriteTokenRows(folder_ / "one_token.npy", 256, kLength, [](int32_t) { return 17; });
  }
  void TearDown() override { fs::remove_all(folder_); }

  Config JobOf(const Case& c) const {
    Config config;
    config.device = device_;
    config.threads = 1;
    config.model.name = c.model;
    config.model.flavor = c.flavor;
    config.model.vocab_size = c.vocab;
    config.model.n_layers = c.flavor == "debugmodel" ? 3 : 0;
    config.model.attn = c.attention;
    if (c.attention == kFlex) config.model.attn_mask_type = AttentionMask::kBlockCausal;
    config.model.tokenizer_path = "bytes";
    config.training.dataset_path = {
        (folder_ / (c.one_token ? "one_token.npy" : "rows.npy")).string()};
    config.training.seq_len = kLength;
    config.training.local_batch_size = 5;  // no multiple of the number of chunks
    config.training.steps = 4;             // the last two of a captured step are replayed
    config.training.deterministic = true;
    config.training.mixed_precision_param = c.compute;
    config.parallelism.data_parallel_replicate_degree = c.replicate;
    config.parallelism.context_parallel_degree = c.cp;
    config.parallelism.tensor_parallel_degree = c.tp;
    config.parallelism.expert_parallel_degree = c.ep;
    config.checkpoint.last_save_in_hf = false;
    config.metrics.hashes = true;
    config.comm.train_timeout_seconds = 60;
    config.dump_folder = (folder_ / "job").string();
    if (c.ranks > 1) {
      config.ranks = c.ranks;
      config.debug.share_gpu = device_ == DeviceChoice::kCuda;
    }
    return config;
  }

  static Config Eager(Config config) {
    config.compile.mode = CompileMode::kEager;
    return config;
  }
  static Config Chunked(Config config, const Region& region, ChunkStrategy strategy) {
    EpOverlapSection& overlap = config.compile.ep_overlap;
    overlap.enabled = AutoSwitch::kTrue;
    overlap.module_fqn = region.modules;
    overlap.chunk_dim = region.dim;
    overlap.num_chunks = 3;
    overlap.strategy = strategy;
    overlap.schedule = OverlapSchedule::kNone;
    // Gradients of chunks are otherwise added in another order than modules in chunks do.
    overlap.disable_early_grad_accumulation = strategy == ChunkStrategy::kGraph;
    return config;
  }
  static Config Overlapped(Config config, const Region& region, OverlapSchedule schedule) {
    config = Chunked(std::move(config), region, ChunkStrategy::kGraph);
    config.compile.ep_overlap.schedule = schedule;
    config.compile.ep_overlap.memory_headroom = 10;
    config.compile.enable_fsdp_dense_region_overlap = true;
    config.compile.fsdp_prefetch = 2;
    config.comm.share_groups = true;  // so that there is something to isolate
    return config;
  }

  // A failure names the job and does not keep others from being tried.
  JobOutcome Run(const Config& config) const {
    try {
      fs::remove_all(config.dump_folder);
      JobOutcome outcome = RunJob(config);
      EXPECT_EQ(outcome.hashes.size(), 3 * static_cast<size_t>(config.training.steps));
      return outcome;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "gt train" << FlagsOf(config) << "\nfailed: " << error.what();
      return {};
    }
  }
  void ExpectSame(const JobOutcome& expected, const Config& config, const std::string& what) const {
    const std::string difference = Difference(expected, Run(config));
    EXPECT_EQ(difference, "") << what << ": gt train" << FlagsOf(config);
  }

  // As ExpectSame. On a GPU, stretches of the step must have been recorded as well: an operator that waits
  // for the device and does not say so (HostPart) would keep them from it.
  void ExpectSameRecorded(const JobOutcome& expected, const Config& config,
                          const std::string& what) const {
    if (device_ != DeviceChoice::kCuda) {
      return ExpectSame(expected, config, what);
    }
    const log::Level level = log::CurrentLevel();
    log::SetLevel(log::Level::kInfo);
    ::testing::internal::CaptureStderr();
    Config recorded = config;
    recorded.compile.ep_overlap.replan_interval = 0;  // every new order begins with ordinary runs
    ExpectSame(expected, recorded, what);
    const std::string said = ::testing::internal::GetCapturedStderr();
    log::SetLevel(level);
    EXPECT_EQ(said.find("no CUDA graphs"), std::string::npos) << what << FlagsOf(config) << said;
    EXPECT_NE(said.find("CUDA graphs: "), std::string::npos) << what << FlagsOf(config) << said;
  }

  void ExpectSameBits(const Case& c) const {
    const Config job = JobOf(c);
    const JobOutcome whole = Run(Eager(job));
    ExpectSame(whole, Eager(job), "eager, another time");
    ExpectSameRecorded(whole, job, "captured");
    Config plain = job;
    plain.compile.cuda_graphs = false;
    plain.compile.fsdp_bucketing = false;
    ExpectSame(whole, plain, "captured, neither replayed nor in buckets");
    if (!c.has_experts()) return;
    const Config modules = Chunked(job, c.region, ChunkStrategy::kEager);
    const JobOutcome chunked = Run(Eager(modules));
    ExpectSame(chunked, modules, "modules in chunks, captured");
    ExpectSame(chunked, Chunked(job, c.region, ChunkStrategy::kGraph), "graph in chunks");
    Config overlapped = Overlapped(job, c.region, OverlapSchedule::kCost);
    ExpectSameRecorded(chunked, overlapped, "overlapped");
    overlapped.compile.memory_policy = MemoryPolicy::kSacAndOffload;
    ExpectSame(chunked, overlapped, "overlapped, with offload");
    ExpectSame(chunked, Overlapped(job, c.region, OverlapSchedule::kStructural), "structural");
  }

  // A placed job has no eager step to be compared with, but operators in the order of the plan, and one rank.
  void ExpectPlacedSameBits(const PlacedCase& c) const {
    Config job = JobOf(c.job);
    job.compile.enable_autoparallel = true;
    job.mesh = c.mesh;
    job.compile.autoparallel_plan = (folder_ / "plan.json").string();
    const PlansFor plans(job);
    WriteFile(job.compile.autoparallel_plan,
              ToJson(c.axes.empty() ? plans.SendingRows() : plans.ByHand(c.axes)));
    Config plain = job;
    plain.compile.cuda_graphs = false;
    plain.compile.fsdp_bucketing = false;
    plain.compile.inductor_compilation = InductorCompilation::kNone;
    const JobOutcome expected = Run(plain);
    ExpectSameRecorded(expected, job, "kernels, buckets and recordings");
    Config other = job;
    other.compile.memory_policy = MemoryPolicy::kFull;
    ExpectSame(expected, other, "recomputed");
    other = job;
    other.compile.inductor_compilation = InductorCompilation::kAutoparallelBackend;
    ExpectSame(expected, other, "AutoParallel's backend");
    if (c.job.compute != kF32) return;
    Case alone = c.job;
    alone.ranks = 1;
    Config one_rank = JobOf(alone);
    one_rank.training.local_batch_size *= c.job.ranks;
    const JobOutcome right = Run(one_rank);
    ASSERT_EQ(expected.losses.size(), right.losses.size());
    for (size_t i = 0; i < right.losses.size(); ++i) {
      const double tolerance = i == 0 ? 1e-6 : 1e-5;
      EXPECT_NEAR(expected.losses[i], right.losses[i], tolerance * right.losses[i])
          << "step " << i + 1 << FlagsOf(job);
    }
  }

  DeviceChoice device_ = DeviceChoice::kCpu;
  fs::path folder_;
};

// The same program on the CPU, where ./gt test sees it.
TEST_F(Jobs, TokensThatAreAllAlikeLeaveRanksWithoutAny) {
  for (const Case& c : kNoTokens) {
    Config config = JobOf(c);
    config.parallelism.expert_parallel_degree = 1;
    config.ranks = 0;
    ModelPtr model = BuildConfiguredModel(config);
    InitializeModel(*model, config, at::kCPU);
    Batch batch;
    batch.tokens = batch.labels = at::full({5, kLength}, 17, at::kLong);
    batch.positions = at::arange(kLength).expand({5, kLength}).contiguous();
    MakeEagerStep(*model, LossConfigOf(config, *model))->Run(batch, 5 * kLength);
    int64_t layers = 0;
    for (const auto& buffer : model->named_buffers()) {
      if (!buffer.key().ends_with("tokens_per_expert")) continue;
      ++layers;
      EXPECT_EQ(buffer.value().sum().item<double>(), 2 * 5 * kLength) << c.name;
      EXPECT_EQ(buffer.value().gt(0).sum().item<int64_t>(), 2) << c.name << " " << buffer.key();
    }
    EXPECT_GT(layers, 0) << c.name;
  }
}

class NoTokens : public Jobs, public ::testing::WithParamInterface<Case> {};

TEST_P(NoTokens, ChangeNothingAboutBits) { ExpectSameBits(GetParam()); }
INSTANTIATE_TEST_SUITE_P(OnCpu, NoTokens, ::testing::ValuesIn(kNoTokens),
                         [](const auto& info) { return info.param.name; });

TEST_F(Jobs, SharingAGpuNeedsOne) {
  if (ChooseDevice(DeviceChoice::kAuto).is_cuda()) GTEST_SKIP() << "there is one";
  Config config = JobOf({.name = "", .model = "llama3", .ranks = 2});
  config.device = DeviceChoice::kAuto;
  config.debug.share_gpu = true;
  try {
    Train(config);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(CodeName(error.code()), CodeName(ErrorCode::kNoGpu));
    EXPECT_NE(error.message().find("--debug.share_gpu"), std::string::npos);
  }
}

class GpuJobs : public Jobs {
 protected:
  void SetUp() override {
    // libtorch looks once in a process, at the first product, whether they can be deterministic.
    PrepareEnvironment(/*deterministic=*/true);
    if (!ChooseDevice(DeviceChoice::kAuto).is_cuda()) GTEST_SKIP() << "there is no GPU";
    device_ = DeviceChoice::kCuda;
    Jobs::SetUp();
  }
};

class GpuSteps : public GpuJobs, public ::testing::WithParamInterface<Case> {};

TEST_P(GpuSteps, HaveTheBitsOfEagerOnes) { ExpectSameBits(GetParam()); }

std::string GpuName(const ::testing::TestParamInfo<Case>& info) { return info.param.name + "_gpu"; }
INSTANTIATE_TEST_SUITE_P(OneRank, GpuSteps, ::testing::ValuesIn(kOneRank), GpuName);
INSTANTIATE_TEST_SUITE_P(SharedGpu, GpuSteps, ::testing::ValuesIn(kSharedGpu), GpuName);
INSTANTIATE_TEST_SUITE_P(NoTokens, GpuSteps, ::testing::ValuesIn(kNoTokens), GpuName);

class PlacedGpuSteps : public GpuJobs, public ::testing::WithParamInterface<PlacedCase> {};

TEST_P(PlacedGpuSteps, HaveTheBitsOfTheirOperators) { ExpectPlacedSameBits(GetParam()); }
INSTANTIATE_TEST_SUITE_P(SharedGpu, PlacedGpuSteps, ::testing::ValuesIn(kPlaced),
                         [](const auto& info) { return info.param.job.name + "_gpu"; });

// Draws, recomputed and offloaded values, and copies on streams of their own.
TEST_F(GpuJobs, EveryMemoryPolicyGivesTheSameBits_gpu) {
  const Case cases[] = {{.name = "", .model = "llama3", .flavor = "debugmodel"},
                        {.name = "", .model = "deepseek_v3"},
                        {.name = "", .model = "llama3", .flavor = "debugmodel", .ranks = 2},
                        {.name = "", .model = "deepseek_v3", .compute = kF32, .ranks = 4, .ep = 4}};
  for (const Case& c : cases) {
    Config config = JobOf(c);
    config.model.dropout = 0.1;
    if (c.flavor == "debugmodel") {  // values that are worth offloading
      config.training.dataset_path = {};
      config.training.seq_len = 256;
    }
    const JobOutcome expected = Run(Eager(config));
    for (MemoryPolicy policy : {MemoryPolicy::kNone, MemoryPolicy::kDefault, MemoryPolicy::kEager,
                                MemoryPolicy::kFull, MemoryPolicy::kSacAndOffload}) {
      config.compile.memory_policy = policy;
      TransferMeter meter(ChooseDevice(DeviceChoice::kCuda));
      ExpectSameRecorded(expected, config, fmt::format("memory policy {}", EnumName(policy)));
      const bool offloads = policy == MemoryPolicy::kSacAndOffload && c.flavor == "debugmodel";
      if (offloads) EXPECT_GT(meter.stats().bytes_out, 1 << 20);
    }
  }
}

TEST_F(GpuJobs, ProcessesAgreeWithThreads_gpu) {
  for (const Case& c : {Case{.name = "", .model = "llama3", .ranks = 2, .tp = 2},
                        Case{.name = "", .model = "deepseek_v3", .ranks = 2, .ep = 2}}) {
    Config config = JobOf(c);
    if (c.has_experts()) config = Overlapped(config, c.region, OverlapSchedule::kCost);
    config.model.dropout = 0.1;
    const JobOutcome threads = Run(config);
    fs::remove_all(config.dump_folder);
    EXPECT_EQ(Difference(threads, RunJobInProcesses(config, folder_)), "") << FlagsOf(config);
  }
}

// In groups of one, collectives change nothing: with nccl and through host memory alike.
TEST_F(GpuJobs, NcclOnOneRankHasTheBitsOfEager_gpu) {
  for (const Case& c : {kOneRank[0], kOneRank[4], kOneRank[5]}) {
    Config config = JobOf(c);
    config.debug.collectives_of_one = true;
    const JobOutcome expected = Run(Eager(config));
    ExpectSameRecorded(expected, config, "captured");
    Config gloo = config;
    gloo.comm.backend = CommBackend::kGloo;
    ExpectSame(expected, gloo, "captured, gloo");
    if (!c.has_experts()) continue;
    const JobOutcome chunked = Run(Eager(Chunked(config, c.region, ChunkStrategy::kEager)));
    config = Overlapped(config, c.region, OverlapSchedule::kCost);
    ExpectSame(chunked, config, "overlapped");
    config.comm.backend = CommBackend::kGloo;
    ExpectSame(chunked, config, "overlapped, gloo");
  }
}

// The others do not wait for a rank that is gone.
TEST_F(GpuJobs, ARankThatFailsEndsTheOthers_gpu) {
  Config config = JobOf({.name = "", .model = "deepseek_v3", .ranks = 4, .ep = 4});
  config.debug.fault = "throw:1:3";
  EXPECT_ANY_THROW(Train(config));
}

// Prints what communicators take, for the figures in sim/communicators.cc. Groups of one rank are all that
// one GPU allows: nccl refuses two ranks on it.
TEST_F(GpuJobs, CommunicatorsTakeMemory_gpu) {
  Config config;
  config.device = DeviceChoice::kCuda;
  World::Run(config, [](World& world) {
    const c10::Device device = ChooseDevice(DeviceChoice::kCuda);
    auto options = at::TensorOptions(device).dtype(at::kFloat);
    at::Tensor input = at::ones({1 << 20}, options), output = at::empty_like(input);
    for (int i = 0; i < 4; ++i) {
      for (GroupPriority priority : {GroupPriority::kNormal, GroupPriority::kHigh}) {
        Group group;
        group.name = fmt::format("group_{}_{}", i, static_cast<int>(priority));
        group.ranks = {0};
        group.priority = priority;
        Synchronize(device);
        int64_t before = AvailableMemoryOf(device);
        world.MakeGroup(group);
        auto process_group = c10d::resolve_process_group(group.name);
        std::string line = fmt::format("communicator {}:", group.name);
        auto after = [&](const char* what) {
          Synchronize(device);
          const int64_t now = AvailableMemoryOf(device);
          line += fmt::format(" {} {}", what, ByteText(before - now));
          before = now;
        };
        after("made");
        std::vector<at::Tensor> tensors = {input};
        process_group->allreduce(tensors)->wait();
        after("first all_reduce");
        process_group->_allgather_base(output, input)->wait();
        process_group->_reduce_scatter_base(output, input)->wait();
        after("gather and reduce_scatter");
        std::vector<int64_t> even;
        process_group->alltoall_base(output, input, even, even)->wait();
        after("all_to_all");
        fmt::print("{}\n", line);
      }
    }
  });
}

}  // namespace
}  // namespace gt::gpu_test
