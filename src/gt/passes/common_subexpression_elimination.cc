#include "gt/passes/common_subexpression_elimination.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "gt/passes/aliasing.h"
#include "gt/passes/nested.h"

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

// Of what is computed and where it belongs, so that equal nodes that may not be merged do not pile
// up under one hash.
uint64_t HashOf(const Node& node, bool within_phase) {
  const Meta& meta = node.meta();
  uint64_t place = static_cast<uint64_t>(meta.ep_role) | static_cast<uint64_t>(meta.recompute) << 8;
  if (within_phase) place |= static_cast<uint64_t>(meta.phase) << 16 | 1ull << 24;
  if (meta.chunk != nullptr) place |= static_cast<uint64_t>(meta.chunk->id) << 32;
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

bool SameChunk(const ChunkMeta* a, const ChunkMeta* b) {
  if (a == nullptr || b == nullptr) return a == b;
  // Nodes that mark where a chunk begins or ends stay one per place.
  if (a->role > ChunkRole::kNone && a->role != ChunkRole::kBody) return false;
  return a->id == b->id && a->region == b->region && a->role == b->role &&
         a->backward == b->backward;
}

// Equal in everything that decides where a later pass puts a node.
bool SamePlace(const Meta& a, const Meta& b) {
  return a.ep_role == b.ep_role && a.exchange == b.exchange && a.recompute == b.recompute &&
         a.fsdp_bucket == b.fsdp_bucket && SameChunk(a.chunk.get(), b.chunk.get());
}

// Two results that are both returned must not become one, unless they are views and share their
// memory anyway.
bool WouldShareOutputs(const Node& a, const Node& b, const EscapingStorage& escaping) {
  if (AliasingOf(a.op()) == Aliasing::kAlways) return false;
  for (int32_t i = 0; i < a.result_count(); ++i) {
    if (escaping.Contains(*a.result(i)) && escaping.Contains(*b.result(i))) return true;
  }
  return false;
}

// Whether the results depend on no data, only on arguments and on the types of operands (zeros,
// new_zeros, zeros_like, and zero and fill, which functionalization makes of zero_ and fill_).
bool MakesFromNothing(const Operator& op) {
  static const std::unordered_set<const Operator*> kFactories = [] {
    std::unordered_set<const Operator*> factories;
    for (const Operator* each : AllOperators()) {
      std::string_view name = each->name.str();
      name.remove_prefix(std::min(name.size(), name.find("::") + 2));
      name = name.substr(0, name.find('.'));
      auto is_tensor = [](const ArgSpec& arg) {
        return arg.kind == ArgKind::kTensor || arg.kind == ArgKind::kTensorList;
      };
      const std::vector<ArgSpec>& args = each->schema.args;
      if (std::none_of(args.begin(), args.end(), is_tensor) || name.ends_with("_like") ||
          name.starts_with("new_") || name == "zero" || each->name.str() == "aten::fill.Scalar") {
        factories.insert(each);
      }
    }
    return factories;
  }();
  return kFactories.contains(&op);
}

void Replace(Graph& graph, Node* node, Node* by, EscapingStorage& escaping) {
  for (int32_t i = 0; i < node->result_count(); ++i) {
    escaping.Merge(*node->result(i), *by->result(i));
    if (node->result(i)->has_uses()) node->result(i)->ReplaceAllUses(by->result(i));
  }
  graph.Erase(node);
}

}  // namespace

CommonSubexpressionElimination::CommonSubexpressionElimination(
    CommonSubexpressionEliminationOptions options) {
  Declare(
      "cross_phase", &options_.cross_phase,
      "what may be shared between forward, loss and backward: a value that backward computes anew "
      "need not be kept until then, a view costs nothing either way");
  Declare(
      "max_factory_bytes", &options_.max_factory_bytes,
      "tensors made from nothing (zeros, arange) are shared up to this size; holding a larger one "
      "costs more than making it again",
      AtLeast(0));
  options_ = options;
}

const PassInfo& CommonSubexpressionElimination::info() const {
  static constexpr PassInfo kInfo = {
      .name = "cse",
      .summary = "Replaces a node by an earlier one that computes the same bits.",
      .description =
          "Same operator, operands, arguments (floating-point ones by bits) and result types. One "
          "forward "
          "walk over a hash table. Sharing a value makes it live longer, so that nodes of "
          "different "
          "phases are only merged if they are views, and large tensors made from nothing are not.",
      .reads =
          "operators, operands, arguments, types, phase, chunk, expert and recompute metadata.",
      .writes = "uses of the removed nodes.",
      .never =
          "merges random operators, collectives, reads of data, operators with side effects, nodes "
          "of "
          "different chunks, expert roles, buckets or recompute tags, or two results that are both "
          "returned.",
  };
  return kInfo;
}

bool CommonSubexpressionElimination::Run(Graph& graph) {
  bool changed = RewriteNestedGraphs(graph, [this](Graph& nested) { return Run(nested); });
  return RunOn(graph) || changed;
}

bool CommonSubexpressionElimination::RunOn(Graph& graph) {
  bool changed = false;
  EscapingStorage escaping(graph);
  std::unordered_multimap<uint64_t, Node*> seen;
  seen.reserve(static_cast<size_t>(graph.node_count()));
  for (Node* node : graph.nodes()) {
    if (!MayMerge(*node)) continue;
    bool within_phase = StaysInPhase(*node);
    uint64_t hash = HashOf(*node, within_phase);
    auto [begin, end] = seen.equal_range(hash);
    auto equal = std::find_if(begin, end, [&](const auto& entry) {
      const Node& earlier = *entry.second;
      return ComputesTheSame(earlier, *node) && SamePlace(earlier.meta(), node->meta()) &&
             (!within_phase || earlier.meta().phase == node->meta().phase);
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

bool CommonSubexpressionElimination::MayMerge(const Node& node) const {
  const Operator& op = node.op();
  if (op.random || op.side_effect || op.reads_data || op.collective != Collective::kNone)
    return false;
  if (node.result_count() == 0 || !node.bound_symbols().empty()) return false;
  if (!MakesFromNothing(op)) return true;
  return node.graph().shapes().Bounds(node.result()->type().bytes()).high <=
         options_.max_factory_bytes;
}

bool CommonSubexpressionElimination::StaysInPhase(const Node& node) const {
  // A tagged forward node and its recomputed copy are equal on purpose.
  if (node.meta().recompute != Recompute::kNone) return true;
  if (options_.cross_phase == CrossPhase::kAll) return false;
  return options_.cross_phase == CrossPhase::kNone || AliasingOf(node.op()) != Aliasing::kAlways;
}

}  // namespace gt
