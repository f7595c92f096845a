// The graph: an ordered list of nodes in SSA form. No node mutates anything; what the program
// mutated (a buffer) is a new value returned under the buffer's name. The order of nodes is the
// order of execution.
//
// Invariants, kept by this class or checked by the verifier (ir/verifier.h):
//   - every operand is defined before its use, by an input or an earlier node, of this graph;
//   - each value knows all its uses: nodes and graph outputs;
//   - value names are unique in the graph and never change, so that dumps of successive passes can
//     be compared;
//   - result types follow from the operands by the operator's rule;
//   - a data symbol is bound by exactly one node, before its first use.
// Insertion, removal and replacing an operand are O(1): no pass needs to scan the graph to change
// it. A node, its operands, results and arguments are one piece of the graph's arena; names are
// interned and types shared, so that a copy of a graph copies neither.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/arena.h"
#include "gt/base/name.h"
#include "gt/base/pointer_map.h"
#include "gt/ir/meta.h"
#include "gt/ir/modules.h"
#include "gt/ir/operator.h"
#include "gt/ir/shape_env.h"
#include "gt/ir/type.h"

namespace gt {

class Graph;
class Node;
class Value;

enum class InputRole : uint8_t { kParameter, kBuffer, kInput, kConstant };
enum class OutputRole : uint8_t { kLoss, kGradient, kBufferUpdate, kSaved, kResult };

// One place where a value is used. Lives inside its user (a node's operand list or a graph output)
// and is linked into the value's list of uses.
class Use {
 public:
  Use() = default;
  ~Use() { Set(nullptr); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Value* value() const { return value_; }
  Node* node() const { return node_; }      // null: a graph output
  int32_t index() const { return index_; }  // operand position, or output position
  Use* next() const { return next_; }
  void Set(Value* value);

 private:
  friend class Graph;
  friend class Node;
  Value* value_ = nullptr;
  Node* node_ = nullptr;
  Use* next_ = nullptr;
  Use** previous_ = nullptr;  // what points at this use
  int32_t index_ = 0;
};

class Value {
 public:
  const std::string& name() const { return name_.str(); }
  Name interned_name() const { return name_; }
  const TensorType& type() const { return *type_; }
  void set_type(TensorType type) { type_ = std::make_shared<const TensorType>(std::move(type)); }
  Node* producer() const { return producer_; }  // null: a graph input
  int32_t index() const { return index_; }      // result position, or input position
  bool is_input() const { return producer_ == nullptr; }

  bool has_uses() const { return uses_ != nullptr; }
  bool has_one_use() const { return uses_ != nullptr && uses_->next() == nullptr; }
  // Uses in no particular order; the list may be changed while walking only through ReplaceAllUses.
  class UseIterator {
   public:
    explicit UseIterator(Use* use) : use_(use) {}
    Use& operator*() const { return *use_; }
    UseIterator& operator++() {
      use_ = use_->next();
      return *this;
    }
    bool operator!=(const UseIterator& other) const { return use_ != other.use_; }

   private:
    Use* use_;
  };
  struct UseRange {
    Use* first;
    UseIterator begin() const { return UseIterator(first); }
    UseIterator end() const { return UseIterator(nullptr); }
  };
  UseRange uses() const { return {uses_}; }
  void ReplaceAllUses(Value* with);

 private:
  friend class Graph;
  friend class Node;
  friend class Use;
  Name name_;
  std::shared_ptr<const TensorType> type_;  // never null in a graph
  Node* producer_ = nullptr;
  Use* uses_ = nullptr;
  int32_t index_ = 0;
};

class Node {
 public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const Operator& op() const { return *op_; }
  Graph& graph() const { return *graph_; }

  int32_t operand_count() const { return counts_.operands; }
  Value* operand(int32_t i) const { return operands_[i].value(); }
  void SetOperand(int32_t i, Value* value) { operands_[i].Set(value); }

  int32_t result_count() const { return counts_.results; }
  Value* result(int32_t i = 0) const { return &results_[i]; }

  std::span<const Argument> args() const { return {args_, static_cast<size_t>(counts_.args)}; }
  const Argument& arg(int32_t i) const { return args_[i]; }
  // Replaces an argument that is not a tensor; the caller keeps the types right.
  void SetArg(int32_t i, Argument value) { args_[i] = std::move(value); }
  // The tensor argument at schema position i, or null when it is missing or a number.
  Value* TensorArg(int32_t i) const;

  const Meta& meta() const { return meta_; }
  Meta& meta() { return meta_; }

  // Data symbols that this node's results bind, in order.
  std::span<const SymbolId> bound_symbols() const {
    return {bound_symbols_, static_cast<size_t>(counts_.bound_symbols)};
  }
  // Where each result begins in the viewed argument, for view operators.
  std::span<const Dim> view_offsets() const {
    return {view_offsets_, static_cast<size_t>(counts_.view_offsets)};
  }

  Node* next() const { return next_; }
  Node* previous() const { return previous_; }
  // Position after the last call of Graph::NumberNodes.
  int32_t number() const { return number_; }

  bool has_uses() const;

 private:
  friend class Graph;
  // Of the arrays that follow the node in memory, in this order.
  struct Counts {
    int32_t operands, results, args, view_offsets, bound_symbols;
    size_t Bytes() const;  // of node and arrays
  };
  explicit Node(const Counts& counts);
  ~Node();

  const Operator* op_ = nullptr;
  Graph* graph_ = nullptr;
  Use* operands_;
  Value* results_;
  Argument* args_;
  Dim* view_offsets_;
  SymbolId* bound_symbols_;
  const Counts counts_;
  int32_t number_ = -1;
  Meta meta_;
  Node* next_ = nullptr;
  Node* previous_ = nullptr;
};

struct Input {
  Value value;
  InputRole role;
  std::string name;         // "layers.0.attention.wq.weight", "tokens"
  Name placement = Name();  // of a step that a plan was applied to, as in Meta
};

struct Output {
  Use use;
  OutputRole role;
  std::string name;  // the parameter or buffer it belongs to; free otherwise
  Value* value() const { return use.value(); }
};

class Graph {
 public:
  explicit Graph(std::string name = "step");
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& name() const { return name_; }
  // A nested graph shares the symbols of the graph around it.
  ShapeEnv& shapes() { return *shapes_; }
  const ShapeEnv& shapes() const { return *shapes_; }
  void ShareShapes(const Graph& outer) { shapes_ = outer.shapes_; }
  // The roles that modules declare. A nested graph has none of its own.
  ModuleTable& modules() { return modules_; }
  const ModuleTable& modules() const { return modules_; }

  Value* AddInput(InputRole role, std::string name, TensorType type, std::string value_name = "");
  Output* AddOutput(OutputRole role, std::string name, Value* value);
  std::span<const std::unique_ptr<Input>> inputs() const { return inputs_; }
  std::span<const std::unique_ptr<Output>> outputs() const { return outputs_; }
  // Values without uses may leave the list of inputs; positions of the others move up.
  void RemoveInput(int32_t index);

  // Everything needed to make a node. `operands` are what OperandRef and OperandList in `args`
  // count.
  struct NodeSpec {
    const Operator* op = nullptr;
    std::vector<Value*> operands;
    std::vector<Argument> args;
    Meta meta;
    std::string name;  // of the first result; empty: made from the operator
  };
  // Infers the result types by the operator's rule (recording guards) and inserts before `before`
  // (null: at the end). Data symbols are created when the operator binds them.
  Node* Insert(NodeSpec spec, Node* before = nullptr);
  // As Insert, with types known to be right (parser, copies of nodes of another graph): the
  // verifier will check them. Names must be free.
  struct Typed {
    std::vector<TensorType> results;
    std::vector<Dim> view_offsets;
    std::vector<SymbolId> bound_symbols;
    std::vector<std::string> result_names;  // empty: made from the operator
  };
  Node* InsertTyped(NodeSpec spec, Typed typed, Node* before = nullptr);
  // What Insert would give the node: types and offsets, and symbols, which it creates.
  Typed Infer(const NodeSpec& spec);

  void Erase(Node* node);                     // its results must have no uses
  void MoveBefore(Node* node, Node* before);  // null: to the end

  Node* first() const { return first_; }
  Node* last() const { return last_; }
  int64_t node_count() const { return node_count_; }
  // Gives each node its position; returns their count. Writes nothing where the numbers are right, so
  // that threads may read a numbered graph at the same time.
  int32_t NumberNodes();

  // Walking tolerates erasing the current node and inserting before or after it.
  class NodeIterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Node*;
    using difference_type = std::ptrdiff_t;
    using pointer = Node**;
    using reference = Node*;
    explicit NodeIterator(Node* node) : node_(node), next_(node ? node->next() : nullptr) {}
    Node* operator*() const { return node_; }
    NodeIterator& operator++() {
      node_ = next_;
      next_ = node_ ? node_->next() : nullptr;
      return *this;
    }
    bool operator==(const NodeIterator& other) const { return node_ == other.node_; }
    bool operator!=(const NodeIterator& other) const { return node_ != other.node_; }

   private:
    Node* node_;
    Node* next_;
  };
  struct NodeRange {
    Node* first;
    NodeIterator begin() const { return NodeIterator(first); }
    NodeIterator end() const { return NodeIterator(nullptr); }
  };
  NodeRange nodes() const { return {first_}; }

  std::unique_ptr<Graph> Clone() const;
  // A copy to be nested in `outer`: its symbols are the outer graph's, and its last inputs get the
  // types of the outer tensors that they stand for. For graphs whose inner values do not depend on
  // the extents of those (functions on single numbers).
  std::unique_ptr<Graph> CloneInto(const Graph& outer,
                                   std::span<const TensorType* const> last_inputs) const;
  // Changes whenever anything a pass could change changes: structure, types, arguments, metadata,
  // roles of inputs and outputs, guards. Independent of value names, and of the roles of modules,
  // which no pass changes: a step has the hash that it had before modules declared any.
  uint64_t Hash() const;

  // Null: there is none of that name.
  Value* FindValue(std::string_view name) const;
  Value* FindValue(Name name) const;
  // Makes room for that many values, for callers that know how many they will add.
  void ReserveNames(size_t count) { by_name_.Reserve(count); }

 private:
  friend class Node;
  void CopyInto(Graph& copy, std::span<const TensorType* const> last_inputs) const;
  Node* NewNode(const Operator* op, const Node::Counts& counts);
  void Destroy(Node* node);  // after Unlink
  void SetUse(Node* node, int32_t i, Value* value);
  Name FreshName(std::string_view base);
  void ClaimName(Value* value, Name name);
  void Link(Node* node, Node* before);
  void Unlink(Node* node);

  std::string name_;
  Arena arena_;  // of the nodes
  std::shared_ptr<ShapeEnv> shapes_;
  ModuleTable modules_;
  std::vector<std::unique_ptr<Input>> inputs_;
  std::vector<std::unique_ptr<Output>> outputs_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  int64_t node_count_ = 0;
  PointerMap<Value*> by_name_;  // keyed by Name::id, as the next
  PointerMap<int64_t> next_suffix_;
};

// The graphs held by a node's arguments (FlexAttention's score and mask functions). Every walker of
// a graph visits them.
template <typename Visit>
void ForEachNestedGraph(const Node& node, Visit&& visit) {
  for (const Argument& arg : node.args()) {
    if (const auto* nested = std::get_if<GraphRef>(&arg); nested && *nested) visit(**nested);
  }
}

// The graph that a fused node stands for (gt::fused), or null for any other node.
const Graph* FusedBody(const Node& node);

// Floating-point operations of the node: what its operator declares, else one for each element of its
// results, and none for views.
Dim FlopsOf(const Node& node);
// What a rule of its operator says.
Dim CostOf(const Node& node, CostRule rule);

// Of what the node computes: operator, types, arguments; not of which values it uses. The same for nodes
// that do the same work.
uint64_t HashOfCall(const Node& node);
// The same without arguments that are no tensors.
uint64_t HashOfTypes(const Node& node);

// Reruns the node's rule and returns what its result types should be. Questions go to the
// graph's ShapeEnv.
std::vector<TensorType> InferTypes(const Node& node);

std::string_view Spelling(InputRole role);
std::string_view Spelling(OutputRole role);

}  // namespace gt
