// How much of a GPU step's communication is predicted to hide, for many jobs, against recorded floors:
// what no change may fall below unseen. The steps are captured for a GPU, on any machine.
//
// tests/gpu/overlap_floors.txt has a line for each job: the share that must be hidden, and the
// largest step in units of the larger of compute and communication. A change that makes a job better
// should raise its floor (floors are added to the file that is named; begin with an empty one):
//   GT_RECORD_FLOORS=FILE ./gt test --slow --filter OverlapFloors
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/report/overlap_report.h"
#include "gt/torch_bridge/device.h"

namespace gt::overlap_floors_test {
namespace {

struct Case {
  int64_t ep;
  double links;
  std::string way;
  int64_t chunks;
  MemoryPolicy policy;
  std::string load;
  bool contention;

  std::string Name() const {
    return fmt::format("ep{}/links{}/{}{}/{}/{}/{}", ep, links, way, chunks, EnumName(policy), load,
                       contention ? "contention" : "free");
  }
};

const std::vector<int64_t> kEps = {8, 16, 32, 64};
const std::vector<double> kLinks = {0.3, 0.6, 1, 3};
const std::vector<std::string> kWays = {"block", "moe_batch", "moe_seq"};
const std::vector<int64_t> kChunks = {2, 3, 4};
const std::vector<MemoryPolicy> kPolicies = {MemoryPolicy::kNone, MemoryPolicy::kDefault,
                                             MemoryPolicy::kFull, MemoryPolicy::kSacAndOffload};
const std::vector<std::string> kLoads = {"balanced", "zipf:1.0"};

std::vector<Case> ManyCases() {
  std::vector<Case> cases;
  size_t i = 0;
  for (int64_t ep : {8, 32, 64}) {
    for (double links : {0.3, 1.0, 3.0}) {
      for (const std::string& way : kWays) {
        for (int64_t chunks : {2, 4}) {
          for (MemoryPolicy policy : kPolicies) {
            for (const std::string& load : kLoads) {
              cases.push_back({ep, links, way, chunks, policy, load, i++ % 2 == 1});
            }
          }
        }
      }
    }
  }
  return cases;
}

// Every value of every dimension with every value of every other, or nearly so: each case is one of
// all, chosen by walking the dimensions at different paces.
std::vector<Case> SomeCases() {
  std::vector<Case> cases;
  for (size_t i = 0; i < 32; ++i) {
    cases.push_back({kEps[i % 4], kLinks[(i / 4) % 4], kWays[i % 3], kChunks[(i / 3) % 3],
                     kPolicies[(i + i / 4) % 4], kLoads[(i / 2) % 2], (i + i / 8) % 2 == 1});
  }
  return cases;
}

struct Predicted {
  double hidden = 0;  // share
  double of_larger = 0;
  double step = 0, whole = 0;  // microseconds
};

double StepOf(const Config& config, OverlapSummary* summary) {
  SetDeterministic(false);  // decides which attention runs
  double step = 0;
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    ModelPtr model = BuildConfiguredModel(config, world, mesh);
    CompiledStep captured = Compile({.model = *model,
                                     .config = config,
                                     .device = c10::Device(c10::kCUDA, 0),
                                     .mesh = mesh,
                                     .world = &world});
    step = captured.predicted->step;
    if (summary != nullptr) *summary = SummarizeOverlap(*captured.predicted);
  });
  return step;
}

Predicted PredictionOf(const Case& one,
                       InductorCompilation compilation = InductorCompilation::kNone) {
  Config config;
  config.compile.inductor_compilation = compilation;
  config.model.name = "deepseek_v3";
  config.model.flavor = "16B";
  config.model.n_layers = 5;
  config.model.vocab_size = 32000;
  config.training.local_batch_size = 4;
  config.training.seq_len = 4096;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.device = DeviceChoice::kCuda;
  config.ranks = config.parallelism.expert_parallel_degree = one.ep;
  config.comm.backend = CommBackend::kFake;
  config.comm.cluster = "h200";
  config.comm.emulated_time_scale = one.links;
  config.comm.contention = one.contention;
  config.comm.pretended_rank = one.ep / 3;
  config.compile.memory_policy = one.policy;
  config.debug.moe_load = one.load;
  Predicted predicted;
  predicted.whole = StepOf(config, nullptr);
  EpOverlapSection& overlap = config.compile.ep_overlap;
  overlap.enabled = AutoSwitch::kTrue;
  overlap.num_chunks = one.chunks;
  if (one.way != "block") overlap.module_fqn = "layers.*.moe";
  if (one.way == "moe_seq") overlap.chunk_dim = ChunkDim::kSeq;
  OverlapSummary summary;
  predicted.step = StepOf(config, &summary);
  predicted.hidden = 1 - (summary.step - summary.compute) / summary.communication;
  predicted.of_larger = summary.times_lower_bound();
  return predicted;
}

class OverlapFloors : public ::testing::Test {
 protected:
  static void Compare(const std::vector<Case>& cases) {
    struct Floor {
      double hidden = 0, of_larger = 0;
    };
    std::map<std::string, Floor> floors;
    std::ifstream file(GT_SOURCE_DIR "/tests/gpu/overlap_floors.txt");
    Floor floor;
    for (std::string name; file >> name >> floor.hidden >> floor.of_larger;) floors[name] = floor;
    const char* record = std::getenv("GT_RECORD_FLOORS");
    std::ofstream recorded;
    if (record != nullptr) recorded.open(record, std::ios::app);
    for (const Case& one : cases) {
      const Predicted predicted = PredictionOf(one);
      if (record != nullptr) {
        // A little below what is reached: floors are for falls, not for noise of a percent.
        recorded << fmt::format("{} {:.2f} {:.2f}\n", one.Name(),
                                std::floor(100 * predicted.hidden - 0.5) / 100,
                                std::ceil(100 * predicted.of_larger + 0.5) / 100);
        continue;
      }
      ASSERT_TRUE(floors.contains(one.Name())) << one.Name() << " has no floor";
      EXPECT_GE(predicted.hidden, floors[one.Name()].hidden) << one.Name();
      EXPECT_LE(predicted.of_larger, floors[one.Name()].of_larger) << one.Name();
    }
  }
};

TEST_F(OverlapFloors, Hold) { Compare(SomeCases()); }
TEST_F(OverlapFloors, HoldEverywhere_slow) { Compare(ManyCases()); }

// Floors are about orders, at the times of single operators. Generated kernels leave less compute to
// hide behind, but no step may take longer with them.
TEST_F(OverlapFloors, GeneratedKernelsMakeNoStepSlower) {
  const std::vector<Case> cases = SomeCases();
  for (size_t i = 0; i < cases.size(); i += 5) {
    const Predicted operators = PredictionOf(cases[i]);
    const Predicted kernels = PredictionOf(cases[i], InductorCompilation::kFull);
    EXPECT_LT(kernels.step, operators.step) << cases[i].Name();
    EXPECT_LT(kernels.whole, operators.whole) << cases[i].Name();
  }
}

// The row that documentation shows, whatever the floors say: most is hidden, and chunks pay.
TEST_F(OverlapFloors, TheDocumentedJobOverlaps) {
  const Predicted predicted = PredictionOf(
      {32, 0.6, "block", 2, MemoryPolicy::kNone, "balanced", false}, InductorCompilation::kFull);
  EXPECT_GT(predicted.hidden, 0.85);
  EXPECT_LT(predicted.of_larger, 1.1);
  EXPECT_LT(predicted.step, 0.8 * predicted.whole);
}

}  // namespace
}  // namespace gt::overlap_floors_test
