// Steps that are placed at random compute what one device computes.
#include "gt/compile/placed_step.h"

#include <gtest/gtest.h>

#include "gt/compile/placed_step_test_util.h"
#include "gt/placement/plan.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/testing/random_placement.h"

namespace gt::placed_step_test {
namespace {

using placement::Plan;

void UseFlexAndDropout(Config& config) {
  config.model.attn = AttentionBackend::kFlex;
  config.model.dropout = 0.1;
}

void ExpectRandomPlans(const Case& which, int count, uint64_t first_seed = 0,
                       bool sum_means = false) {
  WholeStep whole(which);
  const LinkModel links(ReadCluster(ClusterPath("h100")));
  const placement::Pricing pricing(whole.mesh, links, SpeedOf("hopper"));
  std::vector<Plan> plans;
  for (bool fold : {true, false}) {
    placement::ProblemOptions options;
    options.fold = fold;
    options.sum_means = sum_means;
    const placement::PlaceProblem problem(*whole.captured.graph, pricing, options);
    for (int i = 0; i < (count + 1) / 2; ++i) {
      const uint64_t seed = first_seed + static_cast<uint64_t>(i) * 2 + (fold ? 0 : 1);
      const placement::Placement random = testing::RandomPlacement(problem, seed);
      ASSERT_TRUE(random.feasible);
      plans.push_back(MakePlan(problem, random, fmt::format("seed {}", seed)));
    }
  }
  std::vector<std::string> problems(static_cast<size_t>(whole.mesh.ranks()));
  World::Run(whole.config, [&](World& world) {
    for (const Plan& plan : plans) {
      std::string problem;
      try {
        const Distance off = RunRank(whole, plan, world);
        if (!(std::max(off.gradients, off.others) <= which.tolerance)) problem = off.worst;
      } catch (const Error& error) {
        problem = error.message();
      }
      std::string& mine = problems[static_cast<size_t>(world.rank())];
      if (!problem.empty() && mine.empty()) mine = plan.title + ": " + problem;
      // A rank that failed would not communicate any more.
      if (world.Sum({problem.empty() ? 0.0 : 1.0})[0] > 0) break;
    }
  });
  for (const std::string& problem : problems) {
    EXPECT_EQ(problem, "") << which.model << " on " << which.mesh;
  }
}

TEST(PlacedStep, RandomPlansOfDenseModels) {
  ExpectRandomPlans({.mesh = "4"}, 2);
  ExpectRandomPlans({.mesh = "2x2"}, 2);
  ExpectRandomPlans({.model = "qwen3", .mesh = "2x2"}, 2);
}

TEST(PlacedStep, RandomPlansThatSumMeans) {
  ExpectRandomPlans({.mesh = "2x2"}, 4, 0, /*sum_means=*/true);
}

TEST(PlacedStep, RandomPlansOfUnevenShards) {
  const auto odd = [](Config& config) { config.model.vocab_size = 259; };
  ExpectRandomPlans({.mesh = "3", .batch = 5, .change = odd}, 2);
  ExpectRandomPlans({.mesh = "3x2", .batch = 7, .change = odd}, 2);
}

TEST(PlacedStep, RandomPlansOfExperts) {
  ExpectRandomPlans({.model = "qwen3", .flavor = "tiny_moe", .mesh = "2x2"}, 4);
  ExpectRandomPlans({.model = "deepseek_v3", .mesh = "4"}, 2);
}

TEST(PlacedStep, RandomPlansOnThreeAxes) { ExpectRandomPlans({.mesh = "2x2x2", .batch = 8}, 2); }

TEST(PlacedStep, RandomPlansOfFlexAttentionAndDropout) {
  ExpectRandomPlans({.mesh = "2x2", .change = UseFlexAndDropout}, 2);
}

// Three hundred plans of every kind, ten to a test, so that the tests can run side by side.
struct PlansOfTen {
  Case which;
  std::string kind;
  uint64_t first_seed = 0;
  friend void PrintTo(const PlansOfTen& plans, std::ostream* out) { *out << plans.kind; }
};

std::vector<PlansOfTen> ThreeHundred() {
  const auto odd = [](Config& config) { config.model.vocab_size = 259; };
  struct Kind {
    std::string name;
    Case which;
    int count;
  };
  const std::vector<Kind> kinds = {
      {"llama3_4", {.mesh = "4"}, 40},
      {"llama3_2x2", {.mesh = "2x2"}, 40},
      {"qwen3_4x2", {.model = "qwen3", .mesh = "4x2", .batch = 8}, 20},
      {"llama3_2x2x2", {.mesh = "2x2x2", .batch = 8}, 20},
      {"llama3_flex_dropout_2x2", {.mesh = "2x2", .change = UseFlexAndDropout}, 40},
      {"llama3_uneven_3", {.mesh = "3", .batch = 5, .change = odd}, 30},
      {"llama3_uneven_3x2", {.mesh = "3x2", .batch = 7, .change = odd}, 20},
      {"qwen3_moe_2x2", {.model = "qwen3", .flavor = "tiny_moe", .mesh = "2x2"}, 40},
      {"deepseek_v3_2x2", {.model = "deepseek_v3", .mesh = "2x2"}, 30},
      {"deepseek_v3_8", {.model = "deepseek_v3", .mesh = "8", .batch = 8}, 20},
  };
  std::vector<PlansOfTen> all;
  for (const Kind& kind : kinds) {
    for (int done = 0; done < kind.count; done += 10) {
      all.push_back({kind.which, kind.name, 1000 + static_cast<uint64_t>(done)});
    }
  }
  return all;
}

class ManyRandomPlans : public ::testing::TestWithParam<PlansOfTen> {};

TEST_P(ManyRandomPlans, EqualOneDevice) {
  ExpectRandomPlans(GetParam().which, 10, GetParam().first_seed);
}

INSTANTIATE_TEST_SUITE_P(PlacedStep, ManyRandomPlans, ::testing::ValuesIn(ThreeHundred()),
                         [](const auto& info) {
                           return fmt::format("{}_seed{}_slow", info.param.kind,
                                              info.param.first_seed);
                         });

}  // namespace
}  // namespace gt::placed_step_test
