#include "gt/train/step/captured_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gt/analysis/recorded_spans.h"
#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/dist/collective_log.h"
#include "gt/exec/device_graph.h"
#include "gt/exec/fused_kernels.h"
#include "gt/exec/op_profiler.h"
#include "gt/exec/program.h"
#include "gt/exec/recorded_program.h"
#include "gt/exec/reference.h"
#include "gt/kernels/load_kernel.h"
#include "gt/report/memory_report.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

class CapturedStep : public TrainStep {
 public:
  CapturedStep(LanguageModel& model, CompiledStep compiled, ExecutionOptions options)
      : graph_(std::move(compiled.graph)),
        inputs_(std::move(compiled.bound_inputs)),
        memory_(std::move(options.memory)),
        kernel_store_(std::move(options.kernel_store)),
        device_graphs_(options.device_graphs),
        records_collectives_(options.records_collectives) {
    std::unordered_map<std::string, size_t> parameter_positions;
    std::unordered_map<std::string, at::Tensor> parameters, buffers;
    for (const auto& parameter : model.named_parameters()) {
      parameter_positions.emplace(parameter.key(), parameter_positions.size());
      parameters.emplace(parameter.key(), parameter.value());
    }
    parameter_count_ = parameter_positions.size();
    for (const auto& buffer : model.named_buffers()) buffers.emplace(buffer.key(), buffer.value());
    for (const auto& input : graph_->inputs()) {
      auto position = static_cast<size_t>(input->value.index());
      if (input->role == InputRole::kInput) step_inputs_[input->name] = position;
      if (input->role == InputRole::kParameter) inputs_[position] = parameters.at(input->name);
      if (input->role == InputRole::kBuffer) inputs_[position] = buffers.at(input->name);
    }
    for (const auto& output : graph_->outputs()) {
      Target target;
      if (output->role == OutputRole::kGradient)
        target.parameter = parameter_positions.at(output->name);
      if (output->role == OutputRole::kBufferUpdate) target.buffer = buffers.at(output->name);
      targets_.push_back({output->role, target});
    }
    if (options.executor == ExecutorKind::kFast) MakeProgram();
  }

  StepResult Run(const Batch& batch, int64_t valid_tokens) override {
    // Looked up by name because a pass may have dropped an input that nothing uses.
    SetInput("tokens", batch.tokens);
    SetInput("labels", batch.labels);
    SetInput("positions", batch.positions);
    SetInput("valid_tokens", ValidTokens(valid_tokens, batch));
    std::vector<at::Tensor> outputs = Outputs();
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

  bool reuses_results() const override { return recorded_ != nullptr; }

  const Graph* graph() const override { return graph_.get(); }
  std::span<const int64_t> symbol_values() const override {
    return program_ ? program_->symbol_values() : std::span<const int64_t>();
  }
  void Reorder(std::unique_ptr<Graph> graph) override {
    GT_CHECK(graph->inputs().size() == graph_->inputs().size() &&
                 graph->outputs().size() == graph_->outputs().size(),
             "another step than the one that runs");
    const bool fast = program_ != nullptr;
    recorded_.reset();
    program_.reset();
    kernels_.reset();
    graph_ = std::move(graph);
    if (fast) MakeProgram();
  }

 private:
  void MakeProgram() {
    if (const auto gpu = Gpu(); gpu && HasFusedNodes(*graph_)) {
      kernels_ = std::make_unique<FusedKernels>(*graph_, *gpu, kernel_store_);
      LogKernels(kernels_->report());
    }
    program_ = std::make_unique<Program>(*graph_, kernels_.get());
    if (device_graphs_ && Gpu()) PlanRecording(*Gpu());
  }

  void PlanRecording(c10::Device gpu) {
    runs_ = 0;
    spans_ = FindRecordedSpans(*graph_, {.records_collectives = records_collectives_});
    if (spans_.spans.empty()) return;
    std::vector<size_t> varying;
    for (const auto& [name, position] : step_inputs_) varying.push_back(position);
    std::sort(varying.begin(), varying.end());
    MemoryOptions options = memory_;
    options.recordings = SpanOptions{.records_collectives = records_collectives_};
    const MemoryCurve memory = MeasureMemory(*graph_, options);
    predicted_pool_ = memory.recording_pool;
    const auto make_graphs = [gpu, reserve = memory.recording_reserve] {
      std::unique_ptr<DeviceGraphs> graphs = MakeDeviceGraphs(gpu);
      if (graphs && reserve > 0) OutsidePeak(gpu, [&] { graphs->Reserve(reserve); });
      return graphs;
    };
    recorded_ =
        std::make_unique<RecordedProgram>(*program_, spans_, std::move(varying), make_graphs);
  }

  std::optional<c10::Device> Gpu() const {
    for (const auto& input : graph_->inputs()) {
      const c10::Device device = ToTorch(input->value.type().device);
      if (device.is_cuda()) return device;
    }
    return std::nullopt;
  }

  static void LogKernels(const KernelReport& report) {
    if (!report.missing.empty()) {
      WarnWithoutKernels(report.missing);
      return;
    }
    log::Info(
        "generated kernels: {} for {} groups of operators, {} compiled ({:.1f} s), {} compared "
        "with their operators ({:.1f} s), {} admitted",
        report.kernels, report.nodes, report.compiled, report.compile_seconds, report.compared,
        report.admission_seconds, report.admitted);
    if (!report.rejected.empty()) {
      log::Info("left to operators: {}", Join(report.rejected, "; "));
    }
  }

  std::vector<at::Tensor> Outputs() {
    try {
      return RunGraph();
    } catch (const OutOfMemory& error) {
      FailOutOfMemory(error);
    }
  }

  // With what was alive when the memory ran out.
  [[noreturn]] void FailOutOfMemory(const OutOfMemory& error) const {
    constexpr size_t kRows = 12;
    MemoryOptions options = memory_;
    options.symbols = error.symbols();
    MemoryCurve curve = MeasureMemory(*graph_, options);
    int64_t predicted = curve.peak;
    LookAt(*graph_, error.node().number(), curve);
    Fail(error.code(), "{}\nIn use by the step at that point ({} at its peak): {}\n{}",
         error.message(), ByteText(predicted), ByteText(curve.peak),
         AliveTable(*graph_, curve, kRows));
  }

  std::vector<at::Tensor> RunGraph() {
    if (!program_) return RunReference(*graph_, inputs_);
    // The first runs are ordinary: libraries allocate their workspaces then.
    constexpr int kOrdinaryRuns = 2;
    const bool observed = OpProfiler::Active() != nullptr || CollectiveLog::Active() != nullptr;
    if (!recorded_ || observed || runs_ < kOrdinaryRuns) {
      ++runs_;
      return program_->Run(inputs_);
    }
    const bool first = runs_++ == kOrdinaryRuns;
    std::vector<at::Tensor> outputs = recorded_->Run(inputs_);
    if (first) LogRecording();
    return outputs;
  }

  void LogRecording() const {
    if (!recorded_->recorded()) {
      log::Warn("no CUDA graphs, instructions run one by one: {}", recorded_->failure());
      return;
    }
    log::Info(
        "CUDA graphs: {} {} of {} kernels recorded, {} instructions between; they hold {} "
        "(predicted {})",
        spans_.spans.size(), spans_.spans.size() == 1 ? "span" : "spans", spans_.kernels,
        spans_.between, ByteText(recorded_->bytes()), ByteText(predicted_pool_));
  }

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
  MemoryOptions memory_;
  std::filesystem::path kernel_store_;
  std::unique_ptr<FusedKernels> kernels_;
  std::unique_ptr<Program> program_;
  bool device_graphs_, records_collectives_;
  RecordedSpans spans_;
  std::unique_ptr<RecordedProgram> recorded_;  // null: nothing of the step can be recorded
  int64_t predicted_pool_ = 0;                 // bytes that recordings are predicted to hold
  int runs_ = 0;
  std::unordered_map<std::string, size_t> step_inputs_;
  std::vector<std::pair<OutputRole, Target>> targets_;
  size_t parameter_count_ = 0;
};

}  // namespace

std::unique_ptr<TrainStep> MakeCapturedStep(LanguageModel& model, CompiledStep compiled,
                                            ExecutionOptions options) {
  return std::make_unique<CapturedStep>(model, std::move(compiled), std::move(options));
}

}  // namespace gt
