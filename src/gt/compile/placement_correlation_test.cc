// Whether placement's costs order plans as the simulator orders the steps that they become.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "gt/compile/configured_model.h"
#include "gt/compile/placed_step.h"
#include "gt/compile/single_device_step.h"
#include "gt/compile/step_compiler.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/link_model.h"
#include "gt/sim/node_cost.h"
#include "gt/testing/random_placement.h"

namespace gt::placement_correlation_test {
namespace {

using placement::DeviceMesh;
using placement::PlaceProblem;

// Of equal numbers, each has the mean of their ranks.
std::vector<double> RanksOf(const std::vector<double>& numbers) {
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return numbers[a] < numbers[b]; });
  std::vector<double> ranks(numbers.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && numbers[order[end]] == numbers[order[begin]]) ++end;
    const double mean = static_cast<double>(begin + end - 1) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = mean;
  }
  return ranks;
}

// Spearman's.
double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = RanksOf(a), y = RanksOf(b);
  const double mean = static_cast<double>(x.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

TEST(RankCorrelation, IsOneInTheSameOrderAndMinusOneInTheOpposite) {
  EXPECT_DOUBLE_EQ(RankCorrelation({1, 5, 9}, {10, 20, 21}), 1);
  EXPECT_DOUBLE_EQ(RankCorrelation({1, 5, 9}, {3, 2, 1}), -1);
  EXPECT_NEAR(RankCorrelation({1, 2, 3, 4}, {2, 1, 4, 3}), 0.6, 1e-12);
}

struct Case {
  std::string model, flavor, mesh;
  int64_t rows = 1, length = 4096;  // of a rank that reads
};

Config ConfigOf(const Case& which) {
  Config config;
  config.model.name = which.model;
  config.model.flavor = which.flavor;
  config.device = DeviceChoice::kCuda;
  config.ranks = DeviceMesh::Parse(which.mesh).ranks();
  config.training.seq_len = which.length;
  config.training.local_batch_size = which.rows;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.compile.enable_autoparallel = true;
  config.compile.inductor_compilation = InductorCompilation::kNone;
  config.comm.backend = CommBackend::kFake;
  return config;
}

// The labels of least cost when every cost is changed by a random factor: the more, the worse the plan.
placement::Placement Disturbed(const PlaceProblem& problem, double spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, spread);
  placement::LabelProblem labels = problem.Labels({});
  auto disturb = [&](double cost) { return cost * std::exp(normal(random)) + 1e-3 * spread; };
  for (placement::Variable& variable : labels.variables) {
    for (double& cost : variable.costs) {
      if (cost < placement::kForbidden) cost = disturb(cost);
    }
  }
  for (placement::CostMatrix& matrix : labels.matrices) {
    for (float& value : matrix.values) {
      if (value < static_cast<float>(placement::kForbidden)) {
        value = static_cast<float>(disturb(value));
      }
    }
  }
  placement::SolverOptions options;
  options.work_limit = 3e7;
  const placement::LabelSolution solution = Solve(labels, options);
  placement::Placement placement;
  placement.feasible = solution.feasible;
  placement.labels = solution.labels;
  return placement;
}

// Over plans from good to hopeless: a third of them at random, the others as far from the best as costs
// were disturbed; or over those at random alone.
struct Correlations {
  double all = 0, random = 0;
};
Correlations CorrelationsOf(const Case& which, int plans) {
  const Config config = ConfigOf(which);
  const c10::Device device(c10::kCUDA, 0);
  const ModelPtr model = BuildConfiguredModel(config);
  const Mesh ranks(config.parallelism, config.ranks, 0);
  const StepRequest request{*model, config, device, ranks};
  SingleDeviceStep whole(request);
  const DeviceMesh mesh = DeviceMesh::Parse(which.mesh);
  const LinkModel links(ReadCluster(ClusterPath("h100")));
  const placement::Pricing pricing(mesh, links, SpeedOf("hopper"));
  const PlaceProblem problem(whole.graph(), pricing, {});
  EpOverlapSection off;
  off.enabled = AutoSwitch::kFalse;
  std::vector<double> priced, simulated, random_priced, random_simulated;
  for (int i = 0; i < plans; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const double spread = 4.0 * i / plans;
    const bool random = i % 3 == 2;
    const placement::Placement placement =
        random ? testing::RandomPlacement(problem, seed) : Disturbed(problem, spread, seed);
    EXPECT_TRUE(placement.feasible);
    const placement::Plan plan = MakePlan(problem, placement, "random");
    const std::unique_ptr<Graph> step = whole.For(plan, off).graph;
    ApplyPlacement(*step, plan, 0);
    StepCompiler compiler(config, ranks, nullptr, device, {}, StepCompiler::Audience::kSelf);
    compiler.PlaceOn(mesh);
    compiler.Compile(*step, off);
    const placement::PlanCost cost = CostOf(problem, placement.labels);
    priced.push_back(cost.step_us(/*overlap=*/true));
    simulated.push_back(compiler.Predict(*step)->step);
    if (random) {
      random_priced.push_back(priced.back());
      random_simulated.push_back(simulated.back());
    }
    fmt::print("{:<3} {:<10} priced {:>10.2f} ms  simulated {:>10.2f} ms  ratio {:.3f}\n", i,
               random ? "random" : fmt::format("spread {:.1f}", spread), priced.back() / 1e3,
               simulated.back() / 1e3, simulated.back() / priced.back());
    std::fflush(stdout);
  }
  const Correlations found = {RankCorrelation(priced, simulated),
                              RankCorrelation(random_priced, random_simulated)};
  fmt::print("{} {} on {}: Spearman's rho {:.4f} over {} plans, {:.4f} over the {} at random\n",
             which.model, which.flavor, which.mesh, found.all, plans, found.random,
             random_priced.size());
  return found;
}

constexpr int kPlans = 50;

void ExpectSameOrder(const Case& which) {
  const Correlations found = CorrelationsOf(which, kPlans);
  EXPECT_GE(found.all, 0.98);
  EXPECT_GE(found.random, 0.95);
}
TEST(PlacementCosts, OrderPlansOfLlama3AsTheSimulatorDoes_slow) {
  ExpectSameOrder({.model = "llama3", .flavor = "8B", .mesh = "8x8"});
}
TEST(PlacementCosts, OrderPlansOfDeepSeekAsTheSimulatorDoes_slow) {
  ExpectSameOrder({.model = "deepseek_v3", .flavor = "16B", .mesh = "8x8"});
}
// The same for a few layers and plans, which takes seconds.
TEST(PlacementCosts, OrderPlansOfSmallModelsAsTheSimulatorDoes) {
  EXPECT_GE(CorrelationsOf({.model = "llama3", .flavor = "debugmodel", .mesh = "2x4"}, 9).all, 0.9);
}

}  // namespace
}  // namespace gt::placement_correlation_test
