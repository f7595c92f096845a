#include "gt/ir/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/describe.h"
#include "gt/ir/lexer.h"
#include "gt/ir/text.h"

namespace gt {
namespace {

// libtorch's limit, and that of the bit sets that rules keep dimensions in.
constexpr size_t kMaxRank = 64;

template <typename... Alternatives>
bool HoldsAny(const Argument& argument) {
  return (std::holds_alternative<Alternatives>(argument) || ...);
}

// Whether an argument is of a kind that its place in the schema allows.
bool Fits(const ArgSpec& spec, const Argument& argument) {
  if (std::holds_alternative<std::monostate>(argument)) return spec.AllowsNone();
  switch (spec.kind) {
    case ArgKind::kTensor:
      return HoldsAny<OperandRef, Dim, double, bool>(argument);
    case ArgKind::kTensorList:
      return HoldsAny<OperandList>(argument);
    case ArgKind::kInt:
      return HoldsAny<Dim>(argument);
    case ArgKind::kIntList:
      return HoldsAny<Shape>(argument);
    case ArgKind::kFloat:
      return HoldsAny<double, Dim>(argument);
    case ArgKind::kFloatList:
      return HoldsAny<std::vector<double>>(argument);
    case ArgKind::kBool:
      return HoldsAny<bool>(argument);
    case ArgKind::kBoolList:
      return HoldsAny<std::vector<bool>>(argument);
    case ArgKind::kString:
      return HoldsAny<std::string>(argument);
    case ArgKind::kScalar:
      return HoldsAny<Dim, double, bool>(argument);
    case ArgKind::kDType: {
      const auto* dtype = std::get_if<DType>(&argument);
      return dtype != nullptr && *dtype != DType::kUndefined;
    }
    case ArgKind::kDevice:
      return HoldsAny<Device>(argument);
    case ArgKind::kLayout:
      return HoldsAny<Layout>(argument);
    case ArgKind::kMemoryFormat:
      return HoldsAny<MemoryFormat>(argument);
    case ArgKind::kGenerator:
      return false;
    case ArgKind::kGraph: {
      const auto* graph = std::get_if<GraphRef>(&argument);
      return graph != nullptr && *graph != nullptr;
    }
  }
  return false;
}

// "node %mm (aten::mm, module 'layers.0.wq', llama3.cc:12)"
std::string Describe(const Node& node) {
  const std::string& source = node.meta().source.str();
  return "node " + DescribeNode(node, "", source.empty() ? "" : ", " + source);
}

void CheckMetadata(const Node& node) {
  const Meta& meta = node.meta();
  const auto fail = [&](std::string_view what) {
    Fail(ErrorCode::kBadMetadata, "{}: {}", Describe(node), what);
  };
  if (meta.sequence < -1) fail(fmt::format("its sequence number is {}", meta.sequence));
  if (meta.chunk == nullptr) return;
  const ChunkMeta& chunk = *meta.chunk;
  if (chunk.id < -1) fail(fmt::format("its chunk id is {}", chunk.id));
  if (chunk.role == ChunkRole::kNone) return;
  if (chunk.region.empty()) {
    fail(fmt::format("its chunk role is {}, but no region is named", Spelling(chunk.role)));
  }
  if (chunk.role == ChunkRole::kBody && chunk.id < 0) {
    fail("it is in the body of a chunk, but has no chunk id");
  }
  if (chunk.backward != (meta.phase == Phase::kBackward)) {
    fail(fmt::format("its phase is {}, but its chunk says {}", Spelling(meta.phase),
                     chunk.backward ? "backward" : "forward"));
  }
}

// One walk over a graph and the graphs nested in it; each value, operand and use is looked at a
// fixed number of times.
class Verifier {
 public:
  explicit Verifier(Graph& graph) : shapes_(graph.shapes()), bound_(shapes_.symbols().size()) {}

  void Run(Graph& graph) {
    ShapeEnvModeScope check(shapes_, ShapeEnv::Mode::kCheck);
    BindInputSymbols(graph);
    CheckSymbols();
    CheckGraph(graph);
  }

 private:
  void BindInputSymbols(const Graph& graph);
  void CheckSymbols() const;
  void CheckFactsAndGuards() const;
  void CheckGraph(Graph& graph);
  void CheckInputs(const Graph& graph) const;
  void CheckNode(const Graph& graph, const Node& node);
  void CheckArguments(const Node& node) const;
  void CheckOperands(const Graph& graph, const Node& node) const;
  void CheckBoundSymbols(const Node& node, int expected);
  void CheckResults(const Graph& graph, const Node& node);
  void CheckNestedGraphs(const Graph& graph, const Node& node);
  void CheckOutputs(const Graph& graph) const;
  void CheckOutput(const Output& output, const Input* owner, std::string_view role) const;
  template <typename Where>
  void CheckValue(const Graph& graph, const Value& value, const Where& where) const;
  void CheckUses(const Graph& graph);
  void CountUses(const Graph& graph, const Value& value);

  bool IsDefined(const Graph& graph, const Value* value, int32_t before) const;
  // What is wrong with a size expression or a type where it is used; empty if nothing is.
  std::string ProblemWith(const Dim& dim) const;
  std::string ProblemWith(const TensorType& type) const;
  bool Same(const Dim& a, const Dim& b) const;
  bool Same(const Shape& a, const Shape& b) const;
  bool Same(const TensorType& a, const TensorType& b) const;

  ShapeEnv& shapes_;
  std::vector<char> bound_;  // by symbol: has an input or a node passed so far given it a value?
  int64_t uses_expected_ = 0;
  int64_t uses_found_ = 0;
  std::vector<const TensorType*> operand_types_;  // scratch
};

void Verifier::BindInputSymbols(const Graph& graph) {
  for (const auto& input : graph.inputs()) {
    for (const Dim& size : input->value.type().sizes) {
      const auto multiple = size.as_multiple();
      if (!multiple || multiple->symbol >= bound_.size()) continue;
      const bool input = shapes_.symbol(multiple->symbol).kind == Symbol::Kind::kInput;
      if (input) bound_[multiple->symbol] = true;
    }
  }
}

void Verifier::CheckSymbols() const {
  for (const Symbol& symbol : shapes_.symbols()) {
    if (!IsIdentifier(symbol.name)) {
      Fail(ErrorCode::kBadSymbol, "a symbol is called '{}', which is not an identifier",
           symbol.name);
    }
    if (symbol.low > symbol.high) {
      Fail(ErrorCode::kBadSymbol, "the range [{}, {}] of symbol {} is empty", symbol.low,
           symbol.high, symbol.name);
    }
    const bool outside = symbol.hint < symbol.low || symbol.hint > symbol.high;
    if (symbol.kind == Symbol::Kind::kInput && outside) {
      Fail(ErrorCode::kBadSymbol, "the hint {} of symbol {} lies outside its range [{}, {}]",
           symbol.hint, symbol.name, symbol.low, symbol.high);
    }
  }
  CheckFactsAndGuards();
}

void Verifier::CheckFactsAndGuards() const {
  for (const auto& [left, right] : shapes_.facts()) {
    for (const Dim* side : {&left, &right}) {
      side->ForEachSymbol([&](SymbolId id) {
        if (id >= bound_.size()) {
          Fail(ErrorCode::kUnboundSymbol, "a fact mentions symbol number {}, which is not declared",
               id);
        }
      });
    }
  }
  for (const Guard& guard : shapes_.guards()) {
    guard.predicate.expression.ForEachSymbol([&](SymbolId id) {
      if (id < bound_.size() && bound_[id]) return;
      Fail(ErrorCode::kUnboundSymbol,
           "a guard of {} in module '{}' mentions {}, which no input dimension binds: it could "
           "not be checked before a run",
           guard.op.str(), guard.module.str(),
           id < bound_.size() ? shapes_.symbol(id).name : "an undeclared symbol");
    });
  }
  if (const Guard* broken = shapes_.FirstBroken(shapes_.Hints())) {
    Fail(ErrorCode::kHintBreaksGuard,
         "the guard {} (asked by {} in module '{}') does not hold for the hints",
         broken->predicate.ToString(shapes_.Namer()), broken->op.str(), broken->module.str());
  }
}

std::string Verifier::ProblemWith(const Dim& dim) const {
  if (dim.is_const()) return {};
  std::string problem;
  dim.ForEachSymbol([&](SymbolId id) {
    if (!problem.empty() || (id < bound_.size() && bound_[id])) return;
    if (id >= bound_.size()) {
      problem = fmt::format("mentions symbol number {}, which is not declared", id);
    } else if (shapes_.symbol(id).kind == Symbol::Kind::kInput) {
      problem = fmt::format("mentions symbol {}, which is not the size of any input dimension",
                            shapes_.symbol(id).name);
    } else {
      problem =
          fmt::format("mentions symbol {}, which no earlier node binds", shapes_.symbol(id).name);
    }
  });
  return problem;
}

std::string Verifier::ProblemWith(const TensorType& type) const {
  if (type.sizes.size() != type.strides.size()) {
    return fmt::format("has {} sizes but {} strides", type.sizes.size(), type.strides.size());
  }
  if (type.sizes.size() > kMaxRank) {
    return fmt::format("has {} dimensions; the most there can be is {}", type.sizes.size(),
                       kMaxRank);
  }
  for (const Dim& size : type.sizes) {
    if (const auto value = size.as_const(); value && *value < 0) {
      return fmt::format("has a negative size, {}", *value);
    }
    if (std::string problem = ProblemWith(size); !problem.empty()) return problem;
  }
  for (const Dim& stride : type.strides) {
    if (std::string problem = ProblemWith(stride); !problem.empty()) return problem;
  }
  return {};
}

// A rule may arrive at another spelling of the same size after a pass has replaced an operand.
bool Verifier::Same(const Dim& a, const Dim& b) const {
  return a == b || shapes_.KnownEqual(a, b).value_or(false);
}

bool Verifier::Same(const Shape& a, const Shape& b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [this](const Dim& x, const Dim& y) { return Same(x, y); });
}

bool Verifier::Same(const TensorType& a, const TensorType& b) const {
  return a.dtype == b.dtype && a.device == b.device && Same(a.sizes, b.sizes) &&
         Same(a.strides, b.strides);
}

// `before` is the number of the node that asks; producers are numbered in the order of the graph.
bool Verifier::IsDefined(const Graph& graph, const Value* value, int32_t before) const {
  if (value == nullptr) return false;
  if (const Node* producer = value->producer()) {
    return &producer->graph() == &graph && producer->number() < before;
  }
  const auto index = static_cast<size_t>(value->index());
  return index < graph.inputs().size() && &graph.inputs()[index]->value == value;
}

// Each use in the list must be real. Counting shows the rest: if as many uses are listed as there
// are operands and outputs, none is missing.
void Verifier::CountUses(const Graph& graph, const Value& value) {
  for (const Use& use : value.uses()) {
    const Value* used = nullptr;
    if (const Node* node = use.node()) {
      if (&node->graph() == &graph && use.index() < node->operand_count()) {
        used = node->operand(use.index());
      }
    } else if (static_cast<size_t>(use.index()) < graph.outputs().size()) {
      used = graph.outputs()[static_cast<size_t>(use.index())]->value();
    }
    if (use.value() != &value || used != &value || ++uses_found_ > uses_expected_) {
      Fail(ErrorCode::kBrokenUses, "%{} of graph @{} lists a use by {} that does not exist",
           value.name(), graph.name(), use.node() ? Describe(*use.node()) : "an output");
    }
  }
}

// `where` makes the text that names the value's place, if it is needed.
template <typename Where>
void Verifier::CheckValue(const Graph& graph, const Value& value, const Where& where) const {
  if (graph.FindValue(value.interned_name()) != &value) {
    Fail(ErrorCode::kBadName, "{}: looking for %{} in graph @{} finds another value", where(),
         value.name(), graph.name());
  }
  if (std::string problem = ProblemWith(value.type()); !problem.empty()) {
    Fail(problem.starts_with("mentions") ? ErrorCode::kUnboundSymbol : ErrorCode::kTypeMismatch,
         "{}: the type {} of %{} {}", where(), Print(value.type(), shapes_), value.name(), problem);
  }
  if (!value.type().defined() && value.has_uses()) {
    Fail(ErrorCode::kTypeMismatch,
         "{}: %{} is a result that libtorch leaves undefined, yet it is used", where(),
         value.name());
  }
}

void Verifier::CheckGraph(Graph& graph) {
  graph.NumberNodes();
  CheckInputs(graph);
  for (const Node* node : graph.nodes()) CheckNode(graph, *node);
  CheckOutputs(graph);
  CheckUses(graph);
}

void Verifier::CheckUses(const Graph& graph) {
  uses_found_ = 0;
  uses_expected_ = static_cast<int64_t>(graph.outputs().size());
  for (const Node* node : graph.nodes()) uses_expected_ += node->operand_count();
  for (const auto& input : graph.inputs()) CountUses(graph, input->value);
  for (const Node* node : graph.nodes()) {
    for (int32_t i = 0; i < node->result_count(); ++i) CountUses(graph, *node->result(i));
  }
  if (uses_found_ != uses_expected_) {
    Fail(ErrorCode::kBrokenUses,
         "graph @{} has {} operands and outputs, but its values list {} uses", graph.name(),
         uses_expected_, uses_found_);
  }
}

void Verifier::CheckInputs(const Graph& graph) const {
  std::unordered_map<std::string_view, InputRole> names;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = *graph.inputs()[i];
    const auto where = [&] {
      return fmt::format("{} '{}' of graph @{}", Spelling(input.role), input.name, graph.name());
    };
    if (static_cast<size_t>(input.value.index()) != i || input.value.producer() != nullptr) {
      Fail(ErrorCode::kBadName, "{} stands at position {} but believes to be at {}", where(), i,
           input.value.index());
    }
    CheckValue(graph, input.value, where);
    // Gradients and updates find their parameter or buffer by name.
    if (input.role != InputRole::kParameter && input.role != InputRole::kBuffer) continue;
    if (!names.emplace(input.name, input.role).second) {
      Fail(ErrorCode::kBadName, "two parameters or buffers of graph @{} are called '{}'",
           graph.name(), input.name);
    }
  }
}

void Verifier::CheckNode(const Graph& graph, const Node& node) {
  CheckArguments(node);
  CheckOperands(graph, node);
  CheckNestedGraphs(graph, node);
  CheckResults(graph, node);
  CheckMetadata(node);
}

// One argument for each of the schema's, operands counted in order.
void Verifier::CheckArguments(const Node& node) const {
  const std::vector<ArgSpec>& specs = node.op().schema.args;
  const auto fail = [&](std::string_view what) {
    Fail(ErrorCode::kBadArguments, "{}: {}; its schema is {}", Describe(node), what,
         node.op().schema.text);
  };
  if (node.args().size() != specs.size()) {
    fail(fmt::format("it has {} arguments, its operator takes {}", node.args().size(),
                     specs.size()));
  }
  int32_t next = 0;
  const auto take = [&](int32_t index, const ArgSpec& spec) {
    if (index == next && index < node.operand_count()) {
      ++next;
      return;
    }
    fail(fmt::format("argument '{}' refers to operand {} of {}, but {} is next", spec.name, index,
                     node.operand_count(), next));
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    const Argument& argument = node.args()[i];
    if (!Fits(specs[i], argument)) {
      fail(fmt::format("argument '{}' is of a kind that its schema does not allow", specs[i].name));
    }
    std::string problem;
    if (const auto* ref = std::get_if<OperandRef>(&argument)) {
      take(ref->index, specs[i]);
    } else if (const auto* list = std::get_if<OperandList>(&argument)) {
      for (int32_t index : list->indices) {
        if (index != -1) {
          take(index, specs[i]);
        } else if (!specs[i].optional_elements) {
          fail(fmt::format("the list '{}' cannot have missing elements", specs[i].name));
        }
      }
    } else if (const auto* dim = std::get_if<Dim>(&argument)) {
      problem = ProblemWith(*dim);
    } else if (const auto* shape = std::get_if<Shape>(&argument)) {
      for (const Dim& element : *shape) {
        if (problem.empty()) problem = ProblemWith(element);
      }
    }
    if (!problem.empty()) {
      Fail(ErrorCode::kUnboundSymbol, "{}: argument '{}' {}", Describe(node), specs[i].name,
           problem);
    }
  }
  if (next != node.operand_count()) {
    fail(fmt::format("it has {} operands, but its arguments refer to {}", node.operand_count(),
                     next));
  }
}

void Verifier::CheckOperands(const Graph& graph, const Node& node) const {
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const Value* operand = node.operand(i);
    if (IsDefined(graph, operand, node.number())) continue;
    Fail(ErrorCode::kOperandOrder,
         "{}: operand {} ({}) is not defined by an input or an earlier node of graph @{}",
         Describe(node), i, operand == nullptr ? "null" : "%" + operand->name(), graph.name());
  }
}

void Verifier::CheckBoundSymbols(const Node& node, int expected) {
  if (static_cast<int>(node.bound_symbols().size()) != expected) {
    Fail(ErrorCode::kBadArguments, "{}: it binds {} symbols, its operator's rule says {}",
         Describe(node), node.bound_symbols().size(), expected);
  }
  for (SymbolId id : node.bound_symbols()) {
    if (id >= bound_.size() || shapes_.symbol(id).kind != Symbol::Kind::kData) {
      Fail(ErrorCode::kBadSymbol, "{}: it binds a symbol that is not declared as read from data",
           Describe(node));
    }
    if (bound_[id]) {
      Fail(ErrorCode::kBadSymbol, "{}: it binds symbol {}, which an earlier node binds already",
           Describe(node), shapes_.symbol(id).name);
    }
    bound_[id] = true;
  }
}

void Verifier::CheckResults(const Graph& graph, const Node& node) {
  operand_types_.clear();
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    operand_types_.push_back(&node.operand(i)->type());
  }
  shapes_.SetAsker(node.meta().module, node.op().name);
  RuleContext rule(node.op(), node.args(), operand_types_, shapes_);
  try {
    node.op().rule(rule);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", Describe(node), error.message()));
  }
  CheckBoundSymbols(node, rule.bound_symbols());
  if (rule.results().size() != static_cast<size_t>(node.result_count())) {
    Fail(ErrorCode::kTypeMismatch, "{}: it has {} results, its operator's rule says {}",
         Describe(node), node.result_count(), rule.results().size());
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    const Value& result = *node.result(i);
    const TensorType& expected = rule.results()[static_cast<size_t>(i)];
    CheckValue(graph, result, [&] { return Describe(node); });
    if (result.producer() != &node || result.index() != i) {
      Fail(ErrorCode::kBadName, "{}: result %{} does not know its place", Describe(node),
           result.name());
    }
    if (result.type() != expected && !Same(result.type(), expected)) {
      Fail(ErrorCode::kTypeMismatch,
           "{}: %{} has type {}, but by the operator's rule its arguments give {}", Describe(node),
           result.name(), Print(result.type(), shapes_), Print(expected, shapes_));
    }
  }
  if (!node.op().is_view()) {
    if (node.view_offsets().empty()) return;
    Fail(ErrorCode::kViewOffsetMismatch, "{}: it is not a view, yet it has offsets",
         Describe(node));
  }
  if (node.view_offsets().size() != rule.offsets().size()) {
    Fail(ErrorCode::kViewOffsetMismatch, "{}: it has {} offsets for {} results", Describe(node),
         node.view_offsets().size(), node.result_count());
  }
  for (size_t i = 0; i < rule.offsets().size(); ++i) {
    if (Same(node.view_offsets()[i], rule.offsets()[i])) continue;
    Fail(ErrorCode::kViewOffsetMismatch,
         "{}: %{} begins at element {} of what it views, but by the operator's rule at {}",
         Describe(node), node.result(static_cast<int32_t>(i))->name(),
         shapes_.Print(node.view_offsets()[i]), shapes_.Print(rule.offsets()[i]));
  }
}

void Verifier::CheckNestedGraphs(const Graph& graph, const Node& node) {
  ForEachNestedGraph(node, [&](const Graph& nested) {
    if (&nested.shapes() != &graph.shapes()) {
      Fail(ErrorCode::kBadArguments,
           "{}: the nested graph @{} has symbols of its own instead of those of @{}",
           Describe(node), nested.name(), graph.name());
    }
    // The numbers of nodes are scratch space, no part of what the graph says.
    CheckGraph(const_cast<Graph&>(nested));
  });
}

void Verifier::CheckOutput(const Output& output, const Input* owner, std::string_view role) const {
  if (owner == nullptr) {
    Fail(ErrorCode::kBadOutput, "output %{} is the {} of '{}', but no such {} is among the inputs",
         output.value()->name(), Spelling(output.role), output.name, role);
  }
  const TensorType& type = output.value()->type();
  const TensorType& expected = owner->value.type();
  if (type.dtype == expected.dtype && Same(type.sizes, expected.sizes)) return;
  Fail(ErrorCode::kBadOutput, "output %{} is the {} of '{}', but its type is {} and not {}",
       output.value()->name(), Spelling(output.role), output.name, Print(type, shapes_),
       Print(expected, shapes_));
}

void Verifier::CheckOutputs(const Graph& graph) const {
  std::unordered_map<std::string_view, const Input*> owners;
  for (const auto& input : graph.inputs()) {
    if (input->role == InputRole::kParameter || input->role == InputRole::kBuffer) {
      owners.emplace(input->name, input.get());
    }
  }
  const auto find = [&](const Output& output, InputRole role) -> const Input* {
    const auto found = owners.find(output.name);
    return found == owners.end() || found->second->role != role ? nullptr : found->second;
  };
  std::unordered_map<std::string_view, const Output*> answered;
  const Output* loss = nullptr;
  for (const auto& output : graph.outputs()) {
    if (!IsDefined(graph, output->value(), std::numeric_limits<int32_t>::max())) {
      Fail(ErrorCode::kOperandOrder, "output '{}' of graph @{} is not a value of that graph",
           output->name, graph.name());
    }
    const TensorType& type = output->value()->type();
    switch (output->role) {
      case OutputRole::kLoss:
        if (loss != nullptr) {
          Fail(ErrorCode::kBadOutput, "graph @{} has two losses, %{} and %{}", graph.name(),
               loss->value()->name(), output->value()->name());
        }
        loss = output.get();
        if (type.rank() != 0 || !IsFloating(type.dtype)) {
          Fail(ErrorCode::kBadOutput,
               "the loss %{} has type {}; a loss is one floating-point number",
               output->value()->name(), Print(type, shapes_));
        }
        continue;
      case OutputRole::kGradient:
        CheckOutput(*output, find(*output, InputRole::kParameter), "parameter");
        break;
      case OutputRole::kBufferUpdate:
        CheckOutput(*output, find(*output, InputRole::kBuffer), "buffer");
        break;
      case OutputRole::kSaved:
      case OutputRole::kResult:
        continue;
    }
    if (!answered.emplace(output->name, output.get()).second) {
      Fail(ErrorCode::kBadOutput, "graph @{} returns two outputs as the {} of '{}'", graph.name(),
           Spelling(output->role), output->name);
    }
  }
}

}  // namespace

void Verify(Graph& graph) { Verifier(graph).Run(graph); }

}  // namespace gt
