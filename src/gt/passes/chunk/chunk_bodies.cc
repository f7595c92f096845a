#include "gt/passes/chunk/chunk_bodies.h"

#include <memory>
#include <utility>

#include "gt/base/error.h"

namespace gt {
namespace {

[[noreturn]] void RejectUse(const Value& value, Name user, std::string_view why) {
  Fail(ErrorCode::kChunkLiveOut, "{} {}: a chunk of {} cannot use it", Describe(value), why,
       user.str());
}

}  // namespace

ChunkBodies::ChunkBodies(ChunkState& state, ChunkBoundaries& boundaries, bool keep_across_roots)
    : state_(state),
      boundaries_(boundaries),
      keep_across_roots_(keep_across_roots),
      original_names_(static_cast<size_t>(state.graph.node_count())) {
  NameChunks();
}

// The suffix of the names of copies: _chunk0, unless the graph has such names already.
void ChunkBodies::NameChunks() {
  std::string mark = "_chunk";
  for (bool taken = true; taken;) {
    taken = false;
    for (const auto& input : state_.graph.inputs()) {
      taken |= input->value.name().find(mark) != std::string::npos;
    }
    for (const Node* node : state_.graph.nodes()) {
      for (int32_t i = 0; i < node->result_count(); ++i) {
        taken |= node->result(i)->name().find(mark) != std::string::npos;
      }
    }
    if (taken) mark += "_";
  }
  for (int64_t i = 0; i < state_.symbols.chunks(); ++i)
    suffixes_.push_back(mark + std::to_string(i));
}

void ChunkBodies::Copy(const Node& node, int32_t region, int64_t chunk, Node* before) {
  Graph::NodeSpec spec;
  spec.op = &node.op();
  spec.meta = MetaOf(node, region, chunk);
  spec.operands.reserve(static_cast<size_t>(node.operand_count()));
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    spec.operands.push_back(OperandIn(*node.operand(i), node, region, chunk, before));
  }
  spec.args = ArgumentsIn(node, chunk, spec.operands);
  Graph::Typed typed = node.bound_symbols().empty() ? Inferred(spec, node, region, chunk)
                                                    : WithBoundSymbols(node, chunk);
  typed.result_names = NamesOf(node, chunk);
  state_.CopyOf(node, chunk) = state_.graph.InsertTyped(std::move(spec), std::move(typed), before);
  ++state_.counts.copies;
}

std::vector<std::string> ChunkBodies::NamesOf(const Node& node, int64_t chunk) const {
  std::vector<std::string> names;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    names.push_back(node.result(i)->name() + suffixes_[static_cast<size_t>(chunk)]);
  }
  return names;
}

// Interned once for all chunks.
Name ChunkBodies::OriginalName(const Node& node) {
  Name& name = original_names_[static_cast<size_t>(node.number())];
  if (name.empty()) name = Name(node.result()->name());
  return name;
}

Meta ChunkBodies::MetaOf(const Node& node, int32_t region, int64_t chunk) {
  Meta meta = node.meta();
  auto mark = std::make_shared<ChunkMeta>();
  mark->id = static_cast<int32_t>(chunk);
  mark->region = state_.RootName(region);
  mark->role = ChunkRole::kBody;
  mark->backward = ChunkRegions::IsBackward(region);
  if (node.result_count() > 0) mark->original = OriginalName(node);
  meta.chunk = std::move(mark);
  return meta;
}

Graph::Typed ChunkBodies::WithBoundSymbols(const Node& node, int64_t chunk) {
  Graph::Typed typed;
  typed.bound_symbols = state_.symbols.Bind(chunk, node);
  for (int32_t i = 0; i < node.result_count(); ++i) {
    typed.results.push_back(state_.symbols.In(chunk, node.result(i)->type()));
  }
  return typed;
}

// The rule infers the chunk's types afresh, and so finds sizes that do not follow the symbol.
Graph::Typed ChunkBodies::Inferred(const Graph::NodeSpec& spec, const Node& node, int32_t region,
                                   int64_t chunk) {
  Graph::Typed typed;
  try {
    typed = state_.graph.Infer(spec);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadOperands) throw;
    RejectSizes(node, region, chunk, error.message());
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    if (FollowsSymbol(typed.results[static_cast<size_t>(i)].sizes, node.result(i)->type().sizes,
                      chunk)) {
      continue;
    }
    RejectSizes(node, region, chunk,
                fmt::format("its result does not follow the symbol {}",
                            state_.graph.shapes().NameOf(state_.symbols.symbol())));
  }
  return typed;
}

bool ChunkBodies::FollowsSymbol(const Shape& got, const Shape& whole, int64_t chunk) {
  if (got.size() != whole.size()) return false;
  for (size_t d = 0; d < got.size(); ++d) {
    if (got[d].is_const() && whole[d] == got[d]) continue;
    Dim wanted = state_.symbols.In(chunk, whole[d]);
    if (got[d] == wanted || state_.graph.shapes().HasDataSymbol(got[d])) continue;
    if (!state_.graph.shapes().EqualOrUnknown(got[d], wanted)) return false;
  }
  return true;
}

void ChunkBodies::RejectSizes(const Node& node, int32_t region, int64_t chunk,
                              const std::string& why) const {
  Fail(ErrorCode::kChunkBakedSize,
       "{}: {} cannot be repeated for chunk {} of {}: {}. A size of the whole is written into it; "
       "take it from a tensor, or write -1, at {}",
       state_.RootName(region).str(), Describe(node), chunk, state_.symbols.chunks(), why,
       node.meta().source.str());
}

std::vector<Argument> ChunkBodies::ArgumentsIn(const Node& node, int64_t chunk,
                                               const std::vector<Value*>& operands) {
  std::vector<Argument> args(node.args().begin(), node.args().end());
  const OperandList* list = nullptr;
  for (Argument& arg : args) {
    if (auto* dim = std::get_if<Dim>(&arg)) {
      *dim = state_.symbols.In(chunk, *dim);
    } else if (auto* shape = std::get_if<Shape>(&arg)) {
      *shape = state_.symbols.In(chunk, *shape);
    } else if (const auto* operand_list = std::get_if<OperandList>(&arg)) {
      list = operand_list;
    } else if (auto* nested = std::get_if<GraphRef>(&arg); nested && *nested && list) {
      *nested = NestedIn(chunk, *nested, *list, operands);
    }
  }
  return args;
}

// A function of attention for tensors of a chunk: the tensors it looks things up in are those of
// the list before it, and its last inputs.
GraphRef ChunkBodies::NestedIn(int64_t chunk, const GraphRef& nested, const OperandList& list,
                               const std::vector<Value*>& operands) {
  std::vector<const TensorType*> captures;
  for (int32_t index : list.indices)
    captures.push_back(&operands[static_cast<size_t>(index)]->type());
  auto fits = [&captures](const Graph& graph) {
    auto inputs = graph.inputs().last(captures.size());
    for (size_t i = 0; i < captures.size(); ++i) {
      if (inputs[i]->value.type() != *captures[i]) return false;
    }
    return true;
  };
  if (fits(*nested)) return nested;
  // Layers share their functions, so their chunks do.
  std::vector<GraphRef>& copies = nested_[nested.get()];
  copies.resize(static_cast<size_t>(state_.symbols.chunks()));
  GraphRef& copy = copies[static_cast<size_t>(chunk)];
  if (copy == nullptr || !fits(*copy)) copy = nested->CloneInto(state_.graph, captures);
  return copy;
}

Value* ChunkBodies::OperandIn(Value& value, const Node& user, int32_t region, int64_t chunk,
                              Node* before) {
  const int32_t root = ChunkRegions::RootOf(region);
  if (value.is_input() && chunk > 0) {
    Value* update = state_.regions.UpdateOf(value);
    if (update != nullptr) return BufferIn(value, *update, user, root, chunk);
  }
  const int32_t from = state_.regions.Of(value);
  if (from != ChunkRegions::kNone) {
    if (ChunkRegions::RootOf(from) == root || state_.regions.IsMadeOfSizes(value)) {
      return state_.CopyOf(value, chunk);
    }
    return HandedOn(value, user, region, chunk, before);
  }
  if (!value.is_input() && state_.regions.IsOfAllChunks(*value.producer())) {
    RejectUse(value, user.meta().module, "is the sum of all chunks");
  }
  if (!value.type().Mentions(state_.symbols.symbol())) return &value;
  if (state_.regions.IsMadeOfSizes(value)) return Remade(value, region, chunk, before);
  return boundaries_.PieceOf(value, region, chunk, before);
}

// What the chunk before left in the buffer.
Value* ChunkBodies::BufferIn(Value& buffer, const Value& update, const Node& user, int32_t root,
                             int64_t chunk) {
  if (ChunkRegions::RootOf(state_.regions.Of(update)) != root) return &buffer;
  Value* left = state_.CopyOf(update, chunk - 1);
  if (left == nullptr) {
    RejectUse(buffer, user.meta().module,
              "is a buffer that the chunk before changes only later in the step");
  }
  return left;
}

// Another root's result, of which this chunk uses the same chunk.
Value* ChunkBodies::HandedOn(Value& value, const Node& user, int32_t region, int64_t chunk,
                             Node* before) {
  if (!value.type().Mentions(state_.symbols.symbol())) {
    RejectUse(value, user.meta().module, "differs from chunk to chunk, and another module uses it");
  }
  if (!keep_across_roots_) return boundaries_.PieceOf(value, region, chunk, before);
  return boundaries_.HandOn(value, region, chunk, before);
}

// A value that sizes alone determine, from the chunk's sizes.
Value* ChunkBodies::Remade(Value& value, int32_t region, int64_t chunk, Node* before) {
  std::vector<Node*> pending = {value.producer()};
  while (!pending.empty()) {
    Node* node = pending.back();
    if (state_.CopyOf(*node, chunk) != nullptr) {
      pending.pop_back();
      continue;
    }
    bool ready = true;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Value& operand = *node->operand(i);
      if (state_.regions.IsMadeOfSizes(operand) && state_.CopyOf(operand, chunk) == nullptr) {
        pending.push_back(operand.producer());
        ready = false;
      }
    }
    if (!ready) continue;
    pending.pop_back();
    Graph::NodeSpec spec;
    spec.op = &node->op();
    spec.meta = boundaries_.BoundaryMeta(region, ChunkRole::kChunkInput, chunk, node);
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Value& operand = *node->operand(i);
      spec.operands.push_back(state_.regions.IsMadeOfSizes(operand) ? state_.CopyOf(operand, chunk)
                                                                    : &operand);
    }
    spec.args = ArgumentsIn(*node, chunk, spec.operands);
    state_.CopyOf(*node, chunk) = state_.graph.Insert(std::move(spec), before);
  }
  return state_.CopyOf(value, chunk);
}

}  // namespace gt
