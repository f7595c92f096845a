// The step of one device beside the steps of ranks that a plan makes of it, run on the same numbers, for
// tests.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gt/compile/configured_model.h"
#include "gt/compile/placed_step.h"
#include "gt/compile/step_capture.h"
#include "gt/exec/program.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/passes/framework/registry.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/generator.h"

namespace gt::placed_step_test {

struct Case {
  std::string model = "llama3", flavor = "tiny", mesh = "2x2";
  int64_t batch = 4, length = 8;
  std::function<void(Config&)> change = [](Config&) {};
  double tolerance = 1e-5;
};

// The step of one device, with what it computes for a random batch.
class WholeStep {
 public:
  explicit WholeStep(const Case& which) : mesh(placement::DeviceMesh::Parse(which.mesh)) {
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
  placement::DeviceMesh mesh;
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

inline at::Tensor ViewOf(const at::Tensor& whole, const TensorBox& box) {
  at::Tensor part = whole;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.sizes[d]);
  }
  return part;
}

inline at::Tensor PartOf(const at::Tensor& whole, const TensorBox& box) {
  return ViewOf(whole, box).contiguous();
}

// How far a rank's results are from those of one device, each relative to the largest element of the
// whole tensor.
struct Distance {
  double gradients = 0, others = 0;  // the largest: of gradients, of loss and buffers
  std::string worst;                 // what is farthest off
  void Add(const Output& output, double off) {
    if (off > std::max(gradients, others)) worst = fmt::format("{}: {:.3g}", output.name, off);
    double& largest = output.role == OutputRole::kGradient ? gradients : others;
    largest = std::max(largest, off);
  }
};

// Elements of tensors that are all but zero are compared with this.
inline constexpr double kSmallestScale = 1e-3;

// A rank's step under a plan and what it computed.
struct RankRun {
  MeshRank rank;
  std::unique_ptr<Graph> graph;
  PlacedStep step = {};
  std::vector<at::Tensor> results = {};

  // Where the rank's part of an output is in the whole tensor; parameters' gradients alone have parts.
  TensorBox BoxOf(const Output& output) const { return step.inputs.at(output.name).BoxOn(rank); }
};

inline RankRun RunPlaced(const WholeStep& whole, const placement::Plan& plan, World& world) {
  RankRun run{.rank = MeshRank(whole.mesh, world.rank()), .graph = whole.captured.graph->Clone()};
  run.step = ApplyPlacement(*run.graph, plan, world.rank());
  for (auto& pass : ParsePipeline("dce")) pass->Run(*run.graph);
  Verify(*run.graph);
  MakeMeshGroups(world, *run.graph, run.rank);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& input : whole.captured.graph->inputs()) {
    const at::Tensor& tensor = whole.inputs[static_cast<size_t>(input->value.index())];
    tensors[input->name] = PartOf(tensor, run.step.inputs.at(input->name).BoxOn(run.rank));
  }
  std::vector<at::Tensor> inputs;
  for (const auto& input : run.graph->inputs()) inputs.push_back(tensors.at(input->name));
  GeneratorScope generator(at::kCPU);
  SeedGenerator(at::kCPU, 7);
  run.results = Program(*run.graph).Run(inputs);
  return run;
}

inline Distance DistanceOf(const WholeStep& whole, const RankRun& run) {
  Distance distance;
  for (size_t i = 0; i < run.results.size(); ++i) {
    const Output& output = *run.graph->outputs()[i];
    at::Tensor expected = whole.expected[i];
    if (output.role == OutputRole::kGradient) expected = PartOf(expected, run.BoxOf(output));
    constexpr double kNoNumber = std::numeric_limits<double>::infinity();
    if (expected.sizes() != run.results[i].sizes()) {
      distance.Add(output, kNoNumber);
      continue;
    }
    if (expected.numel() == 0) continue;
    const double scale = std::max(whole.expected[i].abs().max().item<double>(), kSmallestScale);
    const double off = (expected - run.results[i]).abs().max().item<double>() / scale;
    distance.Add(output, off < kNoNumber ? off : kNoNumber);
  }
  return distance;
}

// Runs the plan's step of one rank.
inline Distance RunRank(const WholeStep& whole, const placement::Plan& plan, World& world) {
  return DistanceOf(whole, RunPlaced(whole, plan, world));
}

}  // namespace gt::placed_step_test
