#include "gt/ir/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "gt/base/error.h"

namespace gt {

void Use::Set(Value* value) {
  if (value_ != nullptr) {
    *previous_ = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  value_ = value;
  next_ = nullptr;
  previous_ = nullptr;
  if (value == nullptr) return;
  next_ = value->uses_;
  if (next_ != nullptr) next_->previous_ = &next_;
  previous_ = &value->uses_;
  value->uses_ = this;
}

void Value::ReplaceAllUses(Value* with) {
  GT_CHECK(with != this, "%{} is replaced by itself", name());
  while (uses_ != nullptr) uses_->Set(with);
}

size_t Node::Counts::Bytes() const {
  static_assert(sizeof(Node) % alignof(Use) == 0 && alignof(Use) == alignof(Value) &&
                alignof(Use) == alignof(Argument) && alignof(Use) == alignof(Dim) &&
                alignof(Use) % alignof(SymbolId) == 0);
  auto array = [](int32_t count, size_t size) { return static_cast<size_t>(count) * size; };
  return sizeof(Node) + array(operands, sizeof(Use)) + array(results, sizeof(Value)) +
         array(args, sizeof(Argument)) + array(view_offsets, sizeof(Dim)) +
         array(bound_symbols, sizeof(SymbolId));
}

namespace {

// An array right after `end`, which then is its end.
template <typename T>
T* MakeArray(std::byte*& end, int32_t count) {
  T* const array = reinterpret_cast<T*>(end);
  end += static_cast<size_t>(count) * sizeof(T);
  std::uninitialized_value_construct_n(array, count);
  return array;
}

}  // namespace

Node::Node(const Counts& counts) : counts_(counts) {
  auto* end = reinterpret_cast<std::byte*>(this + 1);
  operands_ = MakeArray<Use>(end, counts.operands);
  results_ = MakeArray<Value>(end, counts.results);
  args_ = MakeArray<Argument>(end, counts.args);
  view_offsets_ = MakeArray<Dim>(end, counts.view_offsets);
  bound_symbols_ = MakeArray<SymbolId>(end, counts.bound_symbols);
}

Node::~Node() {
  std::destroy_n(operands_, counts_.operands);
  std::destroy_n(results_, counts_.results);
  std::destroy_n(args_, counts_.args);
  std::destroy_n(view_offsets_, counts_.view_offsets);
}

bool Node::has_uses() const {
  for (int32_t i = 0; i < counts_.results; ++i) {
    if (results_[i].has_uses()) return true;
  }
  return false;
}

Value* Node::TensorArg(int32_t i) const {
  const auto* ref = std::get_if<OperandRef>(&args_[i]);
  return ref == nullptr ? nullptr : operand(ref->index);
}

namespace {

uint64_t HashOf(const TensorType& type) {
  uint64_t hash = static_cast<uint64_t>(type.dtype) << 16 |
                  static_cast<uint64_t>(type.device.kind) << 8 | type.sizes.size();
  const auto add = [&hash](const Dim& dim) { hash = (hash ^ dim.Hash()) * 0x9fb21c651e98df25ull; };
  std::ranges::for_each(type.sizes, add);
  std::ranges::for_each(type.strides, add);
  return hash;
}

// The type, shared with values that lately had the same: a layer has some dozen types on some hundred
// values, and all layers the same ones. Most of a graph's memory would be copies of them.
std::shared_ptr<const TensorType> Shared(TensorType type) {
  thread_local std::array<std::shared_ptr<const TensorType>, 256> lately;
  std::shared_ptr<const TensorType>& found = lately[HashOf(type) >> 56];
  if (found == nullptr || *found != type) {
    found = std::make_shared<const TensorType>(std::move(type));
  }
  return found;
}

}  // namespace

Graph::Graph(std::string name) : name_(std::move(name)), shapes_(std::make_shared<ShapeEnv>()) {}

Graph::~Graph() {
  // Uses forget their values before any value goes: a graph that dies half-way through a change may not
  // be in order. Nobody will read the lists of uses again.
  for (const auto& output : outputs_) output->use.value_ = nullptr;
  for (Node* node = first_; node != nullptr; node = node->next_) {
    for (Use& use : std::span(node->operands_, static_cast<size_t>(node->counts_.operands))) {
      use.value_ = nullptr;
    }
  }
  for (Node* node = first_; node != nullptr;) Destroy(std::exchange(node, node->next_));
}

Value* Graph::AddInput(InputRole role, std::string name, TensorType type, std::string value_name) {
  auto input = std::make_unique<Input>();
  input->role = role;
  input->name = std::move(name);
  input->value.type_ = Shared(std::move(type));
  input->value.index_ = static_cast<int32_t>(inputs_.size());
  if (value_name.empty()) {
    // "layers.0.attention.wq.weight" reads better than "input_3", and stays the same when inputs
    // are added or removed.
    std::string base = input->name;
    for (char& c : base) {
      if (!isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '_';
    }
    ClaimName(&input->value, FreshName(base.empty() ? "input" : base));
  } else {
    ClaimName(&input->value, Name(value_name));
  }
  inputs_.push_back(std::move(input));
  return &inputs_.back()->value;
}

Output* Graph::AddOutput(OutputRole role, std::string name, Value* value) {
  auto output = std::make_unique<Output>();
  output->role = role;
  output->name = std::move(name);
  output->use.index_ = static_cast<int32_t>(outputs_.size());
  output->use.Set(value);
  outputs_.push_back(std::move(output));
  return outputs_.back().get();
}

void Graph::RemoveInput(int32_t index) {
  GT_CHECK(!inputs_[index]->value.has_uses(), "input '{}' is still used", inputs_[index]->name);
  by_name_.Erase(inputs_[index]->value.name_.id());
  inputs_.erase(inputs_.begin() + index);
  for (size_t i = static_cast<size_t>(index); i < inputs_.size(); ++i) {
    inputs_[i]->value.index_ = static_cast<int32_t>(i);
  }
}

Name Graph::FreshName(std::string_view base) {
  const Name plain(base);
  int64_t& suffix = *next_suffix_.Insert(plain.id(), 0).first;
  if (suffix == 0 && !by_name_.contains(plain.id())) {
    suffix = 1;
    return plain;
  }
  std::string text(base);
  text += '_';
  const size_t stem = text.size();
  while (true) {
    text.resize(stem);
    const fmt::format_int number(++suffix);
    text.append(number.data(), number.size());
    const Name candidate(text);
    if (!by_name_.contains(candidate.id())) return candidate;
  }
}

void Graph::ClaimName(Value* value, Name name) {
  value->name_ = name;
  if (!by_name_.Insert(name.id(), value).second) {
    Fail(ErrorCode::kDuplicateValue, "two values of graph @{} are called %{}", name_, name.str());
  }
}

Value* Graph::FindValue(std::string_view name) const {
  const std::optional<Name> known = Name::Find(name);
  return known ? FindValue(*known) : nullptr;
}

Value* Graph::FindValue(Name name) const {
  Value* const* found = by_name_.Find(name.id());
  return found == nullptr ? nullptr : *found;
}

namespace {

// "aten::_scaled_dot_product_flash_attention_for_cpu.default" names its results
// "_scaled_dot_product_...".
std::string_view BaseName(const Operator& op) {
  std::string_view name = op.name.str();
  if (size_t colons = name.find("::"); colons != std::string_view::npos)
    name.remove_prefix(colons + 2);
  return name.substr(0, name.find('.'));
}

std::vector<const TensorType*> TypesOf(std::span<Value* const> values) {
  std::vector<const TensorType*> types;
  types.reserve(values.size());
  for (const Value* value : values) types.push_back(&value->type());
  return types;
}

}  // namespace

Node* Graph::Insert(NodeSpec spec, Node* before) {
  Typed typed = Infer(spec);
  return InsertTyped(std::move(spec), std::move(typed), before);
}

Graph::Typed Graph::Infer(const NodeSpec& spec) {
  std::vector<const TensorType*> types = TypesOf(spec.operands);
  shapes_->SetAsker(spec.meta.module, spec.op->name);
  RuleContext context(*spec.op, spec.args, types, *shapes_);
  spec.op->rule(context);
  Typed typed;
  typed.results = std::move(context.results());
  if (spec.op->is_view()) typed.view_offsets = std::move(context.offsets());
  for (int i = 0; i < context.bound_symbols(); ++i) {
    typed.bound_symbols.push_back(shapes_->AddDataSymbol(/*hint=*/2));
  }
  return typed;
}

Node* Graph::NewNode(const Operator* op, const Node::Counts& counts) {
  Node* node = new (arena_.Allocate(counts.Bytes())) Node(counts);
  node->op_ = op;
  node->graph_ = this;
  for (int32_t i = 0; i < counts.results; ++i) {
    node->results_[i].producer_ = node;
    node->results_[i].index_ = i;
  }
  return node;
}

void Graph::Destroy(Node* node) {
  const size_t bytes = node->counts_.Bytes();
  node->~Node();
  arena_.Free(node, bytes);
}

void Graph::SetUse(Node* node, int32_t i, Value* value) {
  Use& use = node->operands_[i];
  use.node_ = node;
  use.index_ = i;
  use.Set(value);
}

Node* Graph::InsertTyped(NodeSpec spec, Typed typed, Node* before) {
  auto count = [](const auto& list) { return static_cast<int32_t>(list.size()); };
  Node* node = NewNode(spec.op, {.operands = count(spec.operands),
                                 .results = count(typed.results),
                                 .args = count(spec.args),
                                 .view_offsets = count(typed.view_offsets),
                                 .bound_symbols = count(typed.bound_symbols)});
  int32_t named = 0;
  try {
    for (Value& value : std::span(node->results_, typed.results.size())) {
      const auto at = static_cast<size_t>(value.index_);
      value.type_ = Shared(std::move(typed.results[at]));
      const bool given = at < typed.result_names.size();
      ClaimName(&value, given ? Name(typed.result_names[at])
                              : FreshName(spec.name.empty() ? BaseName(*spec.op) : spec.name));
      ++named;
    }
  } catch (...) {  // a name that is taken
    for (int32_t i = 0; i < named; ++i) by_name_.Erase(node->results_[i].name_.id());
    Destroy(node);
    throw;
  }
  for (int32_t i = 0; i < node->counts_.operands; ++i) {
    SetUse(node, i, spec.operands[static_cast<size_t>(i)]);
  }
  std::move(spec.args.begin(), spec.args.end(), node->args_);
  std::move(typed.view_offsets.begin(), typed.view_offsets.end(), node->view_offsets_);
  std::copy(typed.bound_symbols.begin(), typed.bound_symbols.end(), node->bound_symbols_);
  node->meta_ = std::move(spec.meta);
  Link(node, before);
  return node;
}

void Graph::Link(Node* node, Node* before) {
  node->next_ = before;
  node->previous_ = before == nullptr ? last_ : before->previous_;
  (node->previous_ == nullptr ? first_ : node->previous_->next_) = node;
  (before == nullptr ? last_ : before->previous_) = node;
  ++node_count_;
}

void Graph::Unlink(Node* node) {
  (node->previous_ == nullptr ? first_ : node->previous_->next_) = node->next_;
  (node->next_ == nullptr ? last_ : node->next_->previous_) = node->previous_;
  --node_count_;
}

void Graph::Erase(Node* node) {
  for (int32_t i = 0; i < node->counts_.results; ++i) {
    GT_CHECK(!node->results_[i].has_uses(), "%{} is erased while used", node->results_[i].name());
    by_name_.Erase(node->results_[i].name_.id());
  }
  Unlink(node);
  Destroy(node);
}

void Graph::MoveBefore(Node* node, Node* before) {
  if (node == before) return;
  Unlink(node);
  Link(node, before);
}

int32_t Graph::NumberNodes() {
  int32_t number = 0;
  for (Node* node = first_; node != nullptr; node = node->next_, ++number) {
    if (node->number_ != number) node->number_ = number;
  }
  return number;
}

std::unique_ptr<Graph> Graph::Clone() const {
  auto copy = std::make_unique<Graph>(name_);
  *copy->shapes_ = *shapes_;
  copy->modules_ = modules_;
  CopyInto(*copy, {});
  return copy;
}

std::unique_ptr<Graph> Graph::CloneInto(const Graph& outer,
                                        std::span<const TensorType* const> last_inputs) const {
  auto copy = std::make_unique<Graph>(name_);
  copy->ShareShapes(outer);
  CopyInto(*copy, last_inputs);
  return copy;
}

void Graph::CopyInto(Graph& copy, std::span<const TensorType* const> last_inputs) const {
  copy.next_suffix_ = next_suffix_;
  copy.by_name_.Reserve(by_name_.size());
  GT_CHECK(last_inputs.size() <= inputs_.size(), "graph @{} has {} inputs, {} types were given",
           name_, inputs_.size(), last_inputs.size());
  const size_t kept = inputs_.size() - last_inputs.size();
  copy.inputs_.reserve(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Value& value = inputs_[i]->value;
    auto image = std::make_unique<Input>();
    image->role = inputs_[i]->role;
    image->name = inputs_[i]->name;
    image->placement = inputs_[i]->placement;
    image->value.index_ = value.index_;
    image->value.type_ =
        i < kept ? value.type_ : std::make_shared<const TensorType>(*last_inputs[i - kept]);
    copy.ClaimName(&image->value, value.name_);
    copy.inputs_.push_back(std::move(image));
  }
  PointerMap<Node*> images;
  images.Reserve(static_cast<size_t>(node_count_));
  auto image_of = [&](const Value* value) -> Value* {
    const auto at = static_cast<size_t>(value->index_);
    if (value->producer_ == nullptr) {
      GT_CHECK(at < inputs_.size() && &inputs_[at]->value == value,
               "graph @{} uses %{}, which is no input of it", name_, value->name());
      return &copy.inputs_[at]->value;
    }
    Node* const* image = images.Find(value->producer_);
    GT_CHECK(image != nullptr, "graph @{} uses %{} before it is defined", name_, value->name());
    return &(*image)->results_[at];
  };
  for (const Node* node = first_; node != nullptr; node = node->next_) {
    Node* image = copy.NewNode(node->op_, node->counts_);
    images.Insert(node, image);
    for (int32_t i = 0; i < node->counts_.results; ++i) {
      image->results_[i].type_ = node->results_[i].type_;
      copy.ClaimName(&image->results_[i], node->results_[i].name_);
    }
    copy.Link(image, nullptr);
    for (int32_t i = 0; i < node->counts_.operands; ++i) {
      copy.SetUse(image, i, image_of(node->operand(i)));
    }
    std::copy_n(node->args_, node->counts_.args, image->args_);
    for (Argument& arg : std::span(image->args_, node->args().size())) {
      auto* nested = std::get_if<GraphRef>(&arg);
      if (nested == nullptr || *nested == nullptr) continue;
      *nested = (*nested)->CloneInto(copy, {});  // all levels share the outermost symbols
    }
    std::copy_n(node->view_offsets_, node->counts_.view_offsets, image->view_offsets_);
    std::copy_n(node->bound_symbols_, node->counts_.bound_symbols, image->bound_symbols_);
    image->meta_ = node->meta_;
  }
  copy.outputs_.reserve(outputs_.size());
  for (const auto& output : outputs_) {
    copy.AddOutput(output->role, output->name, image_of(output->value()));
  }
}

namespace {

// Order matters; good mixing matters more than speed, but a node must hash in well under a
// microsecond.
class Hasher {
 public:
  void Add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9fb21c651e98df25ull;
    state_ ^= state_ >> 32;
  }
  void Add(std::string_view text) {
    Add(text.size());
    while (text.size() >= 8) {
      uint64_t word;
      std::memcpy(&word, text.data(), 8);
      Add(word);
      text.remove_prefix(8);
    }
    uint64_t word = 0;
    std::memcpy(&word, text.data(), text.size());
    Add(word);
  }
  // A name's characters, not its address: hashes are compared across processes.
  void Add(Name name) { Add(std::string_view(name.str())); }
  void Add(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    Add(bits);
  }
  void Add(const Dim& dim) { Add(dim.Hash()); }
  void Add(const Shape& shape) {
    Add(shape.size());
    for (const Dim& dim : shape) Add(dim);
  }
  void Add(Device device) {
    Add((static_cast<uint64_t>(device.kind) << 8) | static_cast<uint8_t>(device.index));
  }
  void Add(const TensorType& type) {
    Add(static_cast<uint64_t>(type.dtype));
    Add(type.device);
    Add(type.sizes);
    Add(type.strides);
  }
  void Add(const Meta& meta) {
    Add(meta.module);
    Add(meta.source);
    Add(static_cast<uint64_t>(meta.sequence));
    Add(static_cast<uint64_t>(meta.phase) | static_cast<uint64_t>(meta.ep_role) << 8 |
        static_cast<uint64_t>(meta.exchange) << 16 | static_cast<uint64_t>(meta.recompute) << 24);
    Add(meta.fsdp_bucket);
    if (!meta.placement.empty()) Add(meta.placement);
    if (meta.chunk == nullptr) return;
    Add(static_cast<uint64_t>(static_cast<uint32_t>(meta.chunk->id)));
    Add(meta.chunk->region);
    Add(static_cast<uint64_t>(meta.chunk->role) | static_cast<uint64_t>(meta.chunk->producer) << 8 |
        static_cast<uint64_t>(meta.chunk->backward) << 16 |
        static_cast<uint64_t>(meta.chunk->proof) << 24);
    Add(meta.chunk->original);
  }
  void Add(const Argument& argument) {
    Add(argument.index());
    std::visit(
        [this](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, std::monostate>) {
          } else if constexpr (std::is_same_v<T, OperandRef>) {
            Add(static_cast<uint64_t>(value.index));
          } else if constexpr (std::is_same_v<T, OperandList>) {
            Add(value.indices.size());
            for (int32_t index : value.indices) Add(static_cast<uint64_t>(index));
          } else if constexpr (std::is_same_v<T, std::string>) {
            Add(std::string_view(value));
          } else if constexpr (std::is_same_v<T, std::vector<double>>) {
            Add(value.size());
            for (double element : value) Add(element);
          } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
            Add(value.size());
            for (bool element : value) Add(static_cast<uint64_t>(element));
          } else if constexpr (std::is_same_v<T, GraphRef>) {
            Add(value ? value->Hash() : 0);
          } else if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
            Add(static_cast<uint64_t>(value));
          } else {
            Add(value);
          }
        },
        argument);
  }
  uint64_t state() const { return state_; }

 private:
  uint64_t state_ = 0x2545f4914f6cdd1dull;
};

Hasher HasherOfTypes(const Node& node) {
  Hasher hash;
  hash.Add(node.op().name);
  for (int32_t i = 0; i < node.operand_count(); ++i) hash.Add(node.operand(i)->type());
  for (int32_t i = 0; i < node.result_count(); ++i) hash.Add(node.result(i)->type());
  return hash;
}

}  // namespace

uint64_t HashOfCall(const Node& node) {
  Hasher hash = HasherOfTypes(node);
  for (const Argument& argument : node.args()) hash.Add(argument);
  return hash.state();
}

uint64_t HashOfTypes(const Node& node) { return HasherOfTypes(node).state(); }

uint64_t Graph::Hash() const {
  Hasher hash;
  hash.Add(std::string_view(name_));
  for (const Symbol& symbol : shapes_->symbols()) {
    hash.Add(std::string_view(symbol.name));
    hash.Add(static_cast<uint64_t>(symbol.kind));
    hash.Add(static_cast<uint64_t>(symbol.hint));
    hash.Add(static_cast<uint64_t>(symbol.low));
    hash.Add(static_cast<uint64_t>(symbol.high));
  }
  for (const auto& [left, right] : shapes_->facts()) {
    hash.Add(left);
    hash.Add(right);
  }
  for (const Guard& guard : shapes_->guards()) {
    hash.Add(guard.predicate.expression);
    hash.Add(static_cast<uint64_t>(guard.predicate.kind) * 2 + guard.predicate.holds);
    hash.Add(guard.module);
    hash.Add(guard.op);
  }
  // Values are numbered in order of definition: inputs first, then results. The numbers of nodes are
  // scratch space, no part of what the graph says.
  const_cast<Graph*>(this)->NumberNodes();
  std::vector<uint64_t> first_number;  // by number of the node
  first_number.reserve(static_cast<size_t>(node_count_));
  auto number_of = [&](const Value* value) {
    uint64_t base = 0;
    if (const Node* producer = value->producer()) {
      auto number = static_cast<size_t>(producer->number_);
      // A broken graph, which may use a value before it is defined, has a hash too.
      base = number < first_number.size() ? first_number[number] : ~uint64_t{0};
    }
    return base + static_cast<uint64_t>(value->index());
  };
  hash.Add(inputs_.size());
  for (const auto& input : inputs_) {
    hash.Add(static_cast<uint64_t>(input->role));
    hash.Add(std::string_view(input->name));
    hash.Add(input->value.type());
  }
  uint64_t next = inputs_.size();
  for (const Node* node = first_; node != nullptr; node = node->next_) {
    first_number.push_back(next);
    next += static_cast<uint64_t>(node->counts_.results);
    hash.Add(node->op_->name);
    for (int32_t i = 0; i < node->counts_.operands; ++i) hash.Add(number_of(node->operand(i)));
    for (const Argument& argument : node->args()) hash.Add(argument);
    for (int32_t i = 0; i < node->counts_.results; ++i) hash.Add(node->results_[i].type());
    for (SymbolId id : node->bound_symbols()) hash.Add(static_cast<uint64_t>(id));
    for (const Dim& offset : node->view_offsets()) hash.Add(offset);
    hash.Add(node->meta_);
  }
  for (const auto& output : outputs_) {
    hash.Add(static_cast<uint64_t>(output->role));
    hash.Add(std::string_view(output->name));
    hash.Add(number_of(output->value()));
  }
  return hash.state();
}

const Graph* FusedBody(const Node& node) {
  if (node.op().work != Work::kFused) return nullptr;
  const auto* body = std::get_if<GraphRef>(&node.arg(node.op().schema.Find("body")));
  return body == nullptr ? nullptr : body->get();
}

Dim CostOf(const Node& node, CostRule rule) {
  std::vector<const TensorType*> operands, results;
  for (int32_t i = 0; i < node.operand_count(); ++i) operands.push_back(&node.operand(i)->type());
  for (int32_t i = 0; i < node.result_count(); ++i) results.push_back(&node.result(i)->type());
  return rule(CostContext{node.args(), operands, results});
}

Dim FlopsOf(const Node& node) {
  const Operator& op = node.op();
  if (op.flops != nullptr) return CostOf(node, op.flops);
  Dim elements(0);
  if (op.is_view()) return elements;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    if (node.result(i)->type().defined()) elements += node.result(i)->type().numel();
  }
  return elements;
}

std::vector<TensorType> InferTypes(const Node& node) {
  std::vector<const TensorType*> types;
  types.reserve(static_cast<size_t>(node.operand_count()));
  for (int32_t i = 0; i < node.operand_count(); ++i) types.push_back(&node.operand(i)->type());
  ShapeEnv& shapes = node.graph().shapes();
  shapes.SetAsker(node.meta().module, node.op().name);
  RuleContext context(node.op(), node.args(), types, shapes);
  node.op().rule(context);
  return std::move(context.results());
}

namespace {

constexpr std::array<std::string_view, 4> kInputRoles = {"param", "buffer", "input", "constant"};
constexpr std::array<std::string_view, 5> kOutputRoles = {"loss", "gradient", "update", "saved",
                                                          "result"};

}  // namespace

std::string_view Spelling(InputRole role) { return kInputRoles[static_cast<size_t>(role)]; }

std::string_view Spelling(OutputRole role) { return kOutputRoles[static_cast<size_t>(role)]; }

}  // namespace gt
