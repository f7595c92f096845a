#include "gt/passes/cleanup/canonicalize.h"

#include <array>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/nested.h"
#include "gt/base/error.h"
#include "gt/ir/builder.h"

namespace gt {
namespace {

// Whether it changes sizes, strides and offset and nothing else. Views that carry more are left out
// on purpose: their types may be those of what they look at, but not their values or their offsets.
bool IsGeometry(ViewKind kind) {
  return kind == ViewKind::kReshape || kind == ViewKind::kSameOrder || kind == ViewKind::kGeometry;
}
bool KeepsOrder(ViewKind kind) {
  return kind == ViewKind::kReshape || kind == ViewKind::kSameOrder;
}

// Chains longer than this do not occur, and a bound keeps the pass linear.
constexpr int kLongestChain = 8;

bool SameChunk(const Node& a, const Node& b) {
  const ChunkMeta* left = a.meta().chunk.get();
  const ChunkMeta* right = b.meta().chunk.get();
  if (left == nullptr || right == nullptr) return left == right;
  return left->id == right->id && left->region == right->region &&
         left->backward == right->backward;
}

// Where chunks begin and end is marked on nodes; schedulers find the chunks by these marks, so such
// nodes are neither removed nor looked through.
bool MarksChunk(const Node& node) {
  return node.meta().chunk != nullptr && node.meta().chunk->role != ChunkRole::kNone &&
         node.meta().chunk->role != ChunkRole::kBody;
}

// What the memory policy said about a node would be lost with it, unless it said the same about
// what takes its place.
bool TagIsKeptBy(const Node& node, const Value& replacement) {
  if (node.meta().recompute == Recompute::kNone) return true;
  const Node* producer = replacement.producer();
  return producer != nullptr && producer->meta().recompute == node.meta().recompute;
}

// A geometric view's source, and where the view begins in it; nothing for what is no such view. A
// reshape that copies looks like one that does not: only view operators say where they begin.
struct Source {
  Value* value;
  Dim offset;
};
std::optional<Source> SourceOf(const Value& value) {
  const Node* node = value.producer();
  if (node == nullptr) return std::nullopt;
  const ViewKind kind = node->op().view;
  if (!IsGeometry(kind) || node->op().aliasing != Aliasing::kAlways) return std::nullopt;
  Value* viewed = ViewedValue(value);
  if (viewed == nullptr) return std::nullopt;
  // _unsafe_view is no view by its schema, so that it has no offsets; it never moves.
  bool has_offset = static_cast<size_t>(value.index()) < node->view_offsets().size();
  if (!has_offset && kind != ViewKind::kReshape) return std::nullopt;
  return Source{viewed, has_offset ? node->view_offsets()[value.index()] : Dim(0)};
}

struct Origin {
  Value* value;
  int steps;  // views between
};

// An earlier value that is the same tensor: same memory, beginning, dtype, sizes and strides.
std::optional<Origin> SameTensorEarlier(const Value& value) {
  const Node& node = *value.producer();
  Dim offset = 0;
  const Value* at = &value;
  for (int steps = 1; steps <= kLongestChain; ++steps) {
    std::optional<Source> source = SourceOf(*at);
    if (!source || !SameChunk(*at->producer(), node) || MarksChunk(*at->producer())) break;
    offset += source->offset;
    at = source->value;
    if (offset.Is(0) && at->type() == value.type()) return Origin{source->value, steps};
  }
  return std::nullopt;
}

// Views cost little, but a view left without uses is work for every later pass.
void EraseUnusedViews(Graph& graph, Value* value) {
  while (!value->has_uses()) {
    std::optional<Source> source = SourceOf(*value);
    if (!source || value->producer()->has_uses() || MarksChunk(*value->producer())) return;
    graph.Erase(value->producer());
    value = source->value;
  }
}

const Operator* ViewOperator() {
  static const Operator* view = FindOperator("aten::view");
  return view;
}

// Whether aten::view of `base` with these sizes exists and is exactly `wanted`. Only what the
// graph's guards already say may be used: a rewrite is not worth another condition on every later
// run.
bool IsViewOf(Graph& graph, const Node& asker, const TensorType& base, const Shape& sizes,
              const TensorType& wanted) {
  ShapeEnv& shapes = graph.shapes();
  ShapeEnvModeScope check(shapes, ShapeEnv::Mode::kCheck);
  shapes.SetAsker(asker.meta().module, ViewOperator()->name);
  std::array<Argument, 2> args = {OperandRef{0}, sizes};
  std::array<const TensorType*, 1> operands = {&base};
  RuleContext context(*ViewOperator(), args, operands, shapes);
  try {
    ViewOperator()->rule(context);
  } catch (const Error&) {
    return false;
  }
  return context.results().size() == 1 && context.results()[0] == wanted;
}

// The furthest value up the chain whose elements are in the same row-major order.
Value* FlattenedSource(Node& node) {
  Value* value = node.operand(0);
  for (int steps = 0; steps < kLongestChain; ++steps) {
    std::optional<Source> source = SourceOf(*value);
    if (!source || !source->offset.Is(0) || !KeepsOrder(value->producer()->op().view)) break;
    if (!SameChunk(*value->producer(), node) || MarksChunk(*value->producer())) break;
    value = source->value;
  }
  return value;
}

void ReplaceByView(Graph& graph, Node& node, Value* base, const Shape& sizes) {
  NodeBuilder view_of_base(graph, *ViewOperator());
  view_of_base.Set("self", base).Set("size", sizes).With(node.meta());
  Graph::Typed typed = TypedOf(node);
  typed.view_offsets = {Dim(0)};
  Node* view = graph.InsertTyped(view_of_base.Spec(), std::move(typed), &node);
  node.result()->ReplaceAllUses(view->result());
  graph.Erase(&node);
}

// Drops copies. A copy of a value that nothing mutates has the same bits as the value; what remains
// to be asked is who owns the memory.
class CopyRemover {
 public:
  explicit CopyRemover(const Graph& graph) : graph_(graph) {}

  static bool ChangesNothing(const Node& node) {
    const Value* original = node.TensorArg(0);
    if (original == nullptr || original->type() != node.result()->type()) return false;
    int pinned = node.op().schema.Find("pin_memory");
    const bool* pin = pinned < 0 ? nullptr : std::get_if<bool>(&node.arg(pinned));
    return pin == nullptr || !*pin;
  }

  bool MayRemove(const Node& node) {
    const Value& original = *node.TensorArg(0);
    const Value* storage = CopiedStorage(original);
    // The caller may overwrite its inputs, and their memory may be aligned otherwise than fresh
    // memory, which can make kernels round differently.
    if (storage == nullptr || storage->is_input()) return false;
    // A copy of a part begins at its own, aligned memory and does not keep the rest alive.
    if (storage->type().numel() != original.type().numel()) return false;
    if (!escaping_) escaping_.emplace(graph_);
    return !(escaping_->Contains(*node.result()) && escaping_->Contains(*storage));
  }

  void Remove(Node& node) {
    Value* original = node.TensorArg(0);
    escaping_->Merge(*node.result(), *CopiedStorage(*original));
    node.result()->ReplaceAllUses(original);
  }

 private:
  // What was allocated to hold the value. Null where the views between do more than geometry: a
  // copy of a lazily conjugated tensor is how it becomes a plain one. Also null where they are more
  // than any real chain has.
  static const Value* CopiedStorage(const Value& value) {
    const Value* storage = &value;
    for (int steps = 0; steps < kLongestChain; ++steps) {
      const Value* viewed = ViewedValue(*storage);
      if (viewed == nullptr) return storage;
      const Operator& op = storage->producer()->op();
      if (!IsGeometry(op.view) && op.collective != Collective::kWait) return nullptr;
      storage = viewed;
    }
    return nullptr;
  }

  const Graph& graph_;
  std::optional<EscapingStorage> escaping_;  // most graphs have no copy to ask about
};

}  // namespace

Canonicalize::Canonicalize(CanonicalizeOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& Canonicalize::info() const {
  static constexpr PassInfo kInfo = {
      .name = "canonicalize",
      .summary = "Gives equal computations one form, so that later passes see fewer of them.",
      .description =
          "Removes views that change nothing (detach, alias, and any view, expand, slice, permute, "
          "transpose, squeeze whose result has the sizes, strides and offset it started from) and "
          "chains that come back to where they began (t(t(x)), transpose pairs). A view of a view "
          "becomes one view, with its sizes spelled out instead of -1; _unsafe_view and reshape "
          "become "
          "view where the guards of the graph already prove it. A clone or _to_copy that changes "
          "nothing is removed if the original was allocated in the graph, is copied whole, and no "
          "output comes to share memory with another.",
      .reads = "types, view offsets, guards, output aliasing, chunk and recompute metadata.",
      .writes = "views and copies; uses of the removed ones.",
      .never =
          "adds guards, changes the type of any value, removes or looks through nodes that mark "
          "the "
          "edge of a chunk, drops a memory policy's tag, copies of inputs or copies of parts of a "
          "tensor.",
  };
  return kInfo;
}

bool Canonicalize::RunImpl(Graph& graph, PassContext& /*context*/) {
  bool changed = RewriteNestedGraphs(graph, [this](Graph& nested) { return Run(nested); });
  return RunOn(graph) || changed;
}

bool Canonicalize::RunOn(Graph& graph) {
  bool changed = false;
  CopyRemover copies(graph);
  for (Node* node : graph.nodes()) {
    const Operator& op = node->op();
    const bool is_copy = op.work == Work::kClone;
    if (!is_copy && !IsGeometry(op.view)) continue;
    if (node->result_count() != 1 || MarksChunk(*node)) continue;
    if (is_copy) {
      if (!options_.remove_copies || !CopyRemover::ChangesNothing(*node)) continue;
      if (!TagIsKeptBy(*node, *node->TensorArg(0)) || !copies.MayRemove(*node)) {
        ++copies_kept_;
        continue;
      }
      copies.Remove(*node);
      graph.Erase(node);
      ++copies_;
      changed = true;
    } else if (DropIdentityView(*node) ||
               (op.view == ViewKind::kReshape && NormalizeReshape(*node))) {
      changed = true;
    }
  }
  return changed;
}

bool Canonicalize::DropIdentityView(Node& node) {
  std::optional<Origin> origin = SameTensorEarlier(*node.result());
  if (!origin || !TagIsKeptBy(node, *origin->value)) return false;
  ++(origin->steps == 1 ? identities_ : pairs_);
  Graph& graph = node.graph();
  Value* source = node.operand(0);
  node.result()->ReplaceAllUses(origin->value);
  graph.Erase(&node);
  if (origin->steps > 1) EraseUnusedViews(graph, source);
  return true;
}

bool Canonicalize::NormalizeReshape(Node& node) {
  Graph& graph = node.graph();
  const TensorType& type = node.result()->type();
  const Shape* spelled = std::get_if<Shape>(&node.arg(1));
  bool is_view = &node.op() == ViewOperator();
  bool is_spelled = spelled != nullptr && *spelled == type.sizes;

  Value* base = FlattenedSource(node);
  if (base == node.operand(0) && is_view && is_spelled) return false;
  if (!IsViewOf(graph, node, base->type(), type.sizes, type)) {
    base = node.operand(0);
    if ((is_view && is_spelled) || !IsViewOf(graph, node, base->type(), type.sizes, type))
      return false;
  }

  Value* skipped = node.operand(0);
  if (base->type() == type && TagIsKeptBy(node, *base)) {
    // A reshape that has just been proved to be a view, and one that changes nothing.
    ++identities_;
    node.result()->ReplaceAllUses(base);
    graph.Erase(&node);
  } else if (is_view) {
    if (base != skipped) ++shortened_;
    if (!is_spelled) ++respelled_;
    node.SetOperand(0, base);
    node.SetArg(1, type.sizes);
  } else {
    ++renamed_;
    if (base != skipped) ++shortened_;
    ReplaceByView(graph, node, base, type.sizes);
  }
  if (base != skipped) EraseUnusedViews(graph, skipped);
  return true;
}

}  // namespace gt
