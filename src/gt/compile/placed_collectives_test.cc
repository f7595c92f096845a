// A plan that is FSDP, TP or EP communicates no more than the layout of that name that gt train applies by
// hand: it launches as many collectives or fewer, and sends as many bytes or fewer.
#include <gtest/gtest.h>

#include <set>

#include "gt/analysis/collectives.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/single_device_step.h"
#include "gt/job/config.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/storage/file_writer.h"
#include "gt/testing/temp_folder.h"

namespace gt::placed_collectives_test {
namespace {

using placement::AxisUse;

// What a rank sends and receives in a step.
struct Traffic {
  int64_t launches = 0;
  double bytes = 0;  // through the links: a sum for all goes twice
};

// Jobs by hand add up losses and counts of tokens outside of their graphs.
constexpr int64_t kSmall = 1024;

// Of the step that the job compiles for one of its ranks.
Traffic TrafficOf(Config config, c10::Device device) {
  config.comm.backend = CommBackend::kFake;
  Traffic traffic;
  World::Run(config, [&](World& world) {
    const Mesh mesh(config.parallelism, world.size(), world.rank());
    const ModelPtr model = BuildConfiguredModel(config, world, mesh);
    const CompiledStep step = Compile(
        {.model = *model, .config = config, .device = device, .mesh = mesh, .world = &world});
    for (const Node* node : step.graph->nodes()) {
      if (!LaunchesCollective(node->op())) continue;
      const int64_t bytes = MovedBytes(*node, step.graph->shapes().Hints());
      const bool is_sum = node->op().collective == Collective::kAllReduce;
      if (is_sum && bytes <= kSmall) continue;
      ++traffic.launches;
      traffic.bytes += static_cast<double>(bytes) * (is_sum ? 2 : 1);
    }
  });
  return traffic;
}

struct Case {
  std::string name, model = "llama3", flavor = "tiny", mesh = "4";
  std::vector<AxisUse> axes = {};
  int64_t tensor = 1, experts = 1;
  int64_t rows = 2, length = 16;  // of a rank that reads
  bool gpu = false;
  bool buckets = false;  // a plan may gather in two steps, along one axis each, for one bucket
  bool counted = true;   // launches are compared as well as bytes

  Config Hand() const {
    Config config;
    config.model.name = model;
    config.model.flavor = flavor;
    config.device = gpu ? DeviceChoice::kCuda : DeviceChoice::kCpu;
    config.ranks = placement::DeviceMesh::Parse(mesh).ranks();
    config.training.seq_len = length;
    config.training.local_batch_size = rows;
    if (gpu) config.training.mixed_precision_param = ComputeDtype::kBfloat16;
    config.parallelism.tensor_parallel_degree = tensor;
    config.parallelism.expert_parallel_degree = experts;
    return config;
  }
  c10::Device device() const { return c10::Device(gpu ? c10::kCUDA : c10::kCPU, gpu ? 0 : -1); }
  friend void PrintTo(const Case& which, std::ostream* out) { *out << which.name; }
};

// The products before an activation, a head or attention have a part of the features on each rank, those
// after it a summand.
std::vector<placement::Pin> TensorParallelPins(const Graph& step, const Case& which) {
  const std::set<std::string, std::less<>> cut = {"wq", "wk", "wv", "w1", "w3"},
                                           summed = {"wo", "w2"};
  const std::string rows = which.axes.size() > 1 ? "S(0)" : "";
  std::vector<placement::Pin> pins;
  for (const Node* node : step.nodes()) {
    if (node->op().work != Work::kProduct || node->meta().is_backward()) continue;
    const std::string& module = node->meta().module.str();
    const std::string name = module.substr(module.rfind('.') + 1);
    if (cut.contains(name)) pins.push_back({node->result()->name(), rows + "S(1)"});
    if (summed.contains(name)) pins.push_back({node->result()->name(), rows + "P"});
  }
  return pins;
}

// The best plan of that layout.
placement::Plan PlanOf(const Case& which, const Config& config) {
  const ModelPtr model = BuildConfiguredModel(config);
  const Mesh ranks(config.parallelism, config.ranks, 0);
  const StepRequest request{*model, config, which.device(), ranks};
  SingleDeviceStep whole(request);
  const LinkModel links(ReadCluster(ClusterPath("h100")));
  const placement::Pricing pricing(placement::DeviceMesh::Parse(which.mesh), links,
                                   SpeedOf("hopper"));
  placement::ProblemOptions options;
  options.axes = which.axes;
  options.finest_parameters = true;
  if (which.tensor > 1) options.pins = TensorParallelPins(whole.graph(), which);
  const placement::PlaceProblem problem(whole.graph(), pricing, options);
  const placement::Placement found = Search(problem, {});
  EXPECT_TRUE(found.feasible);
  return MakePlan(problem, found, "by hand");
}

class PlacedCollectives : public ::testing::TestWithParam<Case> {};

TEST_P(PlacedCollectives, AreNoMoreThanByHand) {
  const Case& which = GetParam();
  const Config hand = which.Hand();
  Config placed = hand;
  placed.compile.enable_autoparallel = true;
  placed.mesh = which.mesh;
  const testing::TempFolder folder;
  placed.compile.autoparallel_plan = (folder / "plan.json").string();
  WriteFile(placed.compile.autoparallel_plan, ToJson(PlanOf(which, placed)));
  Config by_hand = hand;
  by_hand.compile.fsdp_bucketing = placed.compile.fsdp_bucketing = which.buckets;
  const Traffic expected = TrafficOf(by_hand, which.device());
  const Traffic traffic = TrafficOf(placed, which.device());
  EXPECT_GT(expected.launches, 0);
  EXPECT_LE(traffic.bytes, expected.bytes);
  if (which.counted) EXPECT_LE(traffic.launches, expected.launches);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PlacedCollectives,
                         ::testing::Values(Case{.name = "fsdp", .axes = {AxisUse::kShard}},
                                           Case{.name = "fsdp_uneven",
                                                .model = "qwen3",
                                                .mesh = "3",
                                                .axes = {AxisUse::kShard}},
                                           Case{.name = "fsdp_8B",
                                                .flavor = "8B",
                                                .mesh = "64",
                                                .axes = {AxisUse::kShard},
                                                .rows = 1,
                                                .length = 8192,
                                                .gpu = true},
                                           Case{.name = "fsdp_tp_8B",
                                                .flavor = "8B",
                                                .mesh = "8x8",
                                                .axes = {AxisUse::kShard, AxisUse::kModel},
                                                .tensor = 8,
                                                .length = 8192,
                                                .gpu = true,
                                                .buckets = true},
                                           Case{.name = "tp_8B",
                                                .flavor = "8B",
                                                .mesh = "8",
                                                .axes = {AxisUse::kModel},
                                                .tensor = 8,
                                                .length = 8192,
                                                .gpu = true},
                                           Case{.name = "tp_4B",
                                                .model = "qwen3",
                                                .flavor = "4B",
                                                .mesh = "4",
                                                .axes = {AxisUse::kModel},
                                                .tensor = 4,
                                                .length = 4096,
                                                .gpu = true},
                                           Case{.name = "ep_30B",
                                                .model = "qwen3",
                                                .flavor = "30B-A3B",
                                                .mesh = "16",
                                                .axes = {AxisUse::kExperts},
                                                .experts = 16,
                                                .rows = 1,
                                                .length = 4096,
                                                .gpu = true},
                                           Case{.name = "fsdp_ep_16B",
                                                .model = "deepseek_v3",
                                                .flavor = "16B",
                                                .mesh = "8x8",
                                                .axes = {AxisUse::kShard, AxisUse::kExperts},
                                                .experts = 8,
                                                .length = 4096,
                                                .gpu = true,
                                                .counted = false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gt::placed_collectives_test
