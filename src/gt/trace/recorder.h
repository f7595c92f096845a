// Listens to libtorch and writes down every operator that runs below autograd as a node of a graph.
//
// While a Recorder is active on a thread, four dispatch keys are switched on for that thread, from
// the top down:
// - TESTING_ONLY_GenericMode, above autograd: tensors of the model (parameters, buffers) are
//   replaced by the traced tensors that stand for them. Any module is captured as it is, without
//   touching its members.
// - TESTING_ONLY_GenericWrapper: our symbolic versions of composite operators (composites.cc).
// - Functionalize: libtorch's own removal of mutation and tracking of views.
// - Fake, below everything: our fallback, which records the operator and answers with traced
//   tensors.
// The recorder knows no model and no pass. It learns where it is from the scopes that modules open
// (torch_bridge/scope.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/torch_bridge/scope.h"
#include "gt/trace/absent_gpu.h"

namespace gt {

class Recorder {
 public:
  // `device` is where the step will run; tensors on the meta device (a model without weights) count
  // as being there.
  Recorder(Graph& graph, Device device);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The recorder of this thread, or null when nothing is being captured.
  static Recorder* Active();

  Graph& graph() { return graph_; }
  Device device() const { return device_; }

  // A tensor for the program to compute with, standing for a graph input.
  at::Tensor MakeInput(InputRole role, std::string name, TensorType type);
  // From now on `traced` is used wherever the program uses `real`.
  void Substitute(const at::Tensor& real, const at::Tensor& traced);
  // What stands for a tensor while a capture is active; otherwise the tensor itself. Operators
  // substitute their arguments by themselves; autograd functions of our own must be given the result
  // of this.
  static at::Tensor Substituted(const at::Tensor& tensor);
  // The value a tensor of the program stands for now, all pending mutations applied.
  Value* ValueOf(const at::Tensor& tensor);

  // The gradients of `wanted`; undefined where the loss does not depend on one. What is recorded
  // meanwhile are backward nodes.
  std::vector<at::Tensor> Backward(const at::Tensor& loss, const std::vector<at::Tensor>& wanted);

  // Real tensors that the program used without registering them anywhere; constant inputs of the
  // graph, in order.
  const std::vector<at::Tensor>& constants() const { return constants_; }

  // Records a node that reads the entries of an integer tensor and binds a data symbol to each
  // (trace/read_ints.h). If the sum of the entries is known, it becomes a fact. The symbols' hints
  // split the sum, or the expected sum, among them.
  std::vector<SymbolId> BindInts(const at::Tensor& tensor, const std::optional<Dim>& sum,
                                 const std::optional<Dim>& expected);

  // Called by the fallbacks; not for other code.
  void Intercept(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  void Record(const c10::OperatorHandle& op, torch::jit::Stack* stack);

 private:
  Argument ToArgument(const ArgSpec& spec, const c10::IValue& value, Graph::NodeSpec& node);
  Argument TensorArgument(const at::Tensor& tensor, Graph::NodeSpec& node);
  GraphRef Nested(const GraphRef& graph, const Graph::NodeSpec& node);
  void AddOperand(Value* value, Graph::NodeSpec& node);
  bool AnswerDirectly(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  Meta CurrentMeta();
  void ReplaceKnown(c10::IValue& value);

  Graph& graph_;
  Device device_;
  AbsentGpu absent_gpu_;
  ScopeTimeline timeline_;
  std::optional<uint64_t> function_;  // in the backward: the sequence number of what is running
  bool intercepting_ = true;  // false: nothing is left to substitute, nor sizes to be asked about
  uint64_t next_unclaimed_sequence_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> substitutes_;
  std::unordered_map<const c10::TensorImpl*, Value*> constant_values_;
  std::vector<at::Tensor> substituted_;  // keeps the keys of substitutes_ alive
  std::vector<at::Tensor> constants_;
  std::unordered_map<const Graph*, GraphRef>
      nested_;                                    // a graph of the program -> its copy in graph_
  std::vector<const TensorType*> operand_types_;  // reused between nodes
};

}  // namespace gt
