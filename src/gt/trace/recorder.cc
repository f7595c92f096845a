#include "gt/trace/recorder.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>

#include "gt/base/error.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/generator.h"
#include "gt/torch_bridge/graph_object.h"
#include "gt/trace/backward.h"
#include "gt/trace/symbolic.h"
#include "gt/trace/traced_tensor.h"

namespace gt {
namespace {

using c10::DispatchKey;
namespace functionalization = at::functionalization::impl;

constexpr DispatchKey kInterceptKey = DispatchKey::TESTING_ONLY_GenericMode;
constexpr DispatchKey kCompositeKey = DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local Recorder* active_recorder = nullptr;

void SetListening(bool on) {
  for (DispatchKey key :
       {kInterceptKey, kCompositeKey, DispatchKey::Functionalize, DispatchKey::Fake}) {
    c10::impl::tls_set_dispatch_key_included(key, on);
  }
}

void PrepareProcess() {
  static std::once_flag once;
  std::call_once(once, [] { PrepareEnvironment(/*deterministic=*/false); });
}

// What the backward of an operation in a chunked region is: that of a split is a join, and the other
// way round.
std::shared_ptr<const ChunkMeta> Mirrored(const std::shared_ptr<const ChunkMeta>& forward) {
  if (forward == nullptr) return nullptr;
  auto backward = std::make_shared<ChunkMeta>(*forward);
  backward->backward = true;
  if (forward->role == ChunkRole::kSplitBoundary) backward->role = ChunkRole::kMaterialization;
  if (forward->role == ChunkRole::kMaterialization) backward->role = ChunkRole::kSplitBoundary;
  return backward;
}

at::Tensor Unwrapped(const at::Tensor& tensor) {
  if (!functionalization::isFunctionalTensor(tensor)) return tensor;
  functionalization::sync(tensor);
  return functionalization::from_functional_tensor(tensor);
}

// libtorch's own functions compute with what they saved, which was substituted by then. A hook, or a
// function of the program's, may use the tensors of a module.
bool NeedsInterception(torch::autograd::Node& function) {
  return !function.is_traceable() || !function.tensor_pre_hooks().empty() ||
         !function.retains_grad_hooks().empty() || !function.pre_hooks().empty() ||
         !function.post_hooks().empty();
}

}  // namespace

Recorder* Recorder::Active() { return active_recorder; }

Recorder::Recorder(Graph& graph, Device device)
    : graph_(graph),
      device_(device),
      absent_gpu_(device),
      next_unclaimed_sequence_(timeline_.first_sequence()) {
  PrepareProcess();
  GT_CHECK(active_recorder == nullptr, "a capture is already running on this thread");
  active_recorder = this;
  functionalization::setFunctionalizationReapplyViewsTLS(true);
  SetListening(true);
}

Recorder::~Recorder() {
  SetListening(false);
  functionalization::setFunctionalizationReapplyViewsTLS(false);
  active_recorder = nullptr;
}

at::Tensor Recorder::MakeInput(InputRole role, std::string name, TensorType type) {
  Value* value = graph_.AddInput(role, std::move(name), std::move(type));
  c10::impl::ExcludeDispatchKeyGuard quiet(
      c10::DispatchKeySet({kInterceptKey, DispatchKey::Functionalize, DispatchKey::Fake}));
  return functionalization::to_functional_tensor(MakeTraced(value, graph_.shapes()));
}

void Recorder::Substitute(const at::Tensor& real, const at::Tensor& traced) {
  substitutes_[real.unsafeGetTensorImpl()] = traced;
  substituted_.push_back(real);
}

Value* Recorder::ValueOf(const at::Tensor& tensor) {
  auto known = substitutes_.find(tensor.unsafeGetTensorImpl());
  at::Tensor plain = Unwrapped(known == substitutes_.end() ? tensor : known->second);
  if (TracedTensor* traced = TracedTensor::From(plain)) return traced->value();
  auto constant = constant_values_.find(plain.unsafeGetTensorImpl());
  return constant == constant_values_.end() ? nullptr : constant->second;
}

std::vector<at::Tensor> Recorder::Backward(const at::Tensor& loss,
                                           const std::vector<at::Tensor>& wanted) {
  const auto enter = [this](torch::autograd::Node& function) {
    function_ = function.sequence_nr();
    intercepting_ = NeedsInterception(function) || !graph_.shapes().symbols().empty();
    c10::impl::tls_set_dispatch_key_included(kInterceptKey, intercepting_);
  };
  enter(*torch::autograd::impl::gradient_edge(loss).function);  // the seed is its gradient
  const at::Tensor seed = at::ones_like(loss);
  std::vector<at::Tensor> gradients = RunBackward(loss, seed, wanted, enter);
  function_.reset();
  intercepting_ = true;
  c10::impl::tls_set_dispatch_key_included(kInterceptKey, true);
  return gradients;
}

Meta Recorder::CurrentMeta() {
  Meta meta;
  Scope scope = CurrentScope();
  if (function_) {
    if (const Scope* found = timeline_.Find(*function_)) {
      scope = *found;
      meta.sequence = static_cast<int64_t>(*function_ - timeline_.first_sequence());
    }
    meta.phase = Phase::kBackward;
  } else {
    // Autograd gives a number to an operation just before running it. The first node recorded after
    // that is the operation itself; whatever has no new number is not differentiated.
    uint64_t next = at::sequence_number::peek();
    if (next > next_unclaimed_sequence_) {
      meta.sequence = static_cast<int64_t>(next - 1 - timeline_.first_sequence());
      next_unclaimed_sequence_ = next;
    }
    meta.phase = scope.phase;
  }
  meta.module = scope.module;
  meta.source = scope.source;
  meta.ep_role = scope.ep_role;
  meta.exchange = scope.exchange;
  meta.chunk = function_ ? Mirrored(scope.chunk) : scope.chunk;
  return meta;
}

void Recorder::ReplaceKnown(c10::IValue& value) {
  auto replace = [this](const at::Tensor& tensor) -> const at::Tensor* {
    if (!tensor.defined() || tensor.key_set().has(DispatchKey::Functionalize)) return nullptr;
    auto found = substitutes_.find(tensor.unsafeGetTensorImpl());
    return found == substitutes_.end() ? nullptr : &found->second;
  };
  if (value.isTensor()) {
    if (const at::Tensor* traced = replace(value.toTensor())) value = *traced;
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list = value.toTensorList();
    bool any = false;
    for (const at::Tensor& tensor : list) any |= replace(tensor) != nullptr;
    if (!any) return;
    c10::List<at::Tensor> replaced;
    for (const at::Tensor& tensor : list) {
      const at::Tensor* traced = replace(tensor);
      replaced.push_back(traced != nullptr ? *traced : tensor);
    }
    value = std::move(replaced);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> replaced;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      const at::Tensor* traced = tensor ? replace(*tensor) : nullptr;
      replaced.push_back(traced != nullptr ? std::optional<at::Tensor>(*traced) : tensor);
    }
    value = std::move(replaced);
  }
}

void Recorder::Intercept(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) ReplaceKnown((*stack)[i]);
  SetCurrentOperation(op.operator_name().name.c_str());
  graph_.shapes().SetAsker(CurrentScope().module, Name());
  c10::impl::ExcludeDispatchKeyGuard below(kInterceptKey);
  op.callBoxed(stack);
}

void Recorder::AddOperand(Value* value, Graph::NodeSpec& node) { node.operands.push_back(value); }

Argument Recorder::TensorArgument(const at::Tensor& tensor, Graph::NodeSpec& node) {
  if (!tensor.defined()) return std::monostate();
  auto index = static_cast<int32_t>(node.operands.size());
  if (TracedTensor* traced = TracedTensor::From(tensor)) {
    AddOperand(traced->value(), node);
    return OperandRef{index};
  }
  if (tensor.dim() == 0 && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    if (tensor.scalar_type() == at::kDouble) return *tensor.const_data_ptr<double>();
    if (tensor.scalar_type() == at::kLong) return Dim(*tensor.const_data_ptr<int64_t>());
    if (tensor.scalar_type() == at::kBool) return *tensor.const_data_ptr<bool>();
  }
  auto [entry, fresh] = constant_values_.try_emplace(tensor.unsafeGetTensorImpl(), nullptr);
  if (fresh) {
    if (tensor.is_meta()) {
      Fail(ErrorCode::kUnsupportedCapture,
           "{} in module '{}' uses a tensor without data that is neither a parameter, a buffer nor "
           "an input of the "
           "step; register it with the module",
           CurrentOperation(), CurrentScope().module.str());
    }
    constants_.push_back(tensor);
    std::string name = "constant_" + std::to_string(constants_.size() - 1);
    entry->second = graph_.AddInput(InputRole::kConstant, name, TypeOf(tensor));
  }
  AddOperand(entry->second, node);
  return OperandRef{index};
}

GraphRef Recorder::Nested(const GraphRef& graph, const Graph::NodeSpec& node) {
  // The tensors that a nested graph takes besides single numbers are those of the list before it.
  std::vector<const TensorType*> captures;
  for (const Argument& argument : node.args) {
    const auto* list = std::get_if<OperandList>(&argument);
    if (list == nullptr) continue;
    captures.clear();
    for (int32_t index : list->indices) {
      captures.push_back(&node.operands[static_cast<size_t>(index)]->type());
    }
  }
  // Layers share their functions, so they share the copy: until the captures are others.
  GraphRef& copy = nested_[graph.get()];
  if (copy != nullptr) {
    auto inputs = copy->inputs().last(captures.size());
    bool same = true;
    for (size_t i = 0; i < captures.size(); ++i) same &= inputs[i]->value.type() == *captures[i];
    if (same) return copy;
  }
  std::unique_ptr<Graph> clone = graph->CloneInto(graph_, captures);
  // Functions are made before it is known where they will run.
  auto move = [this](Value& value) {
    TensorType type = value.type();
    type.device = device_;
    value.set_type(std::move(type));
  };
  for (const auto& input : clone->inputs()) move(input->value);
  for (Node* node : clone->nodes()) {
    for (int32_t i = 0; i < node->result_count(); ++i) move(*node->result(i));
  }
  return copy = GraphRef(std::move(clone));
}

at::Tensor Recorder::Substituted(const at::Tensor& tensor) {
  Recorder* recorder = Active();
  if (recorder == nullptr) return tensor;
  auto known = recorder->substitutes_.find(tensor.unsafeGetTensorImpl());
  return known == recorder->substitutes_.end() ? tensor : known->second;
}

Argument Recorder::ToArgument(const ArgSpec& spec, const c10::IValue& value,
                              Graph::NodeSpec& node) {
  if (value.isNone()) return std::monostate();
  switch (spec.kind) {
    case ArgKind::kTensor:
      return TensorArgument(value.toTensor(), node);
    case ArgKind::kTensorList: {
      OperandList list;
      auto append = [&](const at::Tensor& tensor) {
        Argument argument = TensorArgument(tensor, node);
        const auto* ref = std::get_if<OperandRef>(&argument);
        list.indices.push_back(ref == nullptr ? -1 : ref->index);
      };
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) append(tensor);
      } else {
        for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
          append(tensor.value_or(at::Tensor()));
        }
      }
      return list;
    }
    case ArgKind::kInt:
      return ToDim(value.toSymInt());
    case ArgKind::kIntList: {
      Shape shape;
      if (value.isIntList()) {
        for (int64_t element : value.toIntVector()) shape.emplace_back(element);
      } else {
        for (const c10::SymInt& element : value.toSymIntVector()) shape.push_back(ToDim(element));
      }
      return shape;
    }
    case ArgKind::kFloat:
      return value.toDouble();
    case ArgKind::kFloatList:
      return value.toDoubleVector();
    case ArgKind::kBool:
      return value.toBool();
    case ArgKind::kBoolList: {
      std::vector<bool> flags;
      for (bool flag : value.toBoolList()) flags.push_back(flag);
      return flags;
    }
    case ArgKind::kString:
      return value.toStringRef();
    case ArgKind::kScalar: {
      if (value.isBool()) return value.toBool();
      if (value.isDouble()) return value.toDouble();
      if (value.isInt() || value.isSymInt()) return ToDim(value.toSymInt());
      break;
    }
    case ArgKind::kDType:
      return FromTorch(value.toScalarType());
    case ArgKind::kDevice: {
      Device device = FromTorch(value.toDevice());
      return device.kind == DeviceKind::kMeta ? device_ : device;
    }
    case ArgKind::kLayout: {
      if (value.toLayout() == at::kStrided) return Layout::kStrided;
      break;
    }
    case ArgKind::kMemoryFormat:
      return FromTorch(value.toMemoryFormat());
    case ArgKind::kGraph:
      return Nested(ToGraphObject(value)->graph, node);
    case ArgKind::kGenerator:
      // The executor puts in the generator of the rank that runs the graph.
      if (IsCurrentGenerator(value.toGenerator())) return std::monostate();
      break;
  }
  Fail(ErrorCode::kUnsupportedCapture,
       "{} in module '{}': argument '{}' has a value that cannot be part of a graph ({})",
       CurrentOperation(), CurrentScope().module.str(), spec.name, value.tagKind());
}

bool Recorder::AnswerDirectly(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::is_same_size") {
    size_t count = op.schema().arguments().size();
    auto args = torch::jit::last(*stack, count);
    const at::Tensor a = args[0].toTensor(), b = args[1].toTensor();
    bool same = a.dim() == b.dim();
    for (int64_t i = 0; same && i < a.dim(); ++i) {
      same = graph_.shapes().Equal(ToDim(a.sym_size(i)), ToDim(b.sym_size(i)));
    }
    torch::jit::drop(*stack, count);
    stack->emplace_back(same);
    return true;
  }
  return false;
}

std::vector<SymbolId> Recorder::BindInts(const at::Tensor& tensor, const std::optional<Dim>& sum,
                                         const std::optional<Dim>& expected) {
  Value* value = ValueOf(tensor);
  if (value == nullptr) {
    Fail(ErrorCode::kUnsupportedCapture,
         "the tensor whose integers are read in module '{}' is not part of the captured step",
         CurrentScope().module.str());
  }
  const TensorType& type = value->type();
  ShapeEnv& shapes = graph_.shapes();
  std::optional<int64_t> count = type.rank() == 1 ? shapes.KnownValue(type.sizes[0]) : std::nullopt;
  if (!count) {
    Fail(ErrorCode::kUnsupportedCapture,
         "integers can be read from a one-dimensional tensor of known length only (module '{}')",
         CurrentScope().module.str());
  }
  // Hints must respect what is known: autograd compares the sizes of gradients by them.
  const std::optional<Dim>& all = sum ? sum : expected;
  int64_t left = all ? shapes.Hint(*all) : 2 * *count;
  Graph::NodeSpec spec;
  spec.op = FindOperator("gt::read_ints");
  spec.operands = {value};
  spec.args = {OperandRef{0}};
  spec.meta = CurrentMeta();
  Graph::Typed typed;
  std::vector<Dim> numbers;
  for (int64_t i = 0; i < *count; ++i) {
    int64_t hint = left / (*count - i);
    left -= hint;
    typed.bound_symbols.push_back(shapes.AddDataSymbol(hint));
    numbers.push_back(Dim::Symbol(typed.bound_symbols.back()));
  }
  std::vector<SymbolId> symbols = typed.bound_symbols;
  graph_.InsertTyped(std::move(spec), std::move(typed));
  if (sum) shapes.AddFact(Sum(numbers), *sum);
  return symbols;
}

void Recorder::Record(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  if (!intercepting_) SetCurrentOperation(handle.operator_name().name.c_str());
  const Operator* op = OperatorOf(handle);
  if (op == nullptr) {
    if (AnswerDirectly(handle, stack)) return;
    if (handle.schema().is_mutable()) {
      Fail(ErrorCode::kUnsupportedCapture,
           "{} in module '{}' changes a tensor in place in a way that cannot be undone for the "
           "graph; use its "
           "out-of-place form",
           FullName(handle.operator_name()), CurrentScope().module.str());
    }
    Fail(ErrorCode::kNoRule,
         "operator {} (called by {} in module '{}') is not in the operator table, so nothing is "
         "known about its "
         "result; docs/adding_an_operator.md shows how to add it",
         FullName(handle.operator_name()), CurrentOperation(), CurrentScope().module.str());
  }
  const std::vector<ArgSpec>& specs = op->schema.args;
  auto values = torch::jit::last(*stack, specs.size());
  Graph::NodeSpec spec;
  spec.op = op;
  spec.args.reserve(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    spec.args.push_back(ToArgument(specs[i], values[i], spec));
  }
  spec.meta = CurrentMeta();

  operand_types_.clear();
  for (const Value* operand : spec.operands) operand_types_.push_back(&operand->type());
  ShapeEnv& shapes = graph_.shapes();
  shapes.SetAsker(spec.meta.module, op->name);
  RuleContext context(*op, spec.args, operand_types_, shapes);
  try {
    op->rule(context);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadOperands) throw;
    Fail(error.code(), "{} (in module '{}')", error.message(), spec.meta.module.str());
  }
  Graph::Typed typed;
  typed.results = std::move(context.results());
  if (op->is_view()) typed.view_offsets = std::move(context.offsets());
  for (int i = 0; i < context.bound_symbols(); ++i) {
    typed.bound_symbols.push_back(shapes.AddDataSymbol(/*hint=*/2));
  }
  Node* node = graph_.InsertTyped(std::move(spec), std::move(typed));

  torch::jit::drop(*stack, specs.size());
  int32_t next_result = 0;
  size_t next_integer = 0, next_symbol = 0;
  for (size_t i = 0; i < op->schema.results.size(); ++i) {
    const ResultSpec& result = op->schema.results[i];
    if (result.integer) {
      // Known from the arguments, or, for operators that read data, the symbol that the read binds.
      Dim dim = next_integer < context.integers().size()
                    ? context.integers()[next_integer++]
                    : Dim::Symbol(node->bound_symbols()[next_symbol++]);
      bool scalar = handle.schema().returns()[i].type()->kind() == c10::TypeKind::NumberType;
      c10::SymInt number = ToSymInt(dim, shapes);
      stack->push_back(scalar ? c10::IValue(at::Scalar(number)) : c10::IValue(number));
    } else if (result.list) {
      c10::List<at::Tensor> list;
      while (next_result < node->result_count()) {
        list.push_back(MakeTraced(node->result(next_result++), shapes));
      }
      stack->emplace_back(std::move(list));
    } else {
      const TensorType& type = node->result(next_result)->type();
      stack->emplace_back(type.defined() ? MakeTraced(node->result(next_result), shapes)
                                         : at::Tensor());
      ++next_result;
    }
  }
}

namespace {

void InterceptFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  GT_CHECK(active_recorder != nullptr, "{} was intercepted without a capture", op.schema().name());
  active_recorder->Intercept(op, stack);
}

void RecordFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (active_recorder == nullptr) {
    Fail(ErrorCode::kUnsupportedCapture,
         "{} was called on a traced tensor after its capture ended; tensors of a captured step "
         "must not be kept",
         op.schema().name());
  }
  active_recorder->Record(op, stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&InterceptFallback>());
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RecordFallback>());
}

}  // namespace
}  // namespace gt
