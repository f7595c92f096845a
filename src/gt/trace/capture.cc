#include "gt/trace/capture.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>

#include <unordered_map>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/scope.h"
#include "gt/trace/recorder.h"

namespace gt {
namespace {

// A backward that the program runs itself must stay on this thread: the recorder, the scopes and the
// dispatch keys are thread-local.
class SingleThreadedAutograd {
 public:
  SingleThreadedAutograd()
      : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~SingleThreadedAutograd() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(before_);
  }
  SingleThreadedAutograd(const SingleThreadedAutograd&) = delete;
  SingleThreadedAutograd& operator=(const SingleThreadedAutograd&) = delete;

 private:
  bool before_;
};

struct ModuleTensor {
  std::string name;
  at::Tensor real;
  at::Tensor traced;
  Value* before = nullptr;  // the graph input
};

// One capture: its inputs, the tensors that stand for them, and what was found out at the end.
class CaptureRun {
 public:
  CaptureRun(torch::nn::Module& module, std::vector<StepInput> inputs,
             const CaptureOptions& options)
      : graph_(std::make_unique<Graph>(options.name)), recorder_(*graph_, options.device) {
    for (const PrepareInputs& prepare : options.hooks) prepare(inputs);
    const auto parameters = module.named_parameters();
    for (const auto& parameter : parameters) allocated_ &= !parameter.value().is_meta();
    AddTensors(parameters, InputRole::kParameter, parameters_);
    AddTensors(module.named_buffers(), InputRole::kBuffer, buffers_);
    for (const StepInput& input : inputs) AddStepInput(input);
  }

  at::Tensor Run(const StepFunction& function) {
    at::Tensor result = function(step_tensors_);
    if (!result.defined() || recorder_.ValueOf(result) == nullptr) {
      Fail(ErrorCode::kUnsupportedCapture,
           "the captured function returned a tensor that does not depend on anything it was given");
    }
    return result;
  }

  void AddGradients(const at::Tensor& loss) {
    if (loss.dim() != 0 || !loss.is_floating_point()) {
      Fail(ErrorCode::kUnsupportedCapture,
           "the loss must be a single floating-point number, but the captured function returned a "
           "tensor of {} dimensions",
           loss.dim());
    }
    std::vector<at::Tensor> wanted;
    std::vector<const ModuleTensor*> owners;
    for (const ModuleTensor& parameter : parameters_) {
      if (!parameter.real.requires_grad()) continue;
      wanted.push_back(parameter.traced);
      owners.push_back(&parameter);
    }
    if (!loss.requires_grad()) {
      Fail(ErrorCode::kUnsupportedCapture,
           "no parameter that requires a gradient influences the loss; there is nothing to train");
    }
    const std::vector<at::Tensor> gradients = recorder_.Backward(loss, wanted);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      graph_->AddOutput(OutputRole::kGradient, owners[i]->name, recorder_.ValueOf(gradients[i]));
    }
  }

  void AddOutput(OutputRole role, const std::string& name, const at::Tensor& tensor) {
    graph_->AddOutput(role, name, recorder_.ValueOf(tensor));
  }

  Captured Finish() {
    for (const ModuleTensor& buffer : buffers_) {
      Value* now = recorder_.ValueOf(buffer.traced);
      if (now != buffer.before) graph_->AddOutput(OutputRole::kBufferUpdate, buffer.name, now);
    }
    for (const ModuleTensor& parameter : parameters_) RejectMutation("parameter", parameter);
    for (const ModuleTensor& input : step_inputs_) RejectMutation("input", input);
    RefineModules();
    Captured captured;
    captured.bound_inputs.resize(graph_->inputs().size());
    for (const auto* group : {&parameters_, &buffers_}) {
      for (const ModuleTensor& tensor : *group) {
        captured.bound_inputs[static_cast<size_t>(tensor.before->index())] = tensor.real;
      }
    }
    size_t next_constant = 0;
    for (const auto& input : graph_->inputs()) {
      if (input->role != InputRole::kConstant) continue;
      captured.bound_inputs[static_cast<size_t>(input->value.index())] =
          recorder_.constants()[next_constant++];
    }
    captured.graph = std::move(graph_);
    return captured;
  }

 private:
  template <typename Tensors>
  void AddTensors(const Tensors& tensors, InputRole role, std::vector<ModuleTensor>& group) {
    for (const auto& item : tensors) {
      const at::Tensor& real = item.value();
      // A tensor registered under two names (tied weights) is one input, under the first.
      if (!real.defined() || !seen_.insert(real.unsafeGetTensorImpl()).second) continue;
      TensorType type = TypeOf(real);
      if (!allocated_) type.device = recorder_.device();
      ModuleTensor tensor{item.key(), real, recorder_.MakeInput(role, item.key(), type)};
      tensor.before = recorder_.ValueOf(tensor.traced);
      tensor.traced.requires_grad_(real.requires_grad());
      recorder_.Substitute(real, tensor.traced);
      group.push_back(std::move(tensor));
    }
  }

  void AddStepInput(const StepInput& input) {
    TensorType type;
    type.dtype = FromTorch(input.dtype);
    type.device = recorder_.device();
    for (int64_t size : input.sizes) type.sizes.emplace_back(size);
    for (const auto& [dim, symbolic] : input.symbolic) {
      if (dim < 0 || dim >= static_cast<int64_t>(input.sizes.size())) {
        Fail(ErrorCode::kUnsupportedCapture, "input '{}' has no dimension {} to make symbolic",
             input.name, dim);
      }
      type.sizes[static_cast<size_t>(dim)] =
          SymbolFor(symbolic, input.sizes[static_cast<size_t>(dim)], input.name);
    }
    type.strides = ContiguousStrides(type.sizes, graph_->shapes());
    ModuleTensor tensor{input.name, {}, recorder_.MakeInput(InputRole::kInput, input.name, type)};
    tensor.before = recorder_.ValueOf(tensor.traced);
    step_tensors_.push_back(tensor.traced);
    step_inputs_.push_back(std::move(tensor));
  }

  Dim SymbolFor(const SymbolicDim& symbolic, int64_t extent, const std::string& input) {
    int64_t hint = extent / symbolic.multiple;
    if (hint < symbolic.low || hint > symbolic.high || extent % symbolic.multiple != 0) {
      Fail(ErrorCode::kUnsupportedCapture,
           "input '{}': the extent {} is not {} times a number in the range [{}, {}] of its "
           "symbolic dimension '{}'",
           input, extent, symbolic.multiple, symbolic.low, symbolic.high, symbolic.identity);
    }
    auto [entry, fresh] = symbols_.try_emplace(symbolic.identity, 0);
    ShapeEnv& shapes = graph_->shapes();
    if (fresh) {
      entry->second = shapes.AddInputSymbol(hint, symbolic.low, symbolic.high);
    } else if (shapes.symbol(entry->second).hint != hint) {
      Fail(ErrorCode::kUnsupportedCapture,
           "input '{}': symbolic dimension '{}' has extent {} here and {} elsewhere", input,
           symbolic.identity, hint, shapes.symbol(entry->second).hint);
    }
    return Dim::Symbol(entry->second) * Dim(symbolic.multiple);
  }

  void RejectMutation(const char* what, const ModuleTensor& tensor) {
    Value* now = recorder_.ValueOf(tensor.traced);
    if (now == tensor.before) return;
    const Node* by = now->producer();
    Fail(ErrorCode::kInputMutated,
         "the step changes {} '{}' in place ({} in module '{}'); only registered buffers may "
         "change during a step",
         what, tensor.name, by == nullptr ? "an assignment" : by->op().name.str(),
         by == nullptr ? "" : by->meta().module.str());
  }

  static Name OwnerOf(const std::string& tensor_name) {
    size_t dot = tensor_name.rfind('.');
    return dot == std::string::npos ? Name() : Name(std::string_view(tensor_name).substr(0, dot));
  }

  // Plain torch::nn modules open no scope. A forward node that reads a parameter (through views and
  // casts) of a module below the scope it was recorded in runs inside that module; its backward
  // follows by sequence number.
  void RefineModules() {
    std::unordered_map<const Value*, Name> owner;
    for (const auto* group : {&parameters_, &buffers_}) {
      for (const ModuleTensor& tensor : *group) owner[tensor.before] = OwnerOf(tensor.name);
    }
    std::unordered_map<int64_t, Name> refined;  // sequence -> module
    for (Node* node : graph_->nodes()) {
      Meta& meta = node->meta();
      if (meta.phase == Phase::kBackward) {
        if (auto found = refined.find(meta.sequence); found != refined.end()) {
          meta.module = found->second;
        }
        continue;
      }
      Name module = meta.module;
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        auto found = owner.find(node->operand(i));
        if (found == owner.end()) continue;
        if (IsInside(found->second, module)) module = found->second;
      }
      if (module != meta.module) {
        meta.module = module;
        if (meta.sequence >= 0) refined[meta.sequence] = module;
      }
      bool prepares_parameter = node->operand_count() == 1 && node->result_count() == 1;
      if (prepares_parameter) {
        auto found = owner.find(node->operand(0));
        if (found != owner.end()) owner[node->result()] = found->second;
      }
    }
  }

  static bool IsInside(Name inner, Name outer) {
    const std::string& in = inner.str();
    const std::string& out = outer.str();
    if (out.empty()) return !in.empty();
    return in.size() > out.size() && in.compare(0, out.size(), out) == 0 && in[out.size()] == '.';
  }

  std::unique_ptr<Graph> graph_;
  SingleThreadedAutograd single_threaded_;
  Recorder recorder_;
  // A model without weights counts as being on the device that the step is captured for, buffers
  // included.
  bool allocated_ = true;
  std::unordered_set<const c10::TensorImpl*> seen_;
  std::unordered_map<std::string, SymbolId> symbols_;
  std::vector<ModuleTensor> parameters_, buffers_, step_inputs_;
  std::vector<at::Tensor> step_tensors_;
};

// What libtorch throws while capturing is the user's error at a known place; say where.
template <typename Body>
Captured WithContext(Body&& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    Fail(ErrorCode::kUnsupportedCapture, "{} in module '{}' failed while the step was captured: {}",
         CurrentOperation(), CurrentScope().module.str(), error.what_without_backtrace());
  }
}

}  // namespace

Captured CaptureTrainStep(torch::nn::Module& module, const StepFunction& loss_function,
                          std::vector<StepInput> inputs, const CaptureOptions& options) {
  return WithContext([&] {
    CaptureRun run(module, std::move(inputs), options);
    at::AutoGradMode gradients(true);
    at::Tensor loss = run.Run(loss_function);
    run.AddOutput(OutputRole::kLoss, "loss", loss);
    run.AddGradients(loss);
    return run.Finish();
  });
}

Captured CaptureForward(torch::nn::Module& module, const StepFunction& function,
                        std::vector<StepInput> inputs, const CaptureOptions& options) {
  return WithContext([&] {
    CaptureRun run(module, std::move(inputs), options);
    at::NoGradGuard no_gradients;
    at::Tensor result = run.Run(function);
    run.AddOutput(OutputRole::kResult, "result", result);
    return run.Finish();
  });
}

}  // namespace gt
