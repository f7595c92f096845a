// The fast executor. A graph is lowered once to a flat list of instructions: kernels resolved,
// plain arguments boxed, values turned into numbered registers, each freed at its last use. Views
// are not dispatched at all: their sizes, strides and offset are known from the graph, so a view is
// a few stores. Integers that depend on symbols are evaluated once when the inputs' sizes change
// (or when the data symbol they mention is read), not at every use. Running a step touches no map
// and no string.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "gt/base/error.h"
#include "gt/exec/binding.h"
#include "gt/ir/graph.h"

namespace gt {

// The device's memory did not suffice for a node.
class OutOfMemory : public Error {
 public:
  OutOfMemory(std::string message, const Node* node, std::vector<int64_t> symbols)
      : Error(ErrorCode::kDeviceMemoryExhausted, std::move(message)),
        node_(node),
        symbols_(std::move(symbols)) {}
  const Node& node() const { return *node_; }
  // Value of each symbol of the graph in that run, as far as known by then.
  const std::vector<int64_t>& symbols() const { return symbols_; }

 private:
  const Node* node_;
  std::vector<int64_t> symbols_;
};

class FusedKernel;
class FusedKernels;
class RecordedProgram;

class Program {
 public:
  // The graph must outlive the program and stay as it is. Fused nodes that `kernels` has no kernel for
  // run operator by operator.
  explicit Program(const Graph& graph, const FusedKernels* kernels = nullptr);

  // Inputs in graph order; returns the outputs in graph order. Not reentrant.
  std::vector<at::Tensor> Run(std::span<const at::Tensor> inputs);

  // Value of each symbol of the graph in the last run (sizes of inputs, numbers that were read).
  std::span<const int64_t> symbol_values() const { return symbol_values_; }

  int64_t instruction_count() const { return static_cast<int64_t>(instructions_.size()); }

 private:
  friend class RecordedProgram;  // runs the same instructions, some of them as recordings
  using Register = int32_t;

  struct TensorSlot {  // where on the kernel's stack an operand is put
    int32_t argument;
    int32_t element;  // position in a list argument; -1: not a list
    Register source;
  };
  // A plain argument that mentions symbols: rebuilt when they change.
  struct SymbolicArgument {
    int32_t argument;
    const ArgSpec* spec;
    const Argument* expression;
  };
  struct View {
    Register base;
    Register result;
    c10::DimVector sizes, strides;
    int64_t offset = 0;
    const TensorType* type = nullptr;  // for refreshing
    const Dim* offset_expression = nullptr;
  };
  enum class Kind : uint8_t { kKernel, kViews, kReadInts, kFused };
  struct Instruction {
    Kind kind = Kind::kKernel;
    bool symbolic = false;  // something here mentions a symbol
    bool data = false;      // ... one that is bound by data: refresh at every run
    const Node* node = nullptr;
    const Node* owner = nullptr;  // of the graph: the node, or the fused one that it is part of
    const FusedKernel* fused = nullptr;  // of kFused
    std::optional<c10::OperatorHandle> handle;
    c10::DispatchKeySet keys;
    std::vector<c10::IValue> arguments;  // plain ones filled in; operands are none until the call
    std::vector<TensorSlot> tensors;
    std::vector<SymbolicArgument> symbolic_arguments;
    std::vector<View> views;
    std::vector<Register> results;  // -1: not kept
    std::vector<Register> dead;     // registers whose last use this is
    std::vector<SymbolId> binds;
  };

  // The three parts of a run.
  void Begin(std::span<const at::Tensor> inputs);
  void RunRange(size_t first, size_t last);
  std::vector<at::Tensor> Finish();
  // Frees what a run has left behind when it throws, and names the instruction.
  void Guarded(const std::function<void()>& body);
  void Prepare(Instruction& instruction);

  void DropRegisters();
  void DropArguments();  // of the instruction that has thrown
  void LowerNode(const Node& node);
  void LowerBody(const Node& node, const Graph& body);
  void LowerFused(const Node& node, const FusedKernel& kernel);
  void LowerKernel(const Node& node, Instruction& instruction);
  void LowerViews(const Node& node, Instruction& instruction);
  void FindLastUses();
  void Refresh(Instruction& instruction);
  void Execute(Instruction& instruction);
  void RunKernel(Instruction& instruction);
  void RunViews(Instruction& instruction);
  void RunFused(Instruction& instruction);
  void ReadInts(Instruction& instruction);
  // Views are made from the graph's types, so a kernel whose result is laid out otherwise must not go
  // unnoticed. Checked whenever sizes are new, and at every run where data decides them.
  void CheckResult(const Instruction& instruction, size_t index, const at::Tensor& tensor) const;
  [[noreturn]] void FailOutOfMemory(const Instruction& instruction, const std::string& what) const;
  [[noreturn]] void FailAt(const Instruction& instruction, const std::string& what) const;
  Register RegisterOf(const Value* value) const;

  const Graph& graph_;
  const FusedKernels* kernels_;
  InputBinder binder_;
  // Of the fused node that is being lowered, values of its body.
  std::unordered_map<const Value*, Register> nested_;
  const Node* owner_ = nullptr;
  std::vector<Register> first_register_;  // by node number
  std::vector<Instruction> instructions_;
  std::vector<at::Tensor> registers_;
  std::vector<int64_t> symbol_values_;
  std::vector<Register> outputs_;
  torch::jit::Stack stack_;
  std::vector<at::Tensor> fused_inputs_, fused_outputs_;
  bool first_run_ = true;
  bool changed_ = false;  // sizes of inputs, since the last run
  size_t at_ = 0;         // the instruction that runs
};

}  // namespace gt
