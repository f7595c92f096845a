// Plans at random, and what a rank makes of a step under them, for tests.
#pragma once

#include <c10/core/Device.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gt/compile/configured_model.h"
#include "gt/compile/placed_step.h"
#include "gt/compile/post_trace_policy.h"
#include "gt/compile/single_device_step.h"
#include "gt/compile/step_costs.h"
#include "gt/dist/mesh.h"
#include "gt/job/config.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/placement/plan.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/testing/random_placement.h"

namespace gt::random_plans_test {

// A step and the mesh that it is placed on.
struct PlacedKind {
  std::string name, model, flavor, mesh;
  int64_t batch = 4;       // of all ranks
  int64_t vocabulary = 0;  // 0: the model's own
};

inline std::vector<PlacedKind> EveryKind() {
  std::vector<PlacedKind> kinds;
  for (const auto& [model, flavor] : std::vector<std::pair<std::string, std::string>>{
           {"llama3", "tiny"}, {"qwen3", "tiny"}, {"qwen3", "tiny_moe"}, {"deepseek_v3", "tiny"}}) {
    const std::string name = flavor == "tiny" ? model : model + "_moe";
    kinds.push_back({name + "_4", model, flavor, "4"});
    kinds.push_back({name + "_2x2", model, flavor, "2x2"});
    kinds.push_back({name + "_3", model, flavor, "3", 5, 259});
    kinds.push_back({name + "_3x2", model, flavor, "3x2", 7, 259});
    kinds.push_back({name + "_2x2x2", model, flavor, "2x2x2", 8});
  }
  return kinds;
}

// Degrees are only there for the size of the batch: an axis of them would divide it.
inline Config ConfigOf(const PlacedKind& kind) {
  Config config;
  config.model.name = kind.model;
  config.model.flavor = kind.flavor;
  if (kind.vocabulary > 0) config.model.vocab_size = kind.vocabulary;
  config.device = DeviceChoice::kCpu;
  config.threads = 1;
  config.ranks = placement::DeviceMesh::Parse(kind.mesh).ranks();
  config.mesh = kind.mesh;
  config.parallelism.tensor_parallel_degree = config.ranks;
  config.training.local_batch_size = kind.batch;
  config.training.seq_len = 8;
  config.compile.enable_autoparallel = true;
  return config;
}

// What may come after placement without changing a bit.
struct Variant {
  std::string name;
  bool backend = false;
  MemoryPolicy memory = MemoryPolicy::kNone;
  bool bucketing = true;

  Config Of(Config config) const {
    config.compile.inductor_compilation =
        backend ? InductorCompilation::kAutoparallelBackend : InductorCompilation::kNone;
    config.compile.memory_policy = memory;
    config.compile.fsdp_bucketing = bucketing;
    return config;
  }
};

// AutoParallel's backend has no memory policies.
inline std::vector<Variant> EveryVariant() {
  std::vector<Variant> variants;
  for (bool bucketing : {true, false}) {
    const std::string buckets = bucketing ? "" : ", no buckets";
    for (MemoryPolicy memory : {MemoryPolicy::kNone, MemoryPolicy::kDefault, MemoryPolicy::kEager,
                                MemoryPolicy::kFull, MemoryPolicy::kSacAndOffload}) {
      variants.push_back(
          {fmt::format("native, {}{}", EnumName(memory), buckets), false, memory, bucketing});
    }
    variants.push_back({"AutoParallel's backend" + buckets, true, MemoryPolicy::kNone, bucketing});
  }
  return variants;
}

struct RandomPlanOptions {
  uint64_t seed = 0;
  bool fold = true, sum_means = false;
  placement::CostFormulas formulas = placement::CostFormulas::kSimulated;

  std::string ToString() const {
    const bool upstream = formulas == placement::CostFormulas::kAutoparallel;
    return fmt::format("seed {}{}{}{}", seed, fold ? "" : ", not folded",
                       sum_means ? ", means are summed" : "",
                       upstream ? ", AutoParallel's costs" : "");
  }
};

// Every way of drawing one, in turn.
inline RandomPlanOptions OptionsOf(uint64_t seed) {
  return {.seed = seed,
          .fold = seed % 2 == 0,
          .sum_means = seed % 4 >= 2,
          .formulas = seed % 8 >= 6 ? placement::CostFormulas::kAutoparallel
                                    : placement::CostFormulas::kSimulated};
}

inline placement::Plan RandomPlan(Graph& step, const std::string& mesh,
                                  const RandomPlanOptions& options) {
  const LinkModel links(ReadCluster(ClusterPath("h100")));
  const placement::Pricing pricing(placement::DeviceMesh::Parse(mesh), links, SpeedOf("cpu"),
                                   options.formulas);
  placement::ProblemOptions of_problem;
  of_problem.fold = options.fold;
  of_problem.sum_means = options.sum_means;
  const placement::PlaceProblem problem(step, pricing, of_problem);
  const placement::Placement random = testing::RandomPlacement(problem, options.seed);
  if (!random.feasible) Fail(ErrorCode::kBadPlan, "no plan at {}", options.ToString());
  return MakePlan(problem, random, options.ToString());
}

}  // namespace gt::random_plans_test
