// The two policies after the trace: the same bits, by other ways.
#include "gt/compile/post_trace_policy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>

#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/dist/agreement.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/job/pass_needs.h"
#include "gt/passes/framework/registry.h"
#include "gt/sim/memory_curve.h"
#include "gt/train/job_test_util.h"

namespace gt::post_trace_policy_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLength = 32;
constexpr InductorCompilation kBackend = InductorCompilation::kAutoparallelBackend;

struct Layout {
  std::string name = {};
  std::string model = {}, flavor = {};
  int64_t ranks = 4;
  int64_t replicate = 1, cp = 1, tp = 1, ep = 1;
  ComputeDtype dtype = ComputeDtype::kFloat32;
  AttentionBackend attention = AttentionBackend::kSdpa;
  ReshardAfterForward reshard = ReshardAfterForward::kDefault;
  double dropout = 0;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

Config JobOf(const Layout& layout) {
  Config config;
  config.device = DeviceChoice::kCpu;
  config.threads = 1;
  config.model.name = layout.model;
  config.model.flavor = layout.flavor;
  config.model.tokenizer_path = "bytes";
  config.model.attn = layout.attention;
  config.model.dropout = layout.dropout;
  config.training.seq_len = kLength;
  config.training.local_batch_size = 2;
  config.training.steps = 2;
  config.training.mixed_precision_param = layout.dtype;
  config.training.deterministic = true;
  config.metrics.hashes = true;
  config.checkpoint.last_save_in_hf = false;
  config.comm.train_timeout_seconds = 60;
  config.ranks = layout.ranks;
  config.parallelism.data_parallel_replicate_degree = layout.replicate;
  config.parallelism.context_parallel_degree = layout.cp;
  config.parallelism.tensor_parallel_degree = layout.tp;
  config.parallelism.expert_parallel_degree = layout.ep;
  config.parallelism.fsdp_reshard_after_forward = layout.reshard;
  return config;
}

class PolicyJobs : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("gt_post_trace_test_{}", getpid());
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    WriteLearnableRows(folder_ / "rows.npy", 64, kLength);
  }
  void TearDown() override { fs::remove_all(folder_); }

  JobOutcome Run(const Layout& layout, const std::string& name,
                 const std::function<void(CompileSection&)>& change) const {
    Config config = JobOf(layout);
    config.training.dataset_path = {(folder_ / "rows.npy").string()};
    config.dump_folder = (folder_ / (layout.name + "_" + name)).string();
    change(config.compile);
    return RunJob(config);
  }

  // Losses, and hashes of gradients, parameters and buffers of every step.
  void ExpectSameBits(const Layout& layout) const {
    SCOPED_TRACE(layout.name);
    const JobOutcome native = Run(layout, "native", [](CompileSection&) {});
    ASSERT_EQ(native.hashes.size(), 3 * native.losses.size());
    const auto choose = [](CompileSection& compile) { compile.inductor_compilation = kBackend; };
    EXPECT_EQ(Difference(native, Run(layout, "backend", choose)), "");
    // Many stages and buckets, where the sizes of tiny models make one of each.
    EXPECT_EQ(Difference(native, Run(layout, "staged",
                                     [&](CompileSection& compile) {
                                       choose(compile);
                                       compile.ac_stage_size_gb = 1e-5;
                                       compile.max_topo_span = 60;
                                       compile.max_compute_pre_fetch = 3;
                                       compile.max_in_flight_gb = 1e-5;
                                     })),
              "");
  }

  fs::path folder_;
};

class PostTracePolicies : public PolicyJobs, public ::testing::WithParamInterface<Layout> {};

const Layout kLayouts[] = {
    // Masks are drawn again in the backward.
    {.name = "llama3_dropout", .model = "llama3", .flavor = "tiny", .ranks = 1, .dropout = 0.2},
    {.name = "llama3_fsdp2_dropout",
     .model = "llama3",
     .flavor = "tiny",
     .ranks = 2,
     .dropout = 0.2},
    {.name = "llama3_tp2_fsdp2",
     .model = "llama3",
     .flavor = "tiny",
     .tp = 2,
     .dtype = ComputeDtype::kBfloat16,
     .attention = AttentionBackend::kFlex},
    {.name = "llama3_cp2_fsdp2_kept",
     .model = "llama3",
     .flavor = "tiny",
     .cp = 2,
     .reshard = ReshardAfterForward::kNever},
    // Shards of three ranks are padded on some of them alone.
    {.name = "llama3_hsdp_2x3", .model = "llama3", .flavor = "tiny", .ranks = 6, .replicate = 2},
    {.name = "deepseek_v3_ep2_fsdp4", .model = "deepseek_v3", .flavor = "tiny", .ep = 2},
    {.name = "qwen3_moe_ep4",
     .model = "qwen3",
     .flavor = "tiny_moe",
     .ep = 4,
     .dtype = ComputeDtype::kBfloat16},
};

TEST_P(PostTracePolicies, GiveTheSameBits) { ExpectSameBits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Layouts, PostTracePolicies, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return info.param.name; });

// Another run gives the same, and so do processes: ranks decide together in both.
TEST_F(PolicyJobs, ThreadsProcessesAndAnotherRunAgree) {
  const Layout& layout = kLayouts[5];
  const auto job = [&](const std::string& name) {
    Config config = JobOf(layout);
    config.training.dataset_path = {(folder_ / "rows.npy").string()};
    config.dump_folder = (folder_ / name).string();
    config.compile.inductor_compilation = kBackend;
    return config;
  };
  const JobOutcome threads = RunJob(job("threads"));
  EXPECT_EQ(Difference(threads, RunJob(job("again"))), "");
  EXPECT_EQ(Difference(threads, RunJobInProcesses(job("processes"), folder_)), "");
}

class ManyPolicies : public PostTracePolicies {};

TEST_P(ManyPolicies, GiveTheSameBitsEverywhere) {
  for (ComputeDtype dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
    for (AttentionBackend attention : {AttentionBackend::kSdpa, AttentionBackend::kFlex}) {
      for (ReshardAfterForward reshard :
           {ReshardAfterForward::kDefault, ReshardAfterForward::kNever}) {
        Layout layout = GetParam();
        layout.dtype = dtype;
        layout.attention = attention;
        layout.reshard = reshard;
        layout.name += fmt::format("_{}_{}_{}", EnumName(dtype), EnumName(attention),
                                   reshard == ReshardAfterForward::kNever ? "kept" : "resharded");
        ExpectSameBits(layout);
      }
    }
  }
}

std::vector<Layout> AllLayouts() {
  std::vector<Layout> layouts;
  const std::pair<const char*, const char*> models[] = {
      {"llama3", "tiny"}, {"qwen3", "tiny"}, {"qwen3", "tiny_moe"}, {"deepseek_v3", "tiny"}};
  for (const auto& [model, flavor] : models) {
    const bool sparse = model == std::string_view("deepseek_v3") || flavor != models[0].second;
    const auto add = [&](std::string_view name, Layout layout) {
      layout.name = fmt::format("{}_{}_{}", model, flavor, name);
      layout.model = model;
      layout.flavor = flavor;
      layouts.push_back(std::move(layout));
    };
    add("fsdp2", {.ranks = 2});
    add("fsdp4", {});
    add("tp2_fsdp2", {.tp = 2});
    add("hsdp_2x2", {.replicate = 2});
    if (!sparse) continue;
    add("ep4", {.ep = 4});
    add("ep2_fsdp4", {.ep = 2});
    add("ep4_tp2_fsdp2", {.tp = 2, .ep = 4});
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, ManyPolicies, ::testing::ValuesIn(AllLayouts()),
                         [](const auto& info) { return info.param.name; });

// What one rank of a job compiles, without running it.
void WithStep(Config config, const std::function<void(const CompiledStep&, const Mesh&)>& look) {
  config.comm.backend = CommBackend::kFake;
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    look(Compile({.model = *model,
                  .config = config,
                  .device = c10::Device(c10::kCUDA, 0),
                  .mesh = mesh,
                  .world = &world}),
         mesh);
  });
}

Config Large(InductorCompilation compilation) {
  Config config;
  config.model.flavor = "8B";
  config.model.n_layers = 4;
  config.training.seq_len = 8192;
  config.training.local_batch_size = 2;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.ranks = 16;
  config.compile.inductor_compilation = compilation;
  return config;
}

int64_t CounterOf(const CompiledStep& step, std::string_view pass, std::string_view counter) {
  for (const PassRun& run : step.passes.runs) {
    if (run.name != pass) continue;
    for (const auto& [name, value] : run.counters) {
      if (name == counter) return value;
    }
  }
  ADD_FAILURE() << "no counter " << counter << " of " << pass;
  return -1;
}

bool Ran(const CompiledStep& step, std::string_view pass) {
  return std::any_of(step.passes.runs.begin(), step.passes.runs.end(),
                     [pass](const PassRun& run) { return run.name == pass; });
}

// Each policy runs passes of its own; the backend's keeps less and sends larger pieces.
TEST(PostTracePolicy, DecidesWhichPassesRun) {
  int64_t native_peak = 0, backend_peak = 0;
  WithStep(Large(InductorCompilation::kNone), [&](const CompiledStep& step, const Mesh& mesh) {
    EXPECT_TRUE(Ran(step, "reshard_after_forward"));
    EXPECT_TRUE(Ran(step, "bucket_fsdp"));
    EXPECT_FALSE(Ran(step, "staged_recompute"));
    native_peak = MeasureMemory(*step.graph, StepMemory(Large({}), mesh)).peak;
  });
  WithStep(Large(kBackend), [&](const CompiledStep& step, const Mesh& mesh) {
    EXPECT_FALSE(Ran(step, "reshard_after_forward"));
    EXPECT_FALSE(Ran(step, "bucket_fsdp"));
    EXPECT_GT(CounterOf(step, "tag_parameter_gathers", "gathers"), 30);
    EXPECT_GT(CounterOf(step, "staged_recompute", "stages"), 1);
    EXPECT_GT(CounterOf(step, "rematerialize", "copies"), 0);
    EXPECT_GT(CounterOf(step, "bucket_by_size", "gathers"),
              5 * CounterOf(step, "bucket_by_size", "gather_buckets"));
    backend_peak = MeasureMemory(*step.graph, StepMemory(Large(kBackend), mesh)).peak;
  });
  EXPECT_LT(backend_peak, native_peak);
}

// The pipelines and the table of needs know the same options (job/pass_needs.h).
TEST(PostTracePolicy, PipelinesHaveThePassesThatOptionsNeed) {
  const Graph graph;
  const auto expect_needs = [&graph](const std::function<void(Config&)>& ask) {
    Config config;
    ask(config);
    const EpOverlapSection& overlap = config.compile.ep_overlap;
    const std::string text =
        MakePostTracePolicy(config, /*on_gpu=*/true)->PipelineFor(graph, overlap);
    std::set<std::string> names;
    for (const auto& pass : ParsePipeline(text)) names.insert(pass->name());
    const std::vector<PassNeed> needs = PassNeedsOf(config);
    EXPECT_FALSE(needs.empty());
    for (const PassNeed& need : needs) {
      EXPECT_TRUE(names.contains(std::string(need.pass)))
          << need.pass << " for " << need.option << " in " << text;
    }
  };
  const auto overlap = [](const std::function<void(EpOverlapSection&)>& ask) {
    return [ask](Config& config) {
      config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
      ask(config.compile.ep_overlap);
    };
  };
  expect_needs(overlap([](EpOverlapSection&) {}));
  expect_needs(overlap([](EpOverlapSection& o) { o.strategy = ChunkStrategy::kEager; }));
  expect_needs(overlap([](EpOverlapSection& o) { o.memory_headroom = 0.1; }));
  expect_needs(overlap([](EpOverlapSection& o) { o.schedule = OverlapSchedule::kStructural; }));
  expect_needs([](Config& c) { c.compile.memory_policy = MemoryPolicy::kEager; });
  expect_needs([](Config& c) { c.compile.memory_policy = MemoryPolicy::kSacAndOffload; });
  expect_needs([](Config& c) { c.compile.enable_fsdp_dense_region_overlap = true; });
  expect_needs([](Config& c) { c.compile.fsdp_prefetch = 2; });
  expect_needs([](Config& c) { c.compile.inductor_compilation = InductorCompilation::kRegional; });
  for (InductorCompilation policy : {InductorCompilation::kFull, kBackend}) {
    expect_needs([policy](Config& c) {
      c.compile.inductor_compilation = policy;
      c.parallelism.fsdp_reshard_after_forward = ReshardAfterForward::kAlways;
      c.compile.bucket_cap_mb = 10;
      c.compile.max_in_flight_gb = 1;
      c.compile.ac_stage_size_gb = 1;
    });
  }
}

// By the judge that predicts the step, and by what it says of the step that results.
TEST(PostTracePolicy, PrefetchNeverMakesAStepSlower) {
  for (int64_t distance : {0, 1, 10, 1000}) {
    for (const auto& [tp, ep] : {std::pair(1, 1), std::pair(4, 1), std::pair(1, 8)}) {
      SCOPED_TRACE(fmt::format("distance {}, tp {}, ep {}", distance, tp, ep));
      Config config = Large(kBackend);
      if (ep > 1) {
        config.model.name = "deepseek_v3";
        config.model.flavor = "16B";
      }
      config.parallelism.tensor_parallel_degree = tp;
      config.parallelism.expert_parallel_degree = ep;
      config.compile.max_compute_pre_fetch = distance;
      config.compile.disable_passes = {"fuse"};  // comes later, and makes the step faster still
      WithStep(config, [&](const CompiledStep& step, const Mesh&) {
        const int64_t before = CounterOf(step, "prefetch_collectives", "microseconds_before");
        const int64_t after = CounterOf(step, "prefetch_collectives", "microseconds_after");
        EXPECT_LE(after, before);
        if (distance == 10 && ep == 1) EXPECT_LT(after, before);
        ASSERT_TRUE(step.predicted.has_value());
        EXPECT_EQ(static_cast<int64_t>(step.predicted->step), after);
      });
    }
  }
}

// A rank that stands for all plans as any other would: shards of three ranks are padded on some of them,
// and stretches of a sequence differ.
TEST(PostTracePolicy, EveryRankWouldDecideAlike) {
  for (Layout layout : {Layout{.name = "uneven", .ranks = 6, .replicate = 2},
                        Layout{.name = "stretches", .ranks = 4, .cp = 2}}) {
    layout.model = "llama3";
    layout.flavor = "tiny";
    std::string first;
    for (int64_t rank = 0; rank < layout.ranks; ++rank) {
      SCOPED_TRACE(fmt::format("{}, rank {}", layout.name, rank));
      Config config = JobOf(layout);
      config.compile.inductor_compilation = kBackend;
      config.compile.max_topo_span = 60;
      config.comm.pretended_rank = rank;
      WithStep(config, [&](const CompiledStep& step, const Mesh&) {
        const std::string sequence = CollectiveSequence(*step.graph);
        if (rank == 0) first = sequence;
        EXPECT_EQ(sequence, first);
      });
    }
  }
}

// Both policies end in generated kernels where there is a GPU, and nowhere else.
TEST(PostTracePolicy, KernelsAreGeneratedForGpusAlone) {
  Config config;
  const Graph graph;
  for (InductorCompilation which : {InductorCompilation::kFull, kBackend}) {
    config.compile.inductor_compilation = which;
    auto pipeline = [&](bool on_gpu) {
      return MakePostTracePolicy(config, on_gpu)->PipelineFor(graph, {});
    };
    EXPECT_TRUE(pipeline(true).ends_with("fuse")) << pipeline(true);
    EXPECT_EQ(pipeline(false).find("fuse"), std::string::npos);
  }
}

}  // namespace
}  // namespace gt::post_trace_policy_test
