#include "gt/train/step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/exec/convert.h"
#include "gt/exec/reference.h"
#include "gt/passes/pipeline.h"
#include "gt/trace/scope.h"

namespace gt {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

at::Tensor ValidTokens(const Batch& batch) {
  return at::scalar_tensor(static_cast<double>(batch.valid_tokens),
                           batch.tokens.options().dtype(at::kFloat));
}

class EagerStep : public TrainStep {
 public:
  explicit EagerStep(LanguageModel& model) : model_(model), parameters_(model.parameters()) {}

  StepResult Run(const Batch& batch) override {
    at::Tensor loss = LossOf(model_, batch.tokens, batch.labels, ValidTokens(batch));
    std::vector<at::Tensor> gradients =
        torch::autograd::grad({loss}, parameters_, {at::ones_like(loss)}, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    return {loss.detach(), std::move(gradients)};
  }

 private:
  LanguageModel& model_;
  std::vector<at::Tensor> parameters_;
};

class CapturedStep : public TrainStep {
 public:
  CapturedStep(LanguageModel& model, Captured captured, ExecutorKind executor)
      : graph_(std::move(captured.graph)), inputs_(std::move(captured.bound_inputs)) {
    if (executor == ExecutorKind::kFast) program_ = std::make_unique<Program>(*graph_);
    std::unordered_map<std::string, size_t> parameter_positions;
    for (const auto& parameter : model.named_parameters()) {
      parameter_positions.emplace(parameter.key(), parameter_positions.size());
    }
    parameter_count_ = parameter_positions.size();
    std::unordered_map<std::string, at::Tensor> buffers;
    for (const auto& buffer : model.named_buffers()) buffers.emplace(buffer.key(), buffer.value());
    for (const auto& input : graph_->inputs()) {
      if (input->role == InputRole::kInput) {
        step_inputs_[input->name] = static_cast<size_t>(input->value.index());
      }
    }
    for (const auto& output : graph_->outputs()) {
      Target target;
      if (output->role == OutputRole::kGradient)
        target.parameter = parameter_positions.at(output->name);
      if (output->role == OutputRole::kBufferUpdate) target.buffer = buffers.at(output->name);
      targets_.push_back({output->role, target});
    }
  }

  StepResult Run(const Batch& batch) override {
    // Looked up by name because a pass may have dropped an input that nothing uses.
    SetInput("tokens", batch.tokens);
    SetInput("labels", batch.labels);
    SetInput("valid_tokens", ValidTokens(batch));
    std::vector<at::Tensor> outputs =
        program_ ? program_->Run(inputs_) : RunReference(*graph_, inputs_);
    StepResult result;
    result.gradients.resize(parameter_count_);
    at::NoGradGuard no_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      auto& [role, target] = targets_[i];
      if (role == OutputRole::kLoss) result.loss = outputs[i];
      if (role == OutputRole::kGradient) result.gradients[target.parameter] = outputs[i];
      if (role == OutputRole::kBufferUpdate) target.buffer.copy_(outputs[i]);
    }
    return result;
  }

 private:
  struct Target {
    size_t parameter = 0;
    at::Tensor buffer;
  };

  void SetInput(const std::string& name, const at::Tensor& tensor) {
    auto found = step_inputs_.find(name);
    if (found != step_inputs_.end()) inputs_[found->second] = tensor;
  }

  std::unique_ptr<Graph> graph_;
  std::vector<at::Tensor> inputs_;
  std::unique_ptr<Program> program_;
  std::unordered_map<std::string, size_t> step_inputs_;
  std::vector<std::pair<OutputRole, Target>> targets_;
  size_t parameter_count_ = 0;
};

}  // namespace

at::Tensor LossOf(LanguageModel& model, const at::Tensor& tokens, const at::Tensor& labels,
                  const at::Tensor& valid_tokens) {
  at::Tensor logits = model.forward(tokens);
  Scope scope = CurrentScope();
  scope.module = Name("loss");
  scope.phase = Phase::kLoss;
  scope.source = SourceName(std::source_location::current());
  ScopeGuard guard(scope);
  c10::SymInt count = labels.sym_size(0) * labels.sym_size(1);
  at::Tensor sum = at::cross_entropy_loss_symint(
      logits.reshape_symint({count, logits.sym_size(2)}).to(at::kFloat),
      labels.reshape_symint({count}), /*weight=*/{}, at::Reduction::Sum, /*ignore_index=*/-100);
  return sum / valid_tokens;
}

std::unique_ptr<TrainStep> MakeEagerStep(LanguageModel& model) {
  return std::make_unique<EagerStep>(model);
}

Captured CaptureStep(LanguageModel& model, const Config& config, c10::Device device,
                     bool symbolic_batch, CaptureReport* report) {
  std::vector<int64_t> sizes = {config.training.local_batch_size, config.training.seq_len};
  std::vector<StepInput> inputs = {
      {.name = "tokens", .sizes = sizes},
      {.name = "labels", .sizes = sizes},
      {.name = "valid_tokens", .sizes = {}, .dtype = at::kFloat},
  };
  CaptureOptions options;
  options.device = FromTorch(device);
  options.name = "train_step";
  if (symbolic_batch) {
    options.hooks.push_back([](std::span<StepInput> step_inputs) {
      for (StepInput& input : step_inputs) {
        if (input.name != "valid_tokens") input.symbolic.push_back({0, {.identity = "batch"}});
      }
    });
  }
  auto start = std::chrono::steady_clock::now();
  Captured captured = CaptureTrainStep(
      model,
      [&model](std::span<const at::Tensor> given) {
        return LossOf(model, given[0], given[1], given[2]);
      },
      std::move(inputs), options);
  CaptureReport made;
  made.capture_seconds = SecondsSince(start);
  made.captured_nodes = captured.graph->node_count();
  if (config.compile.enable_passes) {
    PassManagerOptions manager_options;
    manager_options.disabled = config.compile.disable_passes;
    manager_options.reproducer_folder = config.dump_folder;
    if (config.compile.debug_graph_passes)
      manager_options.dump_folder = config.dump_folder + "/passes";
    made.passes = PassManager(DefaultPipeline(), manager_options).Run(*captured.graph);
  }
  made.nodes = captured.graph->node_count();
  if (report != nullptr) *report = std::move(made);
  return captured;
}

std::unique_ptr<TrainStep> MakeCapturedStep(LanguageModel& model, Captured captured,
                                            ExecutorKind executor) {
  return std::make_unique<CapturedStep>(model, std::move(captured), executor);
}

void CastParametersForCompute(LanguageModel& model, at::ScalarType dtype) {
  for (nn::Module* module : nn::ModulesOf(model)) {
    module->ForEachParameter([dtype](const std::string&, nn::Parameter& parameter) {
      parameter.set_preparation([dtype](const at::Tensor& stored) { return stored.to(dtype); });
    });
  }
}

}  // namespace gt
