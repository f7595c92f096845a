#include "gt/exec/recorded_program.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "gt/analysis/collectives.h"
#include "gt/base/text.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/scope.h"

namespace gt {
namespace {

// The form of an operator that writes into the memory it is given, which comes last.
c10::OperatorHandle IntoForm(const Operator& op) {
  return c10::Dispatcher::singleton().findSchemaOrThrow((op.name.str() + "_out").c_str(), "");
}

}  // namespace

// Turns spans of nodes into actions on instructions.
class RecordedProgram::Planner {
 public:
  Planner(RecordedProgram& made, const RecordedSpans& found)
      : made_(made), program_(made.program_), instructions_(program_.instructions_) {
    for (const Node* view : found.loose_views) loose_.insert(view);
    for (const Value* value : found.fixed) fixed_.insert(value);
    size_t at = 0;
    for (const RecordedSpans::Span& span : found.spans) {
      const size_t first = FirstOf(span.begin), last = FirstOf(span.end);
      Between(at, first);
      AddSpan(first, last);
      at = last;
    }
    Between(at, instructions_.size());
  }

 private:
  size_t FirstOf(int32_t node) const {
    const auto found =
        std::lower_bound(instructions_.begin(), instructions_.end(), node,
                         [](const Program::Instruction& instruction, int32_t number) {
                           return instruction.owner->number() < number;
                         });
    return static_cast<size_t>(found - instructions_.begin());
  }

  void AddSpan(size_t first, size_t last) {
    made_.actions_.push_back({Action::kSpan, first, last, made_.spans_.size(), 0});
    Span& span = made_.spans_.emplace_back();
    for (size_t i = first; i < last; ++i) {
      const Program::Instruction& instruction = instructions_[i];
      span.dropped.insert(span.dropped.end(), instruction.dead.begin(), instruction.dead.end());
      if (loose_.contains(instruction.node)) span.loose.push_back(i);
    }
  }

  void Between(size_t first, size_t last) {
    size_t begin = first;
    const auto run_until = [&](size_t end) {
      if (begin < end) made_.actions_.push_back({Action::kRun, begin, end, 0, 0});
      begin = end;
    };
    for (size_t i = first; i < last; ++i) {
      const Program::Instruction& instruction = instructions_[i];
      const Node& node = *instruction.owner;
      const bool ends = i + 1 == instructions_.size() || instructions_[i + 1].owner != &node;
      const size_t index = made_.fixed_.size();
      for (int32_t r = 0; ends && r < node.result_count(); ++r) {
        const Value& result = *node.result(r);
        if (!fixed_.contains(&result)) continue;
        made_.fixed_.push_back({program_.RegisterOf(&result), &result.type(), {}});
      }
      const size_t count = made_.fixed_.size() - index;
      if (count == 0) continue;
      if (instruction.kind == Program::Kind::kFused || WritesIntoGivenMemory(node.op())) {
        run_until(i);
        made_.actions_.push_back({Action::kWriteInto, i, i + 1, index, count});
        begin = i + 1;
      } else {
        run_until(i + 1);
        made_.actions_.push_back({Action::kFix, i + 1, i + 1, index, count});
      }
    }
    run_until(last);
  }

  RecordedProgram& made_;
  const Program& program_;
  const std::vector<Program::Instruction>& instructions_;
  std::unordered_set<const Node*> loose_;
  std::unordered_set<const Value*> fixed_;
};

RecordedProgram::RecordedProgram(Program& program, const RecordedSpans& spans,
                                 std::vector<size_t> varying, GraphMaker make_graphs)
    : program_(program), make_graphs_(std::move(make_graphs)), varying_(std::move(varying)) {
  Planner(*this, spans);
}

std::vector<at::Tensor> RecordedProgram::Run(std::span<const at::Tensor> inputs) {
  if (!failure_.empty() || (recorded_ && !Fits(inputs))) return program_.Run(inputs);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return recorded_ ? Replay(inputs) : Record(inputs);
}

bool RecordedProgram::Fits(std::span<const at::Tensor> inputs) const {
  if (inputs.size() != inputs_.size()) return false;
  auto varies = varying_.begin();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool other_memory = varies != varying_.end() && *varies == i;
    if (other_memory) ++varies;
    if (!inputs[i].defined() || inputs[i].sizes() != inputs_[i].sizes()) return false;
    if (!other_memory && inputs[i].const_data_ptr() != inputs_[i].const_data_ptr()) return false;
  }
  return true;
}

std::vector<at::Tensor> RecordedProgram::Record(std::span<const at::Tensor> inputs) {
  graphs_ = make_graphs_();
  if (!graphs_) {
    failure_ = "there is no library for them";
    return program_.Run(inputs);
  }
  inputs_.assign(inputs.begin(), inputs.end());
  for (size_t position : varying_) inputs_[position] = inputs[position].clone();
  program_.Begin(inputs_);
  program_.Guarded([this] {
    for (const Action& action : actions_) {
      if (failure_.empty()) {
        RecordAction(action);
      } else {
        RunOrdinarily(action);
      }
    }
  });
  held_.clear();
  std::vector<at::Tensor> outputs = program_.Finish();
  if (failure_.empty()) {
    recorded_ = true;
    KeepOutputs(outputs);
  } else {
    GiveUp();
  }
  return outputs;
}

void RecordedProgram::RecordAction(const Action& action) {
  switch (action.kind) {
    case Action::kRun:
      return RecordRun(action);
    case Action::kSpan:
      return RecordSpan(action);
    case Action::kFix:
      return RecordFixed(action);
    case Action::kWriteInto:
      return RecordInto(action);
  }
}

void RecordedProgram::RunOrdinarily(const Action& action) {
  program_.RunRange(action.first, action.last);
}

// What a collective reads must keep its memory until it is waited for, whatever the backend does about
// it: on replays, nothing but the order in which memory was freed here protects it.
void RecordedProgram::HoldUntilWait(const Program::Instruction& instruction) {
  if (!LaunchesCollective(instruction.node->op())) return;
  std::vector<at::Tensor> operands;
  for (const Program::TensorSlot& slot : instruction.tensors) operands.push_back(At(slot.source));
  held_.emplace_back(LastWaitFor(*instruction.node), std::move(operands));
}

void RecordedProgram::LetGoAfter(const Node& node) {
  if (node.op().collective != Collective::kWait) return;
  std::erase_if(held_, [&](const auto& flight) { return flight.first == &node; });
}

void RecordedProgram::RecordRun(const Action& action) {
  for (size_t i = action.first; i < action.last; ++i) {
    const Program::Instruction& instruction = program_.instructions_[i];
    HoldUntilWait(instruction);
    program_.RunRange(i, i + 1);
    LetGoAfter(*instruction.node);
  }
}

void RecordedProgram::RecordSpan(const Action& action) {
  Span& span = spans_[action.index];
  // Where what dies in the span is, should it have to be run after all: recording runs nothing, so it
  // is still there.
  std::vector<std::pair<Register, at::Tensor>> before;
  for (Register dropped : span.dropped) before.emplace_back(dropped, Unowned(At(dropped)));
  std::vector<Register> written;
  for (size_t i = action.first; i < action.last; ++i) {
    const Program::Instruction& instruction = program_.instructions_[i];
    const bool loose = std::find(span.loose.begin(), span.loose.end(), i) != span.loose.end();
    if (loose) continue;
    for (Register result : instruction.results) {
      if (result >= 0) written.push_back(result);
    }
  }
  span.graph = graphs_->Make();
  try {
    Recording recording;
    span.graph->Capture([this, written, first = action.first, last = action.last] {
      program_.RunRange(first, last);
      std::vector<at::Tensor> left;
      for (Register result : written) {
        if (At(result).defined()) left.push_back(At(result));
      }
      return left;
    });
    span.calls = recording.TakeCalls();
  } catch (const std::exception& error) {
    const Node& node = *program_.instructions_[std::min(program_.at_, action.last - 1)].node;
    failure_ = fmt::format("{} (module '{}', {}) cannot be recorded: {}", node.op().name.str(),
                           node.meta().module.str(), Spelling(node.meta().phase),
                           Split(error.what(), '\n').front());
    program_.DropArguments();
    for (Register result : written) At(result).reset();
    for (auto& [dropped, tensor] : before) At(dropped) = std::move(tensor);
    return RunOrdinarily(action);
  }
  for (Register result : written) {
    if (At(result).defined()) span.left.emplace_back(result, Unowned(At(result)));
  }
  span.graph->Replay();
}

void RecordedProgram::RecordFixed(const Action& action) {
  for (Fixed& fixed : FixedOf(action)) {
    at::Tensor& made = At(fixed.source);
    if (!made.defined() || made.device() != graphs_->device()) continue;
    if (!made.is_non_overlapping_and_dense()) {
      failure_ = "a result that recordings read has gaps between its elements";
      return;
    }
    at::Tensor memory = graphs_->Empty(made.sizes(), made.strides(), made.options());
    fixed.memory = Unowned(memory);
    made = memory.copy_(made);
  }
}

void RecordedProgram::RecordInto(const Action& action) {
  std::vector<at::Tensor> memory;
  for (Fixed& fixed : FixedOf(action)) {
    c10::DimVector sizes, strides;
    for (const Dim& dim : fixed.type->sizes) sizes.push_back(dim.Evaluate(program_.symbol_values_));
    for (const Dim& dim : fixed.type->strides) {
      strides.push_back(dim.Evaluate(program_.symbol_values_));
    }
    const auto options = at::TensorOptions(graphs_->device()).dtype(ToTorch(fixed.type->dtype));
    fixed.memory = Unowned(memory.emplace_back(graphs_->Empty(sizes, strides, options)));
  }
  HoldUntilWait(program_.instructions_[action.first]);
  WriteInto(action, memory);
}

void RecordedProgram::WriteInto(const Action& action, std::span<const at::Tensor> memory) {
  Program::Instruction& instruction = program_.instructions_[action.first];
  program_.at_ = action.first;
  program_.Prepare(instruction);
  const std::span<Fixed> fixed = FixedOf(action);
  if (instruction.kind == Program::Kind::kFused) {
    program_.fused_outputs_.assign(instruction.results.size(), at::Tensor());
    for (size_t i = 0, next = 0; i < instruction.results.size() && next < memory.size(); ++i) {
      if (instruction.results[i] != fixed[next].source) continue;
      program_.fused_outputs_[i] = memory[next++];
    }
    program_.RunFused(instruction);
  } else {
    torch::jit::Stack stack(instruction.arguments.begin(), instruction.arguments.end());
    for (const Program::TensorSlot& slot : instruction.tensors) {
      stack[static_cast<size_t>(slot.argument)] = At(slot.source);
    }
    stack.emplace_back(memory[0]);
    const ScopeGuard scope(ScopeOf(*instruction.node));  // records of collectives name the module
    IntoForm(instruction.node->op()).callBoxed(&stack);
    At(fixed[0].source) = memory[0];
  }
  for (Register dead : instruction.dead) At(dead).reset();
}

// They may be read when the recordings are gone.
void RecordedProgram::KeepOutputs(const std::vector<at::Tensor>& outputs) {
  for (Span& span : spans_) {
    for (auto& [left, tensor] : span.left) {
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (program_.outputs_[i] == left) tensor = outputs[i];
      }
    }
  }
}

void RecordedProgram::GiveUp() {
  spans_.clear();
  fixed_.clear();
  inputs_.clear();
  graphs_.reset();
}

std::vector<at::Tensor> RecordedProgram::Replay(std::span<const at::Tensor> inputs) {
  for (size_t position : varying_) {
    inputs_[position].copy_(inputs[position], /*non_blocking=*/true);
  }
  program_.Begin(inputs_);
  // After runs at other sizes. Recorded instructions as well: the next may be an ordinary run.
  if (program_.changed_) {
    for (Program::Instruction& instruction : program_.instructions_) program_.Prepare(instruction);
  }
  program_.Guarded([this] {
    for (const Action& action : actions_) ReplayAction(action);
  });
  return program_.Finish();
}

void RecordedProgram::ReplayAction(const Action& action) {
  switch (action.kind) {
    case Action::kRun:
      return RunOrdinarily(action);
    case Action::kSpan:
      return ReplaySpan(action);
    case Action::kFix:
      for (const Fixed& fixed : FixedOf(action)) {
        if (!fixed.memory.defined()) continue;
        at::Tensor& made = At(fixed.source);
        fixed.memory.copy_(made);
        made = fixed.memory;
      }
      return;
    case Action::kWriteInto: {
      std::vector<at::Tensor> memory;
      for (const Fixed& fixed : FixedOf(action)) memory.push_back(fixed.memory);
      return WriteInto(action, memory);
    }
  }
}

void RecordedProgram::ReplaySpan(const Action& action) {
  Span& span = spans_[action.index];
  program_.at_ = action.first;
  span.graph->Replay();
  if (!span.calls.empty()) {
    const c10::impl::VirtualGuardImpl guard(graphs_->device().type());
    auto done = std::make_shared<c10::Event>(graphs_->device().type());
    done->record(guard.getStream(graphs_->device()));
    for (const Recording::Replayed& call : span.calls) call(done);
  }
  for (size_t i : span.loose) {
    Program::Instruction& view = program_.instructions_[i];
    program_.Prepare(view);
    program_.Execute(view);
  }
  for (const auto& [left, tensor] : span.left) At(left) = tensor;
  for (Register dropped : span.dropped) At(dropped).reset();
}

at::Tensor RecordedProgram::Unowned(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.device() != graphs_->device()) return tensor;
  const c10::TensorImpl* from = tensor.unsafeGetTensorImpl();
  const c10::Storage& storage = from->storage();
  c10::Storage unowned(c10::Storage::use_byte_size_t(), storage.nbytes(),
                       c10::DataPtr(storage.mutable_data(), storage.device()));
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(unowned),
                                                   from->key_set(), from->dtype());
  impl->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  return at::Tensor(std::move(impl));
}

}  // namespace gt
