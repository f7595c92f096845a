#include "gt/exec/program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>

#include "gt/base/error.h"
#include "gt/exec/fused_kernels.h"
#include "gt/exec/op_profiler.h"
#include "gt/exec/transfer.h"
#include "gt/ir/text.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/scope.h"

namespace gt {
namespace {

bool MentionsSymbol(const Dim& dim) { return !dim.is_const(); }

bool MentionsData(const Dim& dim, const ShapeEnv& shapes) { return shapes.HasDataSymbol(dim); }

// Visits every Dim of a plain argument.
template <typename Visit>
void ForEachDim(const Argument& argument, Visit&& visit) {
  if (const Dim* dim = std::get_if<Dim>(&argument)) visit(*dim);
  if (const Shape* shape = std::get_if<Shape>(&argument)) {
    for (const Dim& dim : *shape) visit(dim);
  }
}

// A view that keeps dtype, sign bits and the beginning it counts from is fully described by sizes,
// strides and offset.
bool IsPlainView(const Node& node) {
  if (!node.op().is_view()) return false;
  const ViewKind kind = node.op().view;
  if (kind == ViewKind::kReinterpret || kind == ViewKind::kStorage) return false;
  return node.TensorArg(node.op().view_arg()) != nullptr &&
         node.view_offsets().size() == static_cast<size_t>(node.result_count());
}

// Tensors whose conjugation or negation is still to be done: kernels do not know about it, the
// dispatcher does it first.
constexpr c10::DispatchKeySet kLazyBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

}  // namespace

Program::Program(const Graph& graph, const FusedKernels* kernels)
    : graph_(graph), kernels_(kernels), binder_(graph) {
  auto next = static_cast<Register>(graph.inputs().size());
  const_cast<Graph&>(graph).NumberNodes();
  for (const Node* node : graph.nodes()) {
    first_register_.push_back(next);
    next += node->result_count();
  }
  registers_.resize(static_cast<size_t>(next));
  symbol_values_.resize(graph.shapes().symbols().size(), 0);
  instructions_.reserve(static_cast<size_t>(graph.node_count()));
  for (const Node* node : graph.nodes()) LowerNode(*node);
  for (const auto& output : graph.outputs()) outputs_.push_back(RegisterOf(output->value()));
  FindLastUses();
}

Program::Register Program::RegisterOf(const Value* value) const {
  if (owner_ != nullptr) return nested_.at(value);
  if (value->is_input()) return value->index();
  return first_register_[static_cast<size_t>(value->producer()->number())] + value->index();
}

void Program::LowerNode(const Node& node) {
  if (const Graph* body = FusedBody(node)) {
    const FusedKernel* kernel = kernels_ == nullptr ? nullptr : kernels_->Find(node);
    return kernel == nullptr ? LowerBody(node, *body) : LowerFused(node, *kernel);
  }
  Instruction& instruction = instructions_.emplace_back();
  instruction.node = &node;
  instruction.owner = owner_ != nullptr ? owner_ : &node;
  instruction.binds.assign(node.bound_symbols().begin(), node.bound_symbols().end());
  for (int32_t i = 0; i < node.result_count(); ++i) {
    instruction.results.push_back(RegisterOf(node.result(i)));
  }
  if (node.op().reads_data) {
    instruction.kind = Kind::kReadInts;
    instruction.tensors.push_back({0, -1, RegisterOf(node.operand(0))});
  } else if (IsPlainView(node)) {
    instruction.kind = Kind::kViews;
    LowerViews(node, instruction);
  } else {
    LowerKernel(node, instruction);
  }
}

// The operators of a fused node, as if they were in its place.
void Program::LowerBody(const Node& node, const Graph& body) {
  GT_CHECK(owner_ == nullptr, "a fused node inside of another");
  std::unordered_map<const Value*, Register> values;
  for (const auto& input : body.inputs()) {
    values[&input->value] = RegisterOf(node.operand(input->value.index()));
  }
  for (const Node* inner : body.nodes()) {
    for (int32_t i = 0; i < inner->result_count(); ++i) {
      values[inner->result(i)] = static_cast<Register>(registers_.size());
      registers_.emplace_back();
    }
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    values[body.outputs()[static_cast<size_t>(i)]->value()] = RegisterOf(node.result(i));
  }
  nested_ = std::move(values);
  owner_ = &node;
  for (const Node* inner : body.nodes()) LowerNode(*inner);
  owner_ = nullptr;
  nested_.clear();
}

void Program::LowerFused(const Node& node, const FusedKernel& kernel) {
  Instruction& instruction = instructions_.emplace_back();
  instruction.kind = Kind::kFused;
  instruction.node = instruction.owner = &node;
  instruction.fused = &kernel;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    instruction.tensors.push_back({0, i, RegisterOf(node.operand(i))});
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    instruction.results.push_back(RegisterOf(node.result(i)));
  }
}

void Program::LowerViews(const Node& node, Instruction& instruction) {
  const ShapeEnv& shapes = graph_.shapes();
  for (int32_t i = 0; i < node.result_count(); ++i) {
    if (!node.result(i)->has_uses()) continue;
    View view;
    view.base = RegisterOf(node.TensorArg(node.op().view_arg()));
    view.result = RegisterOf(node.result(i));
    view.type = &node.result(i)->type();
    view.offset_expression = &node.view_offsets()[static_cast<size_t>(i)];
    for (const Shape* part : {&view.type->sizes, &view.type->strides}) {
      for (const Dim& dim : *part) {
        instruction.symbolic |= MentionsSymbol(dim);
        instruction.data |= MentionsData(dim, shapes);
      }
    }
    instruction.symbolic |= MentionsSymbol(*view.offset_expression);
    instruction.data |= MentionsData(*view.offset_expression, shapes);
    instruction.views.push_back(std::move(view));
  }
  instruction.tensors.push_back({0, -1, RegisterOf(node.TensorArg(node.op().view_arg()))});
}

void Program::LowerKernel(const Node& node, Instruction& instruction) {
  const ShapeEnv& shapes = graph_.shapes();
  instruction.handle = KernelOf(node);
  bool cuda = false;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    cuda |= node.operand(i)->type().device.kind == DeviceKind::kCuda;
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    cuda |= node.result(i)->type().device.kind == DeviceKind::kCuda;
  }
  instruction.keys = c10::DispatchKeySet(cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);

  const std::vector<ArgSpec>& specs = node.op().schema.args;
  instruction.arguments.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const Argument& argument = node.args()[i];
    auto position = static_cast<int32_t>(i);
    if (const auto* ref = std::get_if<OperandRef>(&argument)) {
      instruction.tensors.push_back({position, -1, RegisterOf(node.operand(ref->index))});
      continue;
    }
    if (const auto* list = std::get_if<OperandList>(&argument)) {
      for (size_t element = 0; element < list->indices.size(); ++element) {
        int32_t index = list->indices[element];
        if (index < 0) continue;
        instruction.tensors.push_back(
            {position, static_cast<int32_t>(element), RegisterOf(node.operand(index))});
      }
      // The list itself is made at each call: kernels may keep it.
      if (specs[i].optional_elements) {
        c10::List<std::optional<at::Tensor>> empty;
        empty.resize(list->indices.size());
        instruction.arguments[i] = empty;
      } else {
        c10::List<at::Tensor> empty;
        empty.resize(list->indices.size());
        instruction.arguments[i] = empty;
      }
      continue;
    }
    if (specs[i].kind == ArgKind::kTensor && !std::holds_alternative<std::monostate>(argument)) {
      instruction.arguments[i] = WrappedNumber(ToIValue(specs[i], argument, {}).toScalar());
      continue;
    }
    bool symbolic = false;
    ForEachDim(argument, [&](const Dim& dim) {
      symbolic |= MentionsSymbol(dim);
      instruction.data |= MentionsData(dim, shapes);
    });
    if (symbolic) {
      instruction.symbolic = true;
      instruction.symbolic_arguments.push_back({position, &specs[i], &argument});
    } else {
      instruction.arguments[i] = ToIValue(specs[i], argument, {});
    }
  }
}

void Program::FindLastUses() {
  std::vector<bool> used(registers_.size(), false);
  for (Register output : outputs_) used[static_cast<size_t>(output)] = true;
  for (size_t i = instructions_.size(); i-- > 0;) {
    Instruction& instruction = instructions_[i];
    for (Register& result : instruction.results) {
      if (!used[static_cast<size_t>(result)]) result = -1;  // never read: not kept at all
    }
    for (const TensorSlot& slot : instruction.tensors) {
      if (used[static_cast<size_t>(slot.source)]) continue;
      used[static_cast<size_t>(slot.source)] = true;
      instruction.dead.push_back(slot.source);
    }
  }
}

std::vector<at::Tensor> Program::Run(std::span<const at::Tensor> inputs) {
  // Kernels are called directly, below autograd; nothing here needs a gradient.
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  Begin(inputs);
  Guarded([this] { RunRange(0, instructions_.size()); });
  return Finish();
}

void Program::Begin(std::span<const at::Tensor> inputs) {
  changed_ = binder_.Bind(inputs, symbol_values_) || first_run_;
  first_run_ = false;
  std::copy(inputs.begin(), inputs.end(), registers_.begin());
}

void Program::Guarded(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::OutOfMemoryError& error) {
    std::string what = error.what_without_backtrace();
    DropRegisters();
    FailOutOfMemory(instructions_[at_], what);
  } catch (const c10::Error& error) {
    std::string what = error.what_without_backtrace();
    DropRegisters();
    FailAt(instructions_[at_], what);
  } catch (...) {
    DropRegisters();
    throw;
  }
}

void Program::Prepare(Instruction& instruction) {
  if (instruction.data ||
      (changed_ && (instruction.symbolic || instruction.kind == Kind::kViews))) {
    Refresh(instruction);
  }
}

void Program::RunRange(size_t first, size_t last) {
  OpProfiler* profiler = OpProfiler::Active();
  for (at_ = first; at_ < last; ++at_) {
    Instruction& instruction = instructions_[at_];
    Prepare(instruction);
    if (profiler != nullptr) {
      const Meta& meta = instruction.node->meta();
      profiler->Begin(instruction.node->op().name.str(), meta.module, meta.phase,
                      instruction.owner);
    }
    Execute(instruction);
    if (profiler != nullptr) profiler->End();
    for (Register dead : instruction.dead) registers_[static_cast<size_t>(dead)].reset();
  }
}

std::vector<at::Tensor> Program::Finish() {
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (Register output : outputs_) outputs.push_back(registers_[static_cast<size_t>(output)]);
  for (Register output : outputs_) registers_[static_cast<size_t>(output)].reset();
  for (size_t i = 0; i < graph_.inputs().size(); ++i) registers_[i].reset();
  return outputs;
}

void Program::DropRegisters() {
  DropArguments();
  for (at::Tensor& tensor : registers_) tensor.reset();
}

void Program::DropArguments() {
  stack_.clear();
  fused_inputs_.clear();
  fused_outputs_.clear();
}

void Program::FailOutOfMemory(const Instruction& instruction, const std::string& what) const {
  const Node& node = *instruction.node;
  throw OutOfMemory(
      fmt::format("there was no memory for {} (module '{}', {}): {}", node.op().name.str(),
                  node.meta().module.str(), Spelling(node.meta().phase), what),
      instruction.owner, symbol_values_);
}

void Program::FailAt(const Instruction& instruction, const std::string& what) const {
  const Node& node = *instruction.node;
  std::string_view name = node.result_count() > 0 ? std::string_view(node.result()->name()) : "";
  Fail(ErrorCode::kKernelFailed, "%{} = {} (module '{}', {}) failed while running: {}", name,
       node.op().name.str(), node.meta().module.str(), Spelling(node.meta().phase), what);
}

void Program::Refresh(Instruction& instruction) {
  for (const SymbolicArgument& symbolic : instruction.symbolic_arguments) {
    instruction.arguments[static_cast<size_t>(symbolic.argument)] =
        ToIValue(*symbolic.spec, *symbolic.expression, symbol_values_);
  }
  for (View& view : instruction.views) {
    auto evaluate = [this](const Shape& shape, c10::DimVector& numbers) {
      numbers.clear();
      for (const Dim& dim : shape) numbers.push_back(dim.Evaluate(symbol_values_));
    };
    evaluate(view.type->sizes, view.sizes);
    evaluate(view.type->strides, view.strides);
    view.offset = view.offset_expression->Evaluate(symbol_values_);
  }
}

void Program::Execute(Instruction& instruction) {
  switch (instruction.kind) {
    case Kind::kKernel:
      RunKernel(instruction);
      break;
    case Kind::kViews:
      RunViews(instruction);
      break;
    case Kind::kReadInts:
      ReadInts(instruction);
      break;
    case Kind::kFused:
      RunFused(instruction);
      break;
  }
}

void Program::RunViews(Instruction& instruction) {
  for (const View& view : instruction.views) {
    const at::Tensor& base = registers_[static_cast<size_t>(view.base)];
    const c10::TensorImpl* from = base.unsafeGetTensorImpl();
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(from->storage()), from->key_set(), from->dtype());
    impl->set_sizes_and_strides(view.sizes, view.strides, from->storage_offset() + view.offset);
    registers_[static_cast<size_t>(view.result)] = at::Tensor(std::move(impl));
  }
}

void Program::RunKernel(Instruction& instruction) {
  stack_.assign(instruction.arguments.begin(), instruction.arguments.end());
  bool lazy = false;
  for (const TensorSlot& slot : instruction.tensors) {
    c10::IValue& argument = stack_[static_cast<size_t>(slot.argument)];
    const at::Tensor& tensor = registers_[static_cast<size_t>(slot.source)];
    lazy |= tensor.key_set().has_any(kLazyBits);
    if (slot.element < 0) {
      argument = tensor;
      continue;
    }
    // Lists are shared between calls in `arguments`; the first element gets a fresh one.
    if (argument.isTensorList()) {
      if (slot.element == 0 ||
          argument.is(instruction.arguments[static_cast<size_t>(slot.argument)])) {
        argument = argument.toTensorList().copy();
      }
      argument.toTensorList().set(static_cast<size_t>(slot.element), tensor);
    } else {
      c10::List<std::optional<at::Tensor>> list = argument.toOptionalTensorList();
      if (argument.is(instruction.arguments[static_cast<size_t>(slot.argument)])) {
        list = list.copy();
        argument = list;
      }
      list.set(static_cast<size_t>(slot.element), tensor);
    }
  }
  std::optional<ScopeGuard> scope;
  if (instruction.node->op().collective != Collective::kNone) {
    scope.emplace(ScopeOf(*instruction.node));  // records of collectives name the module
  }
  if (lazy) {
    instruction.handle->callBoxed(&stack_);
  } else {
    instruction.handle->redispatchBoxed(instruction.keys, &stack_);
  }

  size_t result = 0;
  auto store = [&](at::Tensor tensor) {
    if (instruction.data || changed_) CheckResult(instruction, result, tensor);
    Register target = instruction.results[result++];
    if (target >= 0) registers_[static_cast<size_t>(target)] = std::move(tensor);
  };
  for (c10::IValue& value : stack_) {
    if (value.isTensor()) {
      store(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) store(tensor);
    } else if (value.isNone()) {
      ++result;  // an undefined tensor
    }
  }
  stack_.clear();
}

void Program::RunFused(Instruction& instruction) {
  fused_inputs_.clear();
  for (const TensorSlot& slot : instruction.tensors) {
    fused_inputs_.push_back(registers_[static_cast<size_t>(slot.source)]);
  }
  instruction.fused->Run(fused_inputs_, symbol_values_, fused_outputs_);
  for (size_t i = 0; i < instruction.results.size(); ++i) {
    const Register target = instruction.results[i];
    if (target >= 0) registers_[static_cast<size_t>(target)] = std::move(fused_outputs_[i]);
  }
  fused_inputs_.clear();
  fused_outputs_.clear();
}

void Program::CheckResult(const Instruction& instruction, size_t index,
                          const at::Tensor& tensor) const {
  const Value* value = instruction.node->result(static_cast<int32_t>(index));
  if (!tensor.defined() || FitsType(tensor, value->type(), symbol_values_)) return;
  FailAt(instruction, fmt::format("the kernel returned {} where the graph says {}",
                                  Print(TypeOf(tensor), graph_.shapes()),
                                  Print(value->type(), graph_.shapes())));
}

void Program::ReadInts(Instruction& instruction) {
  const at::Tensor& source = registers_[static_cast<size_t>(instruction.tensors[0].source)];
  AwaitTransfer(source);
  at::Tensor numbers = source.to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = numbers.const_data_ptr<int64_t>();
  const ShapeEnv& shapes = graph_.shapes();
  for (size_t i = 0; i < instruction.binds.size(); ++i) {
    const Symbol& symbol = shapes.symbol(instruction.binds[i]);
    if (data[i] < symbol.low || data[i] > symbol.high) {
      FailAt(instruction, fmt::format("it read {} for {}, which must lie in [{}, {}]", data[i],
                                      symbol.name, symbol.low, symbol.high));
    }
    symbol_values_[instruction.binds[i]] = data[i];
  }
}

}  // namespace gt
