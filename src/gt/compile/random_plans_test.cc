// Every rank compiles every feasible plan, and all come to the same collectives, whatever comes after
// placement.
#include <gtest/gtest.h>

#include <algorithm>

#include "gt/analysis/collectives.h"
#include "gt/compile/random_plans_test_util.h"
#include "gt/dist/agreement.h"
#include "gt/passes/placement/shard_geometry.h"

namespace gt::random_plans_test {
namespace {

// One step of all ranks under plans, without communication: what the first rank decides is told to the
// others.
class Ranks {
 public:
  explicit Ranks(const PlacedKind& kind)
      : config_(ConfigOf(kind)),
        mesh_(placement::DeviceMesh::Parse(kind.mesh)),
        model_(BuildConfiguredModel(config_)) {}

  placement::Plan PlanOf(const RandomPlanOptions& options, MemoryPolicy memory) {
    return RandomPlan(WholeOf(memory).graph(), mesh_.ToString(), options);
  }

  // Empty: all ranks have compiled the step, and their collectives fit together.
  std::string ProblemOf(const placement::Plan& plan, const Variant& variant) {
    decisions_.clear();
    std::string first;
    std::map<std::pair<std::string, std::vector<int64_t>>, std::string> sizes;
    for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
      try {
        const std::unique_ptr<Graph> graph = Compiled(plan, variant, rank);
        const std::string order = CollectiveSequence(*graph);
        if (rank == 0) first = order;
        if (order != first) return fmt::format("rank {} has other collectives", rank);
        for (const auto& [group, lines] : CollectiveSizes(*graph)) {
          const AxisList axes = AxesOfMeshGroup(group);
          const auto key = std::pair(group, MeshRank(mesh_, rank).RanksAlong(axes));
          if (sizes.try_emplace(key, lines).first->second != lines) {
            return fmt::format("rank {} has other sizes in {}", rank, group);
          }
        }
      } catch (const std::exception& error) {
        return fmt::format("rank {}: {}", rank, error.what());
      }
    }
    return "";
  }

 private:
  SingleDeviceStep& WholeOf(MemoryPolicy memory) {
    auto& [request, whole] = wholes_[memory];
    if (whole == nullptr) {
      configs_[memory] = config_;
      configs_[memory].compile.memory_policy = memory;
      request = std::make_unique<StepRequest>(StepRequest{
          *model_, configs_[memory], c10::kCPU, Mesh(config_.parallelism, config_.ranks, 0)});
      whole = std::make_unique<SingleDeviceStep>(*request);
    }
    return *whole;
  }

  std::unique_ptr<Graph> Compiled(const placement::Plan& plan, const Variant& variant,
                                  int64_t rank) {
    EpOverlapSection off;
    off.enabled = AutoSwitch::kFalse;
    Config config = variant.Of(config_);
    std::unique_ptr<Graph> graph =
        WholeOf(AppliesPolicyFirst(config) ? variant.memory : MemoryPolicy::kNone)
            .For(plan, off)
            .graph;
    ApplyPlacement(*graph, plan, rank);
    if (AppliesPolicyFirst(config)) config.compile.memory_policy = MemoryPolicy::kNone;
    StepCosts costs(config, nullptr, c10::kCPU);
    costs.PlaceOn(mesh_);
    JobFacts facts;
    facts.costs = [&costs](const Graph& of) { return costs.For(of); };
    size_t next = 0;
    facts.decide_for_all = [&](std::string_view, const std::function<std::string()>& decide) {
      if (rank == 0) decisions_.push_back(decide());
      return decisions_.at(next++);
    };
    PassContext context(std::move(facts));
    PassManagerOptions options;
    options.check_changed = options.verify_each = options.write_reproducer = false;
    PassManager(
        ParsePipeline(MakePostTracePolicy(config, /*on_gpu=*/false)->PipelineFor(*graph, off)),
        options)
        .Run(*graph, context);
    return graph;
  }

  const Config config_;
  const placement::DeviceMesh mesh_;
  const ModelPtr model_;
  std::map<MemoryPolicy, Config> configs_;
  std::map<MemoryPolicy, std::pair<std::unique_ptr<StepRequest>, std::unique_ptr<SingleDeviceStep>>>
      wholes_;
  std::vector<std::string> decisions_;
};

Variant Native(MemoryPolicy memory) {
  return {fmt::format("native, {}", EnumName(memory)), false, memory};
}
const Variant kBackend = {"AutoParallel's backend", true};

PlacedKind KindOf(std::string_view name) {
  const std::vector<PlacedKind> kinds = EveryKind();
  return *std::find_if(kinds.begin(), kinds.end(),
                       [&](const PlacedKind& kind) { return kind.name == name; });
}

void ExpectCompiles(std::string_view kind, const RandomPlanOptions& options,
                    const std::vector<Variant>& variants,
                    MemoryPolicy planned_for = MemoryPolicy::kNone) {
  Ranks ranks(KindOf(kind));
  const placement::Plan plan = ranks.PlanOf(options, planned_for);
  for (const Variant& variant : variants) {
    EXPECT_EQ(ranks.ProblemOf(plan, variant), "")
        << kind << ", " << plan.title << ", " << variant.name;
  }
}

// Ranks pad shards of different lengths, and so have different nodes. They follow the first rank's order all
// the same.
TEST(RandomPlans, UnevenRanksFollowOneOrder) {
  ExpectCompiles("llama3_3", {.seed = 1, .fold = false}, {kBackend});
}

// What the backward recomputes of a layer of experts has as many rows as the forward has kept, whether the plan
// knows of the policy or not, and whether the layer or its copy sends its rows first.
TEST(RandomPlans, CopiesOfExpertsHaveTheRowsOfTheirOriginals) {
  ExpectCompiles("qwen3_moe_2x2", {.seed = 17, .sum_means = true},
                 {Native(MemoryPolicy::kDefault)});
  ExpectCompiles("qwen3_moe_2x2", {.seed = 5, .fold = false}, {Native(MemoryPolicy::kDefault)},
                 MemoryPolicy::kDefault);
}

// AutoParallel's backend has a policy of its own. Tags of another one would be orders to it.
TEST(RandomPlans, TheBackendReplacesMemoryPolicies) {
  Variant both = kBackend;
  both.memory = MemoryPolicy::kDefault;
  ExpectCompiles("deepseek_v3_2x2", {.seed = 4}, {both});
}

// A grouped product wants aligned rows. Its matrices may be cut into odd columns, since these are its rows in
// memory, also where shards of them were moved.
TEST(RandomPlans, ProductsGetOperandsInTheOrderOfTheWhole) {
  ExpectCompiles("deepseek_v3_3x2", {.seed = 1, .fold = false}, {Native(MemoryPolicy::kNone)});
}

// Shards along two axes may be equal on one rank alone. What it gathers again for the backward is in the order
// of the other ranks all the same.
TEST(RandomPlans, EqualShardsOfOneRankStayApart) {
  ExpectCompiles("deepseek_v3_2x2", {.seed = 9, .fold = false},
                 {Native(MemoryPolicy::kSacAndOffload)});
}

// Under AutoParallel's costs what all ranks have may become a sum. The rank that contributes it has the nodes
// of the others, so that all pack and order the same.
TEST(RandomPlans, RanksAgreeWhereAWholeTensorBecomesASum) {
  ExpectCompiles("deepseek_v3_3x2",
                 {.seed = 6, .sum_means = true, .formulas = placement::CostFormulas::kAutoparallel},
                 {Native(MemoryPolicy::kDefault)}, MemoryPolicy::kDefault);
}

// Plans of every kind under everything that may come after them, four to a test, so that the tests can run side
// by side. A plan is drawn for the step alone, and another for the step that a memory policy makes of it.
struct FourPlans {
  PlacedKind kind;
  uint64_t first_seed = 0;
  friend void PrintTo(const FourPlans& plans, std::ostream* out) { *out << plans.kind.name; }
};

class ManyCompiledPlans : public ::testing::TestWithParam<FourPlans> {};

TEST_P(ManyCompiledPlans, CompileAlikeOnAllRanks) {
  Ranks ranks(GetParam().kind);
  for (uint64_t seed = GetParam().first_seed; seed < GetParam().first_seed + 4; ++seed) {
    const RandomPlanOptions options = OptionsOf(seed);
    const placement::Plan plan = ranks.PlanOf(options, MemoryPolicy::kNone);
    const Variant policy = Native(std::array{MemoryPolicy::kDefault, MemoryPolicy::kEager,
                                             MemoryPolicy::kFull}[seed / 4 % 3]);
    for (const Variant& variant : EveryVariant()) {
      EXPECT_EQ(ranks.ProblemOf(plan, variant), "") << plan.title << ", " << variant.name;
    }
    EXPECT_EQ(ranks.ProblemOf(ranks.PlanOf(options, policy.memory), policy), "")
        << plan.title << ", planned for and compiled under " << policy.name;
  }
}

std::vector<FourPlans> PlansOfEveryKind() {
  std::vector<FourPlans> all;
  for (const PlacedKind& kind : EveryKind()) {
    for (uint64_t seed = 0; seed < 24; seed += 4) all.push_back({kind, seed});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(RandomPlans, ManyCompiledPlans, ::testing::ValuesIn(PlansOfEveryKind()),
                         [](const auto& info) {
                           return fmt::format("{}_seed{}_slow", info.param.kind.name,
                                              info.param.first_seed);
                         });

}  // namespace
}  // namespace gt::random_plans_test
