// What the graph knows about an operator: its schema, how result types follow from arguments, what
// it costs, and the facts that passes rely on (ir/operator_facts.h). One Operator object exists per
// operator and overload; nodes point to it. The entries themselves are in ops/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gt/base/name.h"
#include "gt/ir/dim.h"
#include "gt/ir/operator_facts.h"
#include "gt/ir/type.h"

namespace gt {

class Graph;
class ShapeEnv;
struct Operator;

enum class Layout : uint8_t { kStrided };
enum class MemoryFormat : uint8_t { kContiguous, kPreserve };

// A reference to one of the node's operands, by position in Node::operands().
struct OperandRef {
  int32_t index;
  friend bool operator==(const OperandRef&, const OperandRef&) = default;
};
// A list of operands (Tensor[]); -1 stands for a missing one (Tensor?[]).
struct OperandList {
  std::vector<int32_t> indices;
  friend bool operator==(const OperandList&, const OperandList&) = default;
};
using GraphRef = std::shared_ptr<const Graph>;

// One argument of a node. Arguments are in schema order, one for each, defaults filled in.
// Integers and symbolic integers are both Dims. A number may be given where the schema says Tensor:
// libtorch's "wrapped number", which takes part in type promotion as a Python scalar does.
using Argument = std::variant<std::monostate, OperandRef, OperandList, Dim, Shape, double, bool,
                              std::string, DType, Device, Layout, MemoryFormat, std::vector<double>,
                              std::vector<bool>, GraphRef>;

enum class ArgKind : uint8_t {
  kTensor,
  kTensorList,
  kInt,
  kIntList,
  kFloat,
  kFloatList,
  kBool,
  kBoolList,
  kString,
  kScalar,
  kDType,
  kDevice,
  kLayout,
  kMemoryFormat,
  kGenerator,
  kGraph,
};

struct ArgSpec {
  std::string name;
  ArgKind kind = ArgKind::kTensor;
  bool optional = false;           // "?" after the type
  bool optional_elements = false;  // Tensor?[]
  bool symbolic = false;           // SymInt, for checking against libtorch
  int fixed_length = -1;           // int[2]; a single int is accepted for such lists
  char alias = 0;                  // 'a' in Tensor(a); 0: none
  bool written = false;            // "!" in Tensor(a!)
  std::optional<Argument> default_value;

  // libtorch passes an undefined tensor where the schema says Tensor (the bias that an attention
  // backward does not have). The first argument is always there; operators that need the others
  // reject a missing one in their rule.
  bool may_be_undefined = false;

  bool AllowsNone() const {
    return optional || may_be_undefined ||
           (default_value && std::holds_alternative<std::monostate>(*default_value));
  }
};

struct ResultSpec {
  bool list = false;  // Tensor[]: the number of results follows from the arguments
  // An int, SymInt or Scalar: known from the arguments (CUDA attention returns its sequence
  // lengths) or bound as a symbol (an element read from a tensor), so it is not a value of the
  // graph; capturing hands the Dim straight on to the program.
  bool integer = false;
  char alias = 0;  // same letter as the argument it is a view of
};

struct Schema {
  std::string text;  // as libtorch prints it; a conformance test compares them
  std::vector<ArgSpec> args;
  std::vector<ResultSpec> results;

  int Find(std::string_view arg_name) const;  // position or -1
};

// Parses libtorch's schema syntax: "aten::transpose.int(Tensor(a) self, int dim0, int dim1) ->
// Tensor(a)". `Graph` is an argument type of our own (FlexAttention's score and mask functions).
Schema ParseSchema(std::string_view text);

// What a shape rule sees of a node, and where it puts its answer.
class RuleContext {
 public:
  RuleContext(const Operator& op, std::span<const Argument> args,
              std::span<const TensorType* const> operands, ShapeEnv& env)
      : op_(op), args_(args), operands_(operands), env_(env) {}

  const Operator& op() const { return op_; }
  ShapeEnv& env() { return env_; }

  // Arguments by schema position. Asking for the wrong kind is a malformed graph and an error that
  // names the argument.
  bool IsNone(int i) const { return std::holds_alternative<std::monostate>(args_[i]); }
  bool IsNumber(int i) const;  // a number where the schema says Tensor or Scalar
  const TensorType& Tensor(int i) const;
  const TensorType* OptionalTensor(int i) const;        // null when missing
  std::vector<const TensorType*> Tensors(int i) const;  // null for missing elements
  const Dim& Int(int i) const;
  std::optional<Dim> OptionalInt(int i) const;
  int64_t ConstInt(int i) const;  // an integer that must be a plain number (dimension indices)
  const Shape& Ints(int i) const;
  const Shape* OptionalInts(int i) const;
  std::vector<int64_t> ConstInts(int i) const;
  double Float(int i) const;  // integers are accepted
  bool Bool(int i) const;
  std::optional<DType> OptionalDType(int i) const;
  std::optional<Device> OptionalDevice(int i) const;
  std::optional<MemoryFormat> OptionalMemoryFormat(int i) const;
  const std::string& String(int i) const;
  const std::vector<bool>& Bools(int i) const;
  const Argument& arg(int i) const { return args_[i]; }

  void Return(TensorType type) {
    results_.push_back(std::move(type));
    offsets_.emplace_back(0);
  }
  // For views: where the result begins in its base, in elements counted from the base's own
  // beginning.
  void ReturnView(TensorType type, Dim offset) {
    results_.push_back(std::move(type));
    offsets_.push_back(std::move(offset));
  }
  // For a tensor result that libtorch leaves undefined under these arguments. It keeps its
  // position, so that results and schema can be matched one by one.
  void ReturnUndefined() {
    TensorType undefined;
    undefined.dtype = DType::kUndefined;
    Return(std::move(undefined));
  }
  // For results that are integers; in the order of the schema's integer results.
  void ReturnInt(Dim value) { integers_.push_back(std::move(value)); }
  // The operator binds this many fresh data symbols (it reads integers out of a tensor); ranges
  // start at 0.
  void BindSymbols(int count) { bound_symbols_ = count; }

  // Fails with a message that names the operator: rules describe what is wrong with the arguments.
  [[noreturn]] void Reject(const std::string& why) const;

  std::vector<TensorType>& results() { return results_; }
  std::vector<Dim>& offsets() { return offsets_; }
  std::vector<Dim>& integers() { return integers_; }
  int bound_symbols() const { return bound_symbols_; }

 private:
  const Operator& op_;
  std::span<const Argument> args_;
  std::span<const TensorType* const> operands_;
  ShapeEnv& env_;
  std::vector<TensorType> results_;
  std::vector<Dim> offsets_;
  std::vector<Dim> integers_;
  int bound_symbols_ = 0;
};

using ShapeRule = void (*)(RuleContext&);

// What a node costs, as an expression over the graph's symbols.
struct CostContext {
  std::span<const Argument> args;
  std::span<const TensorType* const> operands;
  std::span<const TensorType* const> results;
  const TensorType& Tensor(int i) const;  // tensor argument at schema position i
};
using CostRule = Dim (*)(const CostContext&);

// How it can be computed in shards (ir/sharding.h).
class ShardingContext;
using ShardingRule = void (*)(ShardingContext&);

// Declared by the operator's entry in ops/. Only `work` and `order` have no default: every operator
// says what they are. The others may be left out where they do not apply.
struct OperatorFacts {
  Work work = Work::kUndecided;
  DimOrder order = DimOrder::kUndecided;
  // Floating-point operations, a multiply-add is two; null: one per result element, views zero.
  CostRule flops = nullptr;
  CostRule scratch = nullptr;       // bytes that its kernel allocates while it runs; null: few
  ShardingRule sharding = nullptr;  // null: every rank computes all of it
  ViewKind view = ViewKind::kNone;
  Aliasing aliasing = Aliasing::kNone;  // left out for views whose schema says so
  Linearity linearity = Linearity::kNone;
  // Computes in one dtype; on the CPU operands of another are first copied. CUDA kernels convert as
  // they read.
  bool converts_operands = false;
  IntegerOperands integers = IntegerOperands::kUnspecified;
  RecomputeClass recompute = RecomputeClass::kCheap;
  HostPart host = HostPart::kNone;
  bool random = false;  // draws from a generator: never merged, duplicated or dropped unseen
  bool generator_state = false;  // reads or sets the state of a generator; random as well
  bool side_effect = false;      // must not be removed even when its results are unused
  bool reads_data = false;       // binds data symbols; synchronizes with the device
  Collective collective = Collective::kNone;
  Transfer transfer = Transfer::kNone;
};

struct Operator : OperatorFacts {
  Name name;  // "aten::transpose.int": namespace, operator and overload
  Schema schema;
  ShapeRule rule = nullptr;
  int group_arg = -1;  // of a collective: schema position of the process group's name

  // Every result aliases an argument; executing it moves no data.
  bool is_view() const { return view_arg_ >= 0; }
  // Position of the argument that a view looks into.
  int view_arg() const { return view_arg_; }
  int view_arg_ = -1;
};

// The operator of that full name, or null. Thread safe; the registry is built at first use.
const Operator* FindOperator(std::string_view full_name);
const Operator* FindOperator(Name full_name);
// All operators, in the order of registration.
std::span<const Operator* const> AllOperators();

}  // namespace gt
