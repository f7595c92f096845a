#include "gt/job/pass_needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/job/config.h"
#include "gt/passes/framework/registry.h"

namespace gt::pass_needs_test {
namespace {

using Change = std::function<void(Config&)>;

// What is wrong with the lists of a job that asks for more than the defaults.
std::string ProblemOf(const Change& asks, const std::string& passes,
                      const StringList& disabled = {}) {
  Config config;
  config.training.local_batch_size = 8;
  asks(config);
  config.compile.passes = passes;
  config.compile.disable_passes = disabled;
  try {
    Validate(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConflictingOptions) << error.what();
    return error.message();
  }
  return "";
}

void ExpectParts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nis not in: " << text;
  }
}

void Overlap(Config& config) { config.compile.ep_overlap.enabled = AutoSwitch::kTrue; }
void Nothing(Config& /*config*/) {}

TEST(PassLists, AReplacingListThatDropsWhatAFeatureNeedsIsAnError) {
  const std::string problem = ProblemOf(Overlap, "dce,cse");
  const std::string ep_overlap = "compile.ep_overlap.";
  ExpectParts(problem, {
                           "compile.passes dce,cse replaces the passes of the job",
                           "\n    chunk, concretize: needed by " + ep_overlap + "enabled true",
                           "which --" + ep_overlap + "enabled=false turns off",
                           "\n    isolate_ep_process_group: needed by " + ep_overlap + "isolate",
                           "\n    ep_overlap_schedule: needed by " + ep_overlap + "schedule cost",
                           "which --" + ep_overlap + "schedule=none turns off",
                           "use --compile.passes=+dce,cse to add",
                       });
  EXPECT_EQ(ProblemOf(Overlap, "dce,chunk,isolate_ep_process_group,ep_overlap_schedule,concretize"),
            "");
  EXPECT_EQ(ProblemOf(Overlap, "+cse"), "");
  // auto decides between chunks, which there would be none of.
  ExpectParts(
      ProblemOf([](Config& config) { config.compile.ep_overlap.enabled = AutoSwitch::kAuto; },
                "dce"),
      {"chunk, concretize: needed by compile.ep_overlap.enabled auto"});
}

// The modules cut themselves; their chunks still have to be ordered.
TEST(PassLists, EagerChunksNeedTheirScheduleAlone) {
  const std::string problem = ProblemOf(
      [](Config& config) {
        Overlap(config);
        config.compile.ep_overlap.strategy = ChunkStrategy::kEager;
        config.compile.ep_overlap.isolate_process_group = false;
      },
      "dce");
  ExpectParts(problem, {"ep_overlap_schedule: needed by compile.ep_overlap.schedule cost"});
  EXPECT_EQ(problem.find("chunk"), std::string::npos) << problem;
  EXPECT_EQ(problem.find("isolate"), std::string::npos) << problem;
}

// What is on by itself yields to a list.
TEST(PassLists, DefaultsNeedNothing) {
  EXPECT_EQ(ProblemOf(Nothing, "canonicalize,dce"), "");
  EXPECT_EQ(ProblemOf(Nothing, "", {"bucket_fsdp", "reshard_after_forward", "fuse", "cse"}), "");
  EXPECT_TRUE(PassNeedsOf(Config()).empty());
}

struct Need {
  std::string name;
  Change asks;
  std::vector<std::string> passes;
  std::string option, cure;
};

std::vector<Need> NeedsOfOptions() {
  const auto backend = [](const Change& more) {
    return [more](Config& config) {
      config.compile.inductor_compilation = InductorCompilation::kAutoparallelBackend;
      more(config);
    };
  };
  return {
      {"MemoryPolicy",
       [](Config& c) { c.compile.memory_policy = MemoryPolicy::kFull; },
       {"memory_policy", "rematerialize"},
       "compile.memory_policy full",
       "--compile.memory_policy=none"},
      {"Offload",
       [](Config& c) { c.compile.memory_policy = MemoryPolicy::kSacAndOffload; },
       {"memory_policy", "rematerialize", "cpu_offload"},
       "compile.memory_policy sac_and_offload",
       "--compile.memory_policy=none"},
      {"OffloadOfPlacedStep",
       [](Config& c) {
         c.compile.enable_autoparallel = true;
         c.compile.memory_policy = MemoryPolicy::kSacAndOffload;
       },
       {"cpu_offload"},
       "compile.memory_policy sac_and_offload",
       "--compile.memory_policy=none"},
      {"Reshard",
       [](Config& c) { c.parallelism.fsdp_reshard_after_forward = ReshardAfterForward::kAlways; },
       {"reshard_after_forward"},
       "parallelism.fsdp_reshard_after_forward always",
       "--parallelism.fsdp_reshard_after_forward=never"},
      {"DenseRegions",
       [](Config& c) { c.compile.enable_fsdp_dense_region_overlap = true; },
       {"bucket_fsdp", "fsdp_dense_regions"},
       "compile.enable_fsdp_dense_region_overlap true",
       "--compile.enable_fsdp_dense_region_overlap=false"},
      {"Prefetch",
       [](Config& c) { c.compile.fsdp_prefetch = 3; },
       {"bucket_fsdp"},
       "compile.fsdp_prefetch 3",
       "--compile.fsdp_prefetch=1"},
      {"Regions",
       [](Config& c) { c.compile.inductor_compilation = InductorCompilation::kRegional; },
       {"fuse"},
       "compile.inductor_compilation regional",
       "--compile.inductor_compilation=none"},
      {"Headroom",
       [](Config& c) {
         Overlap(c);
         c.compile.ep_overlap.memory_headroom = 0.5;
       },
       {"measure_peak"},
       "compile.ep_overlap.memory_headroom 0.5",
       "--compile.ep_overlap.memory_headroom=-1"},
      {"Structural",
       [](Config& c) {
         Overlap(c);
         c.compile.ep_overlap.schedule = OverlapSchedule::kStructural;
       },
       {"ep_overlap_schedule"},
       "compile.ep_overlap.schedule structural",
       "--compile.ep_overlap.schedule=none"},
      {"Chunks",
       Overlap,
       {"chunk"},
       "compile.ep_overlap.enabled true",
       "--compile.ep_overlap.enabled=false"},
      {"Stages",
       backend([](Config& c) { c.compile.ac_stage_size_gb = 2; }),
       {"staged_recompute", "rematerialize"},
       "compile.ac_stage_size_gb 2",
       "--compile.ac_stage_size_gb=0"},
      {"Buckets",
       backend([](Config& c) { c.compile.bucket_cap_mb = 100; }),
       {"bucket_by_size"},
       "compile.bucket_cap_mb 100",
       "--compile.bucket_cap_mb=2000"},
      {"Span",
       backend([](Config& c) { c.compile.max_topo_span = 100; }),
       {"bucket_by_size"},
       "compile.max_topo_span 100",
       "--compile.max_topo_span=1500"},
      {"Distance",
       backend([](Config& c) { c.compile.max_compute_pre_fetch = 3; }),
       {"prefetch_collectives"},
       "compile.max_compute_pre_fetch 3",
       "--compile.max_compute_pre_fetch=10"},
      {"InFlight",
       backend([](Config& c) { c.compile.max_in_flight_gb = 1; }),
       {"prefetch_collectives"},
       "compile.max_in_flight_gb 1",
       "--compile.max_in_flight_gb=2"},
  };
}

class PassNeeds : public ::testing::TestWithParam<Need> {};

// An option that was set is an error with its pass left out of a list that replaces the job's own, or
// disabled, and none otherwise.
TEST_P(PassNeeds, AreNamedWithTheirOptionAndItsCure) {
  const Need& need = GetParam();
  const std::string replaced = ProblemOf(need.asks, "dce");
  for (const std::string& pass : need.passes) ExpectParts(replaced, {pass});
  ExpectParts(replaced, {need.option, need.cure});
  for (const std::string& pass : need.passes) {
    ExpectParts(ProblemOf(need.asks, "", {pass}),
                {"compile.disable_passes", pass, need.option, need.cure});
  }
  EXPECT_EQ(ProblemOf(need.asks, "", {"dce", "cse"}), "");
  EXPECT_EQ(ProblemOf(need.asks, "+cse"), "");
}

INSTANTIATE_TEST_SUITE_P(Options, PassNeeds, ::testing::ValuesIn(NeedsOfOptions()),
                         [](const auto& need) { return need.param.name; });

TEST(PassLists, EveryNeededPassExists) {
  const std::vector<std::string> names = PassNames();
  for (const Need& need : NeedsOfOptions()) {
    Config config;
    need.asks(config);
    for (const PassNeed& one : PassNeedsOf(config)) {
      EXPECT_EQ(std::count(names.begin(), names.end(), one.pass), 1) << one.pass;
    }
  }
}

TEST(PassLists, PolicyOfThePlacedStepIsAppliedBeforeItsPasses) {
  EXPECT_EQ(ProblemOf(
                [](Config& config) {
                  config.compile.enable_autoparallel = true;
                  config.compile.memory_policy = MemoryPolicy::kFull;
                },
                "dce"),
            "");
}

TEST(PassLists, TheBackendsPolicyIsItsPasses) {
  const auto backend = [](Config& config) {
    config.compile.inductor_compilation = InductorCompilation::kAutoparallelBackend;
  };
  ExpectParts(ProblemOf(backend, "dce"),
              {"tag_parameter_gathers, staged_recompute, rematerialize, bucket_by_size, "
               "prefetch_collectives: needed by compile.inductor_compilation autoparallel_backend, "
               "which --compile.inductor_compilation=full turns off"});
  // One of them may be left out to see what it is worth.
  EXPECT_EQ(ProblemOf(backend, "", {"prefetch_collectives"}), "");
}

TEST(PassLists, NobodyRunsPassesOfAStepThatIsNotRewritten) {
  ExpectParts(ProblemOf([](Config& c) { c.compile.enable_passes = false; }, "+cse"),
              {"compile.passes +cse", "compile.enable_passes=false"});
  ExpectParts(ProblemOf([](Config& c) { c.compile.mode = CompileMode::kEager; }, "dce"),
              {"compile.mode eager"});
  EXPECT_EQ(ProblemOf([](Config& c) { c.compile.enable_passes = false; }, "", {"cse"}), "");
}

TEST(PassLists, UnknownNamesAreFoundBeforeAnythingRuns) {
  const auto error_of = [](const std::string& passes, const StringList& disabled) {
    Config config;
    config.compile.passes = passes;
    config.compile.disable_passes = disabled;
    try {
      Validate(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnknownPass);
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(error_of("dce,chnk", {}),
            "compile.passes: there is no pass \"chnk\"; did you mean chunk?");
  EXPECT_EQ(error_of("", {"dcee"}),
            "compile.disable_passes: there is no pass \"dcee\"; did you mean dce?");
  EXPECT_EQ(error_of("", {"cudagraph"}),
            "compile.disable_passes: there is no pass \"cudagraph\"; did you mean cudagraph_pass?");
  EXPECT_EQ(error_of("", {"reassign_collective_pgs_pass"}), "");
}

}  // namespace
}  // namespace gt::pass_needs_test
