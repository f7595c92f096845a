// Steps that are placed at random compute what one device computes.
#include "gt/compile/placed_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gt/compile/configured_model.h"
#include "gt/compile/global_step.h"
#include "gt/compile/step_capture.h"
#include "gt/exec/program.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/passes/framework/registry.h"
#include "gt/placement/plan.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/testing/random_placement.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/generator.h"

namespace gt::placed_step_test {
namespace {

using placement::DeviceMesh;
using placement::Plan;

struct Case {
  std::string model = "llama3", flavor = "tiny", mesh = "2x2";
  int64_t batch = 4, length = 8;
  std::function<void(Config&)> change = [](Config&) {};
  double tolerance = 1e-5;
};

// The step of one device, with what it computes for a random batch.
class WholeStep {
 public:
  explicit WholeStep(const Case& which) : mesh(DeviceMesh::Parse(which.mesh)) {
    config.model.name = which.model;
    config.model.flavor = which.flavor;
    config.training.local_batch_size = which.batch;
    config.training.seq_len = which.length;
    config.training.loss_chunks = 2;
    config.device = DeviceChoice::kCpu;
    config.ranks = mesh.ranks();
    which.change(config);
    SetThreads(1);
    model = BuildConfiguredModel(config);
    EpOverlapSection off;
    off.enabled = AutoSwitch::kFalse;
    captured = CaptureUncompiled({*model, config, c10::Device(c10::kCPU)}, off);
    for (auto& pass : ParsePipeline("dce,canonicalize,cse,dce")) pass->Run(*captured.graph);
    captured.graph->NumberNodes();
    InitializeModel(*model, config, at::kCPU);
    Disturb();
    MakeInputs();
    GeneratorScope generator(at::kCPU);
    SeedGenerator(at::kCPU, 7);
    expected = Program(*captured.graph).Run(inputs);
  }

  Config config;
  DeviceMesh mesh;
  ModelPtr model;
  Captured captured;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> expected;

 private:
  // Norms of ones hide mistakes.
  void Disturb() {
    at::NoGradGuard no_gradients;
    at::manual_seed(3);
    for (at::Tensor& parameter : model->parameters()) {
      parameter.add_(at::randn_like(parameter).mul_(0.02));
    }
  }

  void MakeInputs() {
    std::map<std::string, at::Tensor> tensors;
    for (const auto& parameter : model->named_parameters()) {
      tensors[parameter.key()] = parameter.value().detach();
    }
    for (const auto& buffer : model->named_buffers()) tensors[buffer.key()] = buffer.value();
    const int64_t rows = config.training.local_batch_size, length = config.training.seq_len;
    tensors["tokens"] = at::randint(model->vocab_size(), {rows, length}, at::kLong);
    tensors["labels"] = at::randint(model->vocab_size(), {rows, length}, at::kLong);
    tensors["labels"].select(0, 0).select(0, 1).fill_(-100);
    tensors["positions"] = at::arange(length, at::kLong).expand({rows, length}).contiguous();
    tensors["valid_tokens"] = at::full({}, static_cast<double>(rows * length - 1), at::kFloat);
    for (const auto& input : captured.graph->inputs()) {
      const auto found = tensors.find(input->name);
      inputs.push_back(found != tensors.end()
                           ? found->second
                           : captured.bound_inputs[static_cast<size_t>(input->value.index())]);
    }
  }
};

at::Tensor PartOf(const at::Tensor& whole, const TensorBox& box) {
  at::Tensor part = whole;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.sizes[d]);
  }
  return part.contiguous();
}

// What is wrong with a rank's results, or nothing.
std::string Compare(const WholeStep& whole, const Graph& local, const PlacedStep& step,
                    const MeshRank& rank, const std::vector<at::Tensor>& results,
                    double tolerance) {
  for (size_t i = 0; i < results.size(); ++i) {
    const Output& output = *local.outputs()[i];
    at::Tensor expected = whole.expected[i];
    if (output.role == OutputRole::kGradient) {
      expected = PartOf(expected, step.inputs.at(output.name).BoxOn(rank));
    }
    if (expected.sizes() != results[i].sizes()) return output.name + ": other sizes";
    if (expected.numel() == 0) continue;
    const double scale = std::max(whole.expected[i].abs().max().item<double>(), 1e-3);
    const double off = (expected - results[i]).abs().max().item<double>();
    if (!(off <= tolerance * scale)) {
      return fmt::format("{} is off by {} of {}", output.name, off, scale);
    }
  }
  return "";
}

// Runs the plan on all ranks; what is wrong, or nothing.
std::string RunRank(const WholeStep& whole, const Plan& plan, World& world, double tolerance) {
  std::unique_ptr<Graph> graph = whole.captured.graph->Clone();
  const PlacedStep step = ApplyPlacement(*graph, plan, world.rank());
  for (auto& pass : ParsePipeline("dce")) pass->Run(*graph);
  Verify(*graph);
  const MeshRank rank(whole.mesh, world.rank());
  MakeMeshGroups(world, *graph, rank);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& input : whole.captured.graph->inputs()) {
    const at::Tensor& tensor = whole.inputs[static_cast<size_t>(input->value.index())];
    tensors[input->name] = PartOf(tensor, step.inputs.at(input->name).BoxOn(rank));
  }
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph->inputs()) inputs.push_back(tensors.at(input->name));
  GeneratorScope generator(at::kCPU);
  SeedGenerator(at::kCPU, 7);
  return Compare(whole, *graph, step, rank, Program(*graph).Run(inputs), tolerance);
}

void UseFlexAndDropout(Config& config) {
  config.model.attn = AttentionBackend::kFlex;
  config.model.dropout = 0.1;
}

void ExpectRandomPlans(const Case& which, int count, uint64_t first_seed = 0) {
  WholeStep whole(which);
  const LinkModel links(ReadCluster(ClusterPath("h100")));
  const placement::Pricing pricing(whole.mesh, links, SpeedOf("hopper"));
  std::vector<Plan> plans;
  for (bool fold : {true, false}) {
    placement::ProblemOptions options;
    options.fold = fold;
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
        problem = RunRank(whole, plan, world, which.tolerance);
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

// Three hundred, of every kind.
TEST(PlacedStep, ManyRandomPlans_slow) {
  const auto odd = [](Config& config) { config.model.vocab_size = 259; };
  const uint64_t seed = 1000;
  ExpectRandomPlans({.mesh = "4"}, 40, seed);
  ExpectRandomPlans({.mesh = "2x2"}, 40, seed);
  ExpectRandomPlans({.model = "qwen3", .mesh = "4x2", .batch = 8}, 20, seed);
  ExpectRandomPlans({.mesh = "2x2x2", .batch = 8}, 20, seed);
  ExpectRandomPlans({.mesh = "2x2", .change = UseFlexAndDropout}, 40, seed);
  ExpectRandomPlans({.mesh = "3", .batch = 5, .change = odd}, 30, seed);
  ExpectRandomPlans({.mesh = "3x2", .batch = 7, .change = odd}, 20, seed);
  ExpectRandomPlans({.model = "qwen3", .flavor = "tiny_moe", .mesh = "2x2"}, 40, seed);
  ExpectRandomPlans({.model = "deepseek_v3", .mesh = "2x2"}, 30, seed);
  ExpectRandomPlans({.model = "deepseek_v3", .mesh = "8", .batch = 8}, 20, seed);
}

}  // namespace
}  // namespace gt::placed_step_test
