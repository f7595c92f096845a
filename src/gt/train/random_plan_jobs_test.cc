// Jobs under plans at random: one rank's losses, and the same bits whatever comes after placement.
#include <gtest/gtest.h>

#include <filesystem>

#include "gt/compile/random_plans_test_util.h"
#include "gt/storage/file_writer.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/job_test_util.h"

namespace gt::random_plan_jobs_test {
namespace {

using random_plans_test::EveryKind;
using random_plans_test::EveryVariant;
using random_plans_test::OptionsOf;
using random_plans_test::PlacedKind;
using random_plans_test::RandomPlanOptions;
using random_plans_test::Variant;

class Jobs {
 public:
  explicit Jobs(const PlacedKind& kind) : kind_(kind), many_(ConfigOf(kind)) {
    WriteLearnableRows(Path("rows.npy"), 256, many_.training.seq_len);
    many_.training.steps = 2;
    many_.training.dataset_path = {Path("rows.npy")};
    many_.lr_scheduler.warmup_steps = 0;
    many_.metrics.hashes = true;
    many_.checkpoint.last_save_in_hf = false;
  }

  // Of one rank on the same batches.
  JobOutcome Alone() {
    Config one = many_;
    one.ranks = 1;
    one.mesh = Config().mesh;
    one.parallelism = {};
    one.compile.enable_autoparallel = false;
    return Run(one);
  }

  // Returns how many tensors that all ranks have become sums under it.
  int64_t TakePlan(const RandomPlanOptions& options) {
    const ModelPtr model = BuildConfiguredModel(many_);
    const StepRequest request{*model, many_, c10::kCPU, Mesh(many_.parallelism, many_.ranks, 0)};
    SingleDeviceStep whole(request);
    const placement::Plan plan = RandomPlan(whole.graph(), kind_.mesh, options);
    many_.compile.autoparallel_plan = Path("plan.json");
    WriteFile(many_.compile.autoparallel_plan, ToJson(plan));
    const auto filled = [](const Graph& graph) {
      int64_t count = 0;
      for (const Node* node : graph.nodes()) {
        const bool fills = node->op().name.str() == "aten::masked_fill.Scalar";
        if (fills && node->operand(1)->type().rank() == 0) ++count;
      }
      return count;
    };
    EpOverlapSection off;
    off.enabled = AutoSwitch::kFalse;
    const std::unique_ptr<Graph> step = whole.For(plan, off).graph;
    ApplyPlacement(*step, plan, 0);
    return filled(*step) - filled(whole.graph());
  }
  JobOutcome Placed(const Variant& variant) { return Run(variant.Of(many_)); }

 private:
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  JobOutcome Run(Config config) {
    config.dump_folder = Path(fmt::format("job{}", jobs_++));
    return RunJob(config);
  }

  testing::TempFolder folder_;
  const PlacedKind kind_;
  Config many_;
  int jobs_ = 0;
};

// Sums in another order: the first loss is that of the same parameters, later ones of parameters that were
// updated by slightly other gradients.
void ExpectClose(const JobOutcome& alone, const JobOutcome& placed) {
  ASSERT_EQ(alone.losses.size(), placed.losses.size());
  for (size_t i = 0; i < alone.losses.size(); ++i) {
    const double tolerance = i == 0 ? 1e-6 : 1e-5;
    EXPECT_NEAR(placed.losses[i], alone.losses[i], tolerance * alone.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(placed.norms[i], alone.norms[i], 1e-4 * alone.norms[i]) << "step " << i + 1;
  }
}

// Returns what Jobs::TakePlan does.
int64_t ExpectSameJobs(const PlacedKind& kind, const RandomPlanOptions& options,
                       const std::vector<Variant>& variants) {
  SCOPED_TRACE(kind.name + ", " + options.ToString());
  Jobs jobs(kind);
  const JobOutcome alone = jobs.Alone();
  const int64_t sums = jobs.TakePlan(options);
  const JobOutcome first = jobs.Placed(variants.front());
  ExpectClose(alone, first);
  for (size_t i = 1; i < variants.size(); ++i) {
    EXPECT_EQ(Difference(first, jobs.Placed(variants[i])), "") << variants[i].name;
  }
  return sums;
}

// Under AutoParallel's costs what all ranks have may become a sum, to which one of them contributes it.
TEST(RandomPlanJobs, WholeTensorsBecomeSums) {
  EXPECT_GT(
      ExpectSameJobs({"llama3_2x2", "llama3", "tiny", "2x2"},
                     {.seed = 6, .formulas = placement::CostFormulas::kAutoparallel}, {{"native"}}),
      0);
}

// Copies of experts send their rows again, by the numbers of their originals.
TEST(RandomPlanJobs, RecomputedExpertsKeepTheBits_slow) {
  ExpectSameJobs({"qwen3_moe_2x2", "qwen3", "tiny_moe", "2x2"}, {.seed = 17, .sum_means = true},
                 {{"native"}, {"native, full", false, MemoryPolicy::kFull}});
}

// One plan to a test, under everything that may come after it, so that the tests can run side by side.
struct OnePlan {
  PlacedKind kind;
  uint64_t seed = 0;
  friend void PrintTo(const OnePlan& plan, std::ostream* out) { *out << plan.kind.name; }
};

class ManyPlannedJobs : public ::testing::TestWithParam<OnePlan> {};

TEST_P(ManyPlannedJobs, TrainAsOneRankDoes) {
  ExpectSameJobs(GetParam().kind, OptionsOf(GetParam().seed), EveryVariant());
}

std::vector<OnePlan> PlansOfEveryKind() {
  std::vector<OnePlan> all;
  uint64_t seed = 100;  // others than those that are only compiled
  for (const PlacedKind& kind : EveryKind()) {
    for (int i = 0; i < 3; ++i) all.push_back({kind, seed++});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(RandomPlanJobs, ManyPlannedJobs, ::testing::ValuesIn(PlansOfEveryKind()),
                         [](const auto& info) {
                           return fmt::format("{}_seed{}_slow", info.param.kind.name,
                                              info.param.seed);
                         });

}  // namespace
}  // namespace gt::random_plan_jobs_test
