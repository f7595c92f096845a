#include "gt/passes/cleanup/common_subexpression_elimination.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <vector>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/nested.h"

namespace gt {
namespace {

uint64_t Mix(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9fb21c651e98df25ull;
  return state ^ (state >> 32);
}

uint64_t HashOf(const Argument& argument) {
  uint64_t hash = argument.index();
  // The kinds that tell nodes apart most often; the others are left to the comparison.
  if (const auto* dim = std::get_if<Dim>(&argument)) return Mix(hash, dim->Hash());
  if (const auto* number = std::get_if<double>(&argument)) {
    return Mix(hash, std::bit_cast<uint64_t>(*number));
  }
  if (const auto* dims = std::get_if<Shape>(&argument)) {
    for (const Dim& dim : *dims) hash = Mix(hash, dim.Hash());
  }
  if (const auto* dtype = std::get_if<DType>(&argument)) {
    hash = Mix(hash, static_cast<uint64_t>(*dtype));
  }
  return hash;
}

// Where equal nodes must agree to become one.
struct Sharing {
  bool within_phase = false;
  bool within_module = false;
  bool within_chunk = true;
};

// Of what is computed and where it belongs, so that equal nodes that may not be merged do not pile
// up under one hash.
uint64_t HashOf(const Node& node, const Sharing& sharing) {
  const Meta& meta = node.meta();
  uint64_t place = static_cast<uint64_t>(meta.ep_role) | static_cast<uint64_t>(meta.recompute) << 8;
  if (sharing.within_phase) place |= static_cast<uint64_t>(meta.phase) << 16 | 1ull << 24;
  if (sharing.within_chunk && meta.chunk != nullptr) {
    place |= static_cast<uint64_t>(meta.chunk->id) << 32;
  }
  uint64_t hash = Mix(Mix(0x2545f4914f6cdd1dull, std::bit_cast<uint64_t>(&node.op())), place);
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    hash = Mix(hash, std::bit_cast<uint64_t>(node.operand(i)));
  }
  for (const Argument& argument : node.args()) hash = Mix(hash, HashOf(argument));
  return hash;
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// 0.0 and -0.0 compare equal and are different arguments.
bool SameArgument(const Argument& a, const Argument& b) {
  const auto* x = std::get_if<double>(&a);
  const auto* y = std::get_if<double>(&b);
  if (x != nullptr && y != nullptr) return SameBits(*x, *y);
  const auto* xs = std::get_if<std::vector<double>>(&a);
  const auto* ys = std::get_if<std::vector<double>>(&b);
  if (xs != nullptr && ys != nullptr) {
    return std::equal(xs->begin(), xs->end(), ys->begin(), ys->end(), SameBits);
  }
  return a == b;
}

bool ComputesTheSame(const Node& a, const Node& b) {
  if (&a.op() != &b.op() || a.operand_count() != b.operand_count() ||
      a.result_count() != b.result_count()) {
    return false;
  }
  for (int32_t i = 0; i < a.operand_count(); ++i) {
    if (a.operand(i) != b.operand(i)) return false;
  }
  for (int32_t i = 0; i < a.result_count(); ++i) {
    if (a.result(i)->type() != b.result(i)->type()) return false;
  }
  return std::equal(a.args().begin(), a.args().end(), b.args().begin(), b.args().end(),
                    SameArgument);
}

// Nodes that mark where a chunk begins or ends stay one per place.
bool MarksBoundary(const ChunkMeta* chunk) {
  return chunk != nullptr && chunk->role > ChunkRole::kNone && chunk->role != ChunkRole::kBody;
}

bool SameChunk(const ChunkMeta* a, const ChunkMeta* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->id == b->id && a->region == b->region && a->role == b->role &&
         a->backward == b->backward;
}

// Equal in everything that decides where a later pass puts a node.
bool SamePlace(const Meta& a, const Meta& b, const Sharing& sharing) {
  if (sharing.within_phase && a.phase != b.phase) return false;
  if (sharing.within_module && a.module != b.module) return false;
  if (MarksBoundary(a.chunk.get()) || MarksBoundary(b.chunk.get())) return false;
  return a.ep_role == b.ep_role && a.exchange == b.exchange && a.recompute == b.recompute &&
         a.fsdp_bucket == b.fsdp_bucket &&
         (!sharing.within_chunk || SameChunk(a.chunk.get(), b.chunk.get()));
}

// Which nodes compute with parameters alone, in any phase. Nodes are shown in the order of the graph.
class OfParameters {
 public:
  explicit OfParameters(Graph& graph)
      : graph_(graph), facts_(static_cast<size_t>(graph.NumberNodes())) {}

  bool Look(const Node& node) {
    bool all = node.operand_count() > 0 && !node.op().random;
    for (int32_t i = 0; i < node.operand_count() && all; ++i) all = Holds(*node.operand(i));
    facts_[static_cast<size_t>(node.number())] = all;
    return all;
  }

 private:
  bool Holds(const Value& value) const {
    if (!value.is_input()) return facts_[static_cast<size_t>(value.producer()->number())];
    return graph_.inputs()[static_cast<size_t>(value.index())]->role == InputRole::kParameter;
  }

  const Graph& graph_;
  std::vector<bool> facts_;  // by number
};

// Two results that are both returned must not become one, unless they are views and share their
// memory anyway.
bool WouldShareOutputs(const Node& a, const Node& b, const EscapingStorage& escaping) {
  if (a.op().aliasing == Aliasing::kAlways) return false;
  for (int32_t i = 0; i < a.result_count(); ++i) {
    if (escaping.Contains(*a.result(i)) && escaping.Contains(*b.result(i))) return true;
  }
  return false;
}

// Whether the results depend on no data, only on arguments and on the types of operands (zeros,
// new_zeros, zeros_like, and zero and fill, which functionalization makes of zero_ and fill_).
bool MakesFromNothing(const Operator& op) {
  const auto is_tensor = [](const ArgSpec& arg) {
    return arg.kind == ArgKind::kTensor || arg.kind == ArgKind::kTensorList;
  };
  const std::vector<ArgSpec>& args = op.schema.args;
  const bool takes_type_alone = op.work == Work::kFill || op.work == Work::kAllocate;
  return std::none_of(args.begin() + (takes_type_alone ? 1 : 0), args.end(), is_tensor);
}

void Replace(Graph& graph, Node* node, Node* by, EscapingStorage& escaping) {
  // What several chunks use belongs to none of them.
  if (!SameChunk(node->meta().chunk.get(), by->meta().chunk.get())) by->meta().chunk = nullptr;
  for (int32_t i = 0; i < node->result_count(); ++i) {
    escaping.Merge(*node->result(i), *by->result(i));
    if (node->result(i)->has_uses()) node->result(i)->ReplaceAllUses(by->result(i));
  }
  graph.Erase(node);
}

}  // namespace

CommonSubexpressionElimination::CommonSubexpressionElimination(
    CommonSubexpressionEliminationOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& CommonSubexpressionElimination::info() const {
  static constexpr PassInfo kInfo = {
      .name = "cse",
      .summary = "Replaces a node by an earlier one that computes the same bits.",
      .description =
          "Same operator, operands, arguments (floating-point ones by bits) and result types. One "
          "forward walk over a hash table. Sharing a value makes it live longer, so that nodes of "
          "different phases are only merged if they are views, and large tensors made from nothing "
          "are not. What is made of parameters alone is the same in every chunk of a module: "
          "chunks "
          "that were run one by one (ep_overlap.strategy eager) share the casts and gathers of "
          "their parameters, which then belong to no chunk. Gathers are shared within a module and "
          "a phase, so that none is kept for longer than the module runs.",
      .reads =
          "operators, operands, arguments, types, phase, module, chunk, expert and recompute "
          "metadata.",
      .writes = "uses of the removed nodes; the chunk of nodes that several chunks share.",
      .never =
          "merges random operators, reads of data, operators with side effects, nodes of different "
          "expert roles, buckets or recompute tags, collectives or nodes of different chunks that "
          "depend on more than parameters, nodes where a chunk begins or ends, or two results that "
          "are both returned.",
  };
  return kInfo;
}

bool CommonSubexpressionElimination::RunImpl(Graph& graph, PassContext& /*context*/) {
  bool changed = RewriteNestedGraphs(graph, [this](Graph& nested) { return Run(nested); });
  return RunOn(graph) || changed;
}

bool CommonSubexpressionElimination::RunOn(Graph& graph) {
  bool changed = false;
  EscapingStorage escaping(graph);
  OfParameters of_parameters(graph);
  std::unordered_multimap<uint64_t, Node*> seen;
  seen.reserve(static_cast<size_t>(graph.node_count()));
  for (Node* node : graph.nodes()) {
    const bool parameters_alone = of_parameters.Look(*node);
    if (!MayMerge(*node, parameters_alone)) continue;
    const Sharing sharing{.within_phase = StaysInPhase(*node),
                          .within_module = node->op().collective != Collective::kNone,
                          .within_chunk = !parameters_alone};
    uint64_t hash = HashOf(*node, sharing);
    auto [begin, end] = seen.equal_range(hash);
    auto equal = std::find_if(begin, end, [&](const auto& entry) {
      const Node& earlier = *entry.second;
      return ComputesTheSame(earlier, *node) && SamePlace(earlier.meta(), node->meta(), sharing);
    });
    if (equal == end) {
      seen.emplace(hash, node);
    } else if (WouldShareOutputs(*equal->second, *node, escaping)) {
      ++kept_for_outputs_;
    } else {
      Replace(graph, node, equal->second, escaping);
      ++merged_;
      changed = true;
    }
  }
  return changed;
}

bool CommonSubexpressionElimination::MayMerge(const Node& node, bool parameters_alone) const {
  const Operator& op = node.op();
  if (op.random || op.side_effect || op.reads_data) return false;
  // Collectives that are equal on this rank may differ on another (a slice at the rank's own place,
  // which is the first one here), and that rank would wait for both. What is made of a parameter
  // alone is prepared in the same way wherever it is used.
  if (op.collective != Collective::kNone && !parameters_alone) return false;
  if (node.result_count() == 0 || !node.bound_symbols().empty()) return false;
  return !MakesFromNothing(op) || SizeOf(node) <= options_.max_factory_bytes;
}

int64_t CommonSubexpressionElimination::SizeOf(const Node& node) const {
  const ShapeEnv& shapes = node.graph().shapes();
  const Dim bytes = node.result()->type().bytes();
  return options_.sizes_by_hint ? bytes.Evaluate(shapes.Hints()) : shapes.Bounds(bytes).high;
}

bool CommonSubexpressionElimination::StaysInPhase(const Node& node) const {
  // A tagged forward node and its recomputed copy are equal on purpose.
  if (node.meta().recompute != Recompute::kNone) return true;
  // So is a gather that is repeated for the backward.
  if (node.op().collective != Collective::kNone) return true;
  if (options_.cross_phase == CrossPhase::kAll) return false;
  return options_.cross_phase == CrossPhase::kNone || node.op().aliasing != Aliasing::kAlways;
}

}  // namespace gt
