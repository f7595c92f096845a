#include "gt/passes/chunk/chunk.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/ops/rules.h"
#include "gt/passes/chunk/chunk_cuts.h"
#include "gt/passes/chunk/chunk_regions.h"
#include "gt/passes/chunk/chunk_symbols.h"

namespace gt {
namespace {

Name ParentOf(Name module) {
  size_t dot = module.str().rfind('.');
  return dot == std::string::npos ? Name() : Name(std::string_view(module.str()).substr(0, dot));
}

// Copies bodies chunk by chunk, in one walk over the graph.
//
// Nodes of a body wait until their region is complete, and are then copied chunk after chunk: the
// order in which the eager producer runs them, and draws random numbers. Nodes outside that use a
// waiting one wait behind it. A region is copied earlier when a body of another region, or its own
// body by way of a node outside, needs it: then it comes in several stretches. A waiting node needs
// only nodes that are copied already, or that wait with it, so every operand is there in time.
class Chunker {
 public:
  struct Counts {
    int64_t copies = 0, splits = 0, joins = 0, sums = 0, handed_on = 0;
  };

  Chunker(Graph& graph, const ChunkOptions& options, SymbolId symbol)
      : graph_(graph),
        keep_(options.keep_across_roots),
        regions_(graph, options, symbol),
        symbols_(graph, symbol, options.chunks),
        cuts_(graph, symbol, options.dim),
        original_names_(static_cast<size_t>(graph.node_count())),
        waiting_(static_cast<size_t>(graph.node_count()), ChunkRegions::kNone),
        copies_(static_cast<size_t>(graph.node_count() * options.chunks), nullptr),
        stretches_(static_cast<size_t>(regions_.region_count())) {
    int64_t bodies = 0;
    for (int32_t r = 0; r < regions_.region_count(); ++r) {
      StretchOf(r).missing = regions_.size(r);
      bodies += regions_.size(r);
    }
    graph.ReserveNames(static_cast<size_t>(2 * graph.node_count() + bodies * options.chunks));
    for (const Node* node : cuts_.mixing_nodes()) {
      const int32_t region = regions_.Of(*node);
      if (region == ChunkRegions::kNone) continue;
      cuts_.RejectMixing(*node, regions_.name(ChunkRegions::RootOf(region)));
    }
    NameChunks();
  }

  void Run() {
    std::vector<Node*> originals;
    for (Node *node = graph_.first(), *next = nullptr; node != nullptr; node = next) {
      next = node->next();
      int32_t region = regions_.Of(*node);
      if (regions_.IsReplacedSum(*node)) {
        originals.push_back(node);
      } else if (region == ChunkRegions::kNone) {
        PassOutside(node);
      } else {
        originals.push_back(node);
        PassBody(node, region, next);
      }
    }
    for (int32_t r = 0; r < regions_.region_count(); ++r) Emit(r, nullptr);
    for (const auto& output : graph_.outputs()) {
      if (IsOfBody(*output->value()))
        output->use.Set(ReturnWhole(output->value(), *output, nullptr));
    }
    for (auto node = originals.rbegin(); node != originals.rend(); ++node) {
      if (!(*node)->has_uses()) graph_.Erase(*node);  // see Whole
    }
  }

  const Counts& counts() const { return counts_; }
  const ChunkRegions& regions() const { return regions_; }

 private:
  // What waits for a region.
  struct Stretch {
    std::vector<Node*> body;
    std::vector<Node*> behind;  // nodes outside that need the body
    int64_t missing = 0;        // nodes of the body that the walk has not reached
  };

  Stretch& StretchOf(int32_t region) { return stretches_[static_cast<size_t>(region)]; }
  int32_t WaitsFor(const Value& value) const {
    if (value.is_input() || value.producer()->number() < 0) return ChunkRegions::kNone;
    return waiting_[static_cast<size_t>(value.producer()->number())];
  }
  void LetWait(Node* node, int32_t region) {
    waiting_[static_cast<size_t>(node->number())] = region;
  }
  bool IsOfBody(const Value& value) const {
    return regions_.Of(value) != ChunkRegions::kNone ||
           (!value.is_input() && regions_.IsReplacedSum(*value.producer()));
  }

  // What is behind the names of copies: _chunk0, unless the graph has such names already.
  void NameChunks() {
    std::string mark = "_chunk";
    for (bool taken = true; taken;) {
      taken = false;
      for (const auto& input : graph_.inputs()) {
        taken |= input->value.name().find(mark) != std::string::npos;
      }
      for (const Node* node : graph_.nodes()) {
        for (int32_t i = 0; i < node->result_count(); ++i) {
          taken |= node->result(i)->name().find(mark) != std::string::npos;
        }
      }
      if (taken) mark += "_";
    }
    for (int64_t i = 0; i < symbols_.chunks(); ++i) suffixes_.push_back(mark + std::to_string(i));
  }

  // ---- the walk ----

  void PassOutside(Node* node) {
    std::vector<int32_t> needed;
    for (int32_t i = 0; i < node->operand_count(); ++i) AddNeeded(*node->operand(i), needed);
    if (node->op().random) {
      EmitBeforeDraw(node, ChunkRegions::kNone);
    } else if (needed.size() == 1 && node->bound_symbols().empty()) {  // else sizes would be early
      StretchOf(needed[0]).behind.push_back(node);
      LetWait(node, needed[0]);
      return;
    } else {
      for (int32_t region : needed) Emit(region, node);
    }
    UseWholes(node);
  }

  // The regions that an operand of a node outside waits for, each once.
  void AddNeeded(Value& operand, std::vector<int32_t>& needed) const {
    auto add = [&](const Value& value) {
      int32_t region = WaitsFor(value);
      if (region == ChunkRegions::kNone) return;
      if (std::find(needed.begin(), needed.end(), region) == needed.end()) needed.push_back(region);
    };
    if (operand.is_input()) return;
    if (!regions_.IsReplacedSum(*operand.producer())) return add(operand);
    for (const Value* addend : regions_.Addends(&operand)) add(*addend);
  }

  // Draws keep their order: what waits for other regions may draw.
  void EmitBeforeDraw(Node* node, int32_t region) {
    const std::vector<int32_t> open = open_;
    for (int32_t other : open) {
      if (other != region) Emit(other, node);
    }
  }

  void PassBody(Node* node, int32_t region, Node* next) {
    if (node->op().random) EmitBeforeDraw(node, region);
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      const Value& operand = *node->operand(i);
      int32_t needed = WaitsFor(operand);
      bool together = needed == region && regions_.Of(operand) == region;
      if (needed != ChunkRegions::kNone && !together) Emit(needed, node);
    }
    Stretch& stretch = StretchOf(region);
    if (stretch.body.empty()) open_.push_back(region);
    stretch.body.push_back(node);
    LetWait(node, region);
    if (--stretch.missing == 0) Emit(region, next);
  }

  // Copies what waits for the region, in front of `before`.
  void Emit(int32_t region, Node* before) {
    Stretch& stretch = StretchOf(region);
    std::erase(open_, region);
    std::vector<Node*> body = std::exchange(stretch.body, {});
    std::vector<Node*> behind = std::exchange(stretch.behind, {});
    const bool backward = ChunkRegions::IsBackward(region);
    for (int64_t turn = 0; turn < symbols_.chunks(); ++turn) {
      // As autograd goes: what was computed last is differentiated first.
      int64_t chunk = backward ? symbols_.chunks() - 1 - turn : turn;
      for (Node* node : body) Copy(*node, region, chunk, before);
    }
    for (Node* node : body) LetWait(node, ChunkRegions::kNone);
    for (Node* node : body) {
      for (int32_t i = 0; i < node->result_count(); ++i) ReturnFrom(*node->result(i), before);
    }
    for (Node* node : behind) {
      LetWait(node, ChunkRegions::kNone);
      graph_.MoveBefore(node, before);
      UseWholes(node);
    }
  }

  // Makes what the step returns as soon as all chunks are there, so that they need not be kept.
  void ReturnFrom(Value& value, Node* before) {
    for (const Use& use : value.uses()) {
      if (use.node() == nullptr) {
        ReturnWhole(&value, *graph_.outputs()[static_cast<size_t>(use.index())], before);
      } else if (regions_.IsReplacedSum(*use.node())) {
        Value& sum = *use.node()->result();
        std::vector<Value*> addends = regions_.Addends(&sum);
        bool complete = std::all_of(addends.begin(), addends.end(), [this](const Value* addend) {
          return CopyOf(*addend, 0) != nullptr && WaitsFor(*addend) == ChunkRegions::kNone;
        });
        if (complete) ReturnFrom(sum, before);
      }
    }
  }

  // ---- copies of bodies ----

  Node*& CopyOf(const Node& node, int64_t chunk) {
    return copies_[static_cast<size_t>(node.number() * symbols_.chunks() + chunk)];
  }
  Value* CopyOf(const Value& value, int64_t chunk) {
    Node* copy = CopyOf(*value.producer(), chunk);
    return copy == nullptr ? nullptr : copy->result(value.index());
  }

  void Copy(const Node& node, int32_t region, int64_t chunk, Node* before) {
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
    CopyOf(node, chunk) = graph_.InsertTyped(std::move(spec), std::move(typed), before);
    ++counts_.copies;
  }

  std::vector<std::string> NamesOf(const Node& node, int64_t chunk) const {
    std::vector<std::string> names;
    for (int32_t i = 0; i < node.result_count(); ++i) {
      names.push_back(node.result(i)->name() + suffixes_[static_cast<size_t>(chunk)]);
    }
    return names;
  }

  // Interned once for all chunks.
  Name OriginalName(const Node& node) {
    Name& name = original_names_[static_cast<size_t>(node.number())];
    if (name.empty()) name = Name(node.result()->name());
    return name;
  }

  Meta MetaOf(const Node& node, int32_t region, int64_t chunk) {
    Meta meta = node.meta();
    auto mark = std::make_shared<ChunkMeta>();
    mark->id = static_cast<int32_t>(chunk);
    mark->region = regions_.name(ChunkRegions::RootOf(region));
    mark->role = ChunkRole::kBody;
    mark->backward = ChunkRegions::IsBackward(region);
    if (node.result_count() > 0) mark->original = OriginalName(node);
    meta.chunk = std::move(mark);
    return meta;
  }

  Graph::Typed WithBoundSymbols(const Node& node, int64_t chunk) {
    Graph::Typed typed;
    typed.bound_symbols = symbols_.Bind(chunk, node);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      typed.results.push_back(symbols_.In(chunk, node.result(i)->type()));
    }
    return typed;
  }

  // The rule infers the chunk's types anew, and so finds sizes that do not follow the symbol.
  Graph::Typed Inferred(const Graph::NodeSpec& spec, const Node& node, int32_t region,
                        int64_t chunk) {
    Graph::Typed typed;
    try {
      typed = graph_.Infer(spec);
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
                              graph_.shapes().NameOf(symbols_.symbol())));
    }
    return typed;
  }

  bool FollowsSymbol(const Shape& got, const Shape& whole, int64_t chunk) {
    if (got.size() != whole.size()) return false;
    for (size_t d = 0; d < got.size(); ++d) {
      if (got[d].is_const() && whole[d] == got[d]) continue;
      Dim wanted = symbols_.In(chunk, whole[d]);
      if (got[d] == wanted || graph_.shapes().HasDataSymbol(got[d])) continue;
      if (!graph_.shapes().EqualOrUnknown(got[d], wanted)) return false;
    }
    return true;
  }

  [[noreturn]] void RejectSizes(const Node& node, int32_t region, int64_t chunk,
                                const std::string& why) const {
    Fail(
        ErrorCode::kChunkBakedSize,
        "{}: {} cannot be repeated for chunk {} of {}: {}. A size of the whole is written into it; "
        "take it from a tensor, or write -1, at {}",
        regions_.name(ChunkRegions::RootOf(region)).str(), Describe(node), chunk, symbols_.chunks(),
        why, node.meta().source.str());
  }

  std::vector<Argument> ArgumentsIn(const Node& node, int64_t chunk,
                                    const std::vector<Value*>& operands) {
    std::vector<Argument> args(node.args().begin(), node.args().end());
    const OperandList* list = nullptr;
    for (Argument& arg : args) {
      if (auto* dim = std::get_if<Dim>(&arg)) {
        *dim = symbols_.In(chunk, *dim);
      } else if (auto* shape = std::get_if<Shape>(&arg)) {
        *shape = symbols_.In(chunk, *shape);
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
  GraphRef NestedIn(int64_t chunk, const GraphRef& nested, const OperandList& list,
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
    copies.resize(static_cast<size_t>(symbols_.chunks()));
    GraphRef& copy = copies[static_cast<size_t>(chunk)];
    if (copy == nullptr || !fits(*copy)) copy = nested->CloneInto(graph_, captures);
    return copy;
  }

  // ---- operands of copies ----

  Value* OperandIn(Value& value, const Node& user, int32_t region, int64_t chunk, Node* before) {
    const int32_t root = ChunkRegions::RootOf(region);
    if (value.is_input() && chunk > 0) {
      Value* update = regions_.UpdateOf(value);
      if (update != nullptr) return BufferIn(value, *update, user, root, chunk);
    }
    const int32_t from = regions_.Of(value);
    if (from != ChunkRegions::kNone) {
      if (ChunkRegions::RootOf(from) == root || regions_.IsMadeOfSizes(value)) {
        return CopyOf(value, chunk);
      }
      return HandedOn(value, user, region, chunk, before);
    }
    if (!value.is_input() && regions_.IsOfAllChunks(*value.producer())) {
      RejectUse(value, user.meta().module, "is the sum of all chunks");
    }
    if (!value.type().Mentions(symbols_.symbol())) return &value;
    if (regions_.IsMadeOfSizes(value)) return Remade(value, region, chunk, before);
    return PieceOf(value, region, chunk, before);
  }

  // What the chunk before left in the buffer.
  Value* BufferIn(Value& buffer, const Value& update, const Node& user, int32_t root,
                  int64_t chunk) {
    if (ChunkRegions::RootOf(regions_.Of(update)) != root) return &buffer;
    Value* left = CopyOf(update, chunk - 1);
    if (left == nullptr) {
      RejectUse(buffer, user.meta().module,
                "is a buffer that the chunk before changes only later in the step");
    }
    return left;
  }

  // Another root's result, of which this chunk uses the same chunk.
  Value* HandedOn(Value& value, const Node& user, int32_t region, int64_t chunk, Node* before) {
    if (!value.type().Mentions(symbols_.symbol())) {
      RejectUse(value, user.meta().module,
                "differs from chunk to chunk, and another module uses it");
    }
    if (!keep_) return PieceOf(value, region, chunk, before);
    Pieces& pieces = PiecesFor(value);
    Value*& piece = pieces.contiguous[static_cast<size_t>(chunk)];
    if (piece == nullptr) {
      cuts_.Of(value, regions_.name(ChunkRegions::RootOf(region)));
      piece = Contiguous(CopyOf(value, chunk), region, chunk, before);
      ++counts_.handed_on;
    }
    return piece;
  }

  // A value that sizes alone determine, from the chunk's sizes.
  Value* Remade(Value& value, int32_t region, int64_t chunk, Node* before) {
    std::vector<Node*> pending = {value.producer()};
    while (!pending.empty()) {
      Node* node = pending.back();
      if (CopyOf(*node, chunk) != nullptr) {
        pending.pop_back();
        continue;
      }
      bool ready = true;
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        Value& operand = *node->operand(i);
        if (regions_.IsMadeOfSizes(operand) && CopyOf(operand, chunk) == nullptr) {
          pending.push_back(operand.producer());
          ready = false;
        }
      }
      if (!ready) continue;
      pending.pop_back();
      Graph::NodeSpec spec;
      spec.op = &node->op();
      spec.meta = BoundaryMeta(region, ChunkRole::kChunkInput, chunk, node);
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        Value& operand = *node->operand(i);
        spec.operands.push_back(regions_.IsMadeOfSizes(operand) ? CopyOf(operand, chunk)
                                                                : &operand);
      }
      spec.args = ArgumentsIn(*node, chunk, spec.operands);
      CopyOf(*node, chunk) = graph_.Insert(std::move(spec), before);
    }
    return CopyOf(value, chunk);
  }

  // ---- cutting and putting together ----

  struct Pieces {
    Node* split = nullptr;
    std::vector<Value*> contiguous;  // by chunk; null: not needed so far
  };

  Pieces& PiecesFor(Value& value) {
    Pieces& pieces = pieces_[&value];
    pieces.contiguous.resize(static_cast<size_t>(symbols_.chunks()), nullptr);
    return pieces;
  }

  Value* PieceOf(Value& value, int32_t region, int64_t chunk, Node* before) {
    Pieces& pieces = PiecesFor(value);
    Value*& piece = pieces.contiguous[static_cast<size_t>(chunk)];
    if (piece != nullptr) return piece;
    if (pieces.split == nullptr) pieces.split = Split(value, region, before);
    return piece =
               Contiguous(pieces.split->result(static_cast<int32_t>(chunk)), region, chunk, before);
  }

  Node* Split(Value& value, int32_t region, Node* before) {
    static const Operator* const kSplit = FindOperator("aten::split_with_sizes");
    Cut cut = cuts_.Of(value, regions_.name(ChunkRegions::RootOf(region)));
    Value* whole = IsOfBody(value) ? Whole(&value, before) : &value;
    Shape sizes;
    for (int64_t i = 0; i < symbols_.chunks(); ++i)
      sizes.push_back(symbols_.extent(i) * cut.factor);
    Meta meta = BoundaryMeta(region, ChunkRole::kSplitBoundary, -1, whole->producer());
    ++counts_.splits;
    return graph_.Insert({kSplit,
                          {whole},
                          {OperandRef{0}, std::move(sizes), Dim(cut.dim)},
                          std::move(meta),
                          whole->name() + "_split"},
                         before);
  }

  // Modules get contiguous inputs, as from the eager producer.
  Value* Contiguous(Value* piece, int32_t region, int64_t chunk, Node* before) {
    static const Operator* const kClone = FindOperator("aten::clone");
    if (rules::IsContiguous(graph_.shapes(), piece->type())) return piece;
    Meta meta = BoundaryMeta(region, ChunkRole::kChunkInput, chunk, piece->producer());
    return graph_
        .Insert({kClone,
                 {piece},
                 {OperandRef{0}, MemoryFormat::kContiguous},
                 std::move(meta),
                 piece->name() + "_contiguous"},
                before)
        ->result();
  }

  Meta BoundaryMeta(int32_t region, ChunkRole role, int64_t chunk, const Node* origin) const {
    Meta meta;
    Name root = regions_.name(ChunkRegions::RootOf(region));
    meta.module = ParentOf(root);
    if (origin != nullptr) meta.source = origin->meta().source;
    const bool backward = ChunkRegions::IsBackward(region);
    meta.phase = backward ? Phase::kBackward : Phase::kForward;
    auto mark = std::make_shared<ChunkMeta>();
    mark->id = static_cast<int32_t>(chunk);
    mark->region = root;
    mark->role = role;
    mark->backward = backward;
    meta.chunk = std::move(mark);
    return meta;
  }

  // A node outside uses whole values.
  void UseWholes(Node* node) {
    bool other_types = false;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Value* operand = node->operand(i);
      if (IsOfBody(*operand)) {
        Value* whole = WholeFor(operand, node);
        node->SetOperand(i, whole);
        other_types |= whole->type() != operand->type();
      } else if (!retyped_.empty()) {
        other_types |= retyped_.contains(operand);
      }
    }
    if (other_types) InferAgain(node);
  }

  // What is put together is contiguous, which the original may not have been. The node makes way
  // for one of other types; in two steps, because its names are free only when it is gone.
  void InferAgain(Node* node) {
    Graph::NodeSpec spec;
    spec.op = &node->op();
    spec.args.assign(node->args().begin(), node->args().end());
    spec.meta = node->meta();
    for (int32_t i = 0; i < node->operand_count(); ++i) spec.operands.push_back(node->operand(i));
    Node* inferred = graph_.Insert(spec, node);
    Graph::Typed typed;
    typed.view_offsets.assign(inferred->view_offsets().begin(), inferred->view_offsets().end());
    std::vector<bool> other_type;
    for (int32_t i = 0; i < node->result_count(); ++i) {
      typed.results.push_back(inferred->result(i)->type());
      typed.result_names.push_back(node->result(i)->name());
      other_type.push_back(inferred->result(i)->type() != node->result(i)->type());
    }
    TakePlaceOf(node, inferred);
    Node* again = graph_.InsertTyped(std::move(spec), std::move(typed), inferred);
    TakePlaceOf(inferred, again);
    for (int32_t i = 0; i < again->result_count(); ++i) {
      if (other_type[static_cast<size_t>(i)]) retyped_.insert(again->result(i));
    }
  }

  void TakePlaceOf(Node* node, Node* successor) {
    for (int32_t i = 0; i < node->result_count(); ++i) {
      if (node->result(i)->has_uses()) node->result(i)->ReplaceAllUses(successor->result(i));
    }
    cuts_.Replace(*node, *successor);
    graph_.Erase(node);
  }

  Value* WholeFor(Value* value, Node* user) {
    bool sums = regions_.LeadsToGradient(*user);
    return WholeFor(value, sums, sums ? ChunkProof::kBackwardPartialSum : ChunkProof::kNone, user,
                    [&] { return Describe(*user); });
  }
  Value* ReturnWhole(Value* value, const Output& output, Node* before) {
    bool sums = output.role == OutputRole::kGradient;
    return WholeFor(value, sums, sums ? ChunkProof::kOutputPartialSum : ChunkProof::kNone, before,
                    [&] { return fmt::format("the step's output '{}'", output.name); });
  }

  template <typename DescribeUser>
  Value* WholeFor(Value* value, bool sums, ChunkProof proof, Node* before,
                  const DescribeUser& describe) {
    if (value->type().Mentions(symbols_.symbol())) return Whole(value, before);
    if (regions_.IsUpdate(*value)) return CopyOf(*value, symbols_.chunks() - 1);
    if (!sums) {
      Fail(ErrorCode::kChunkLiveOut,
           "{} leaves the chunks of {} for {}, but cannot be made from the chunks' values: it has "
           "no dimension that grows with {}, and it is no part of a parameter's gradient",
           Describe(*value), value->producer()->meta().module.str(), describe(),
           graph_.shapes().NameOf(symbols_.symbol()));
    }
    return SumOf(value, proof, before);
  }

  Value* Whole(Value* value, Node* before) {
    static const Operator* const kJoin = FindOperator("aten::cat");
    // Positions in the chunks, one behind the other, are not the positions in the whole.
    if (regions_.IsMadeOfSizes(*value)) return value;
    Value*& whole = wholes_[value];
    if (whole != nullptr) return whole;
    const int32_t region = regions_.Of(*value);
    Cut cut = cuts_.Of(*value, regions_.name(ChunkRegions::RootOf(region)));
    std::vector<Value*> chunks;
    OperandList list;
    for (int64_t i = 0; i < symbols_.chunks(); ++i) {
      list.indices.push_back(static_cast<int32_t>(i));
      chunks.push_back(CopyOf(*value, i));
    }
    Meta meta = BoundaryMeta(region, ChunkRole::kMaterialization, -1, value->producer());
    whole = graph_
                .Insert({kJoin,
                         std::move(chunks),
                         {std::move(list), Dim(cut.dim)},
                         std::move(meta),
                         value->name() + "_whole"},
                        before)
                ->result();
    if (whole->type() != value->type()) retyped_.insert(whole);
    ++counts_.joins;
    return whole;
  }

  // From the last chunk to the first, use by use: the order in which autograd adds.
  Value* SumOf(Value* value, ChunkProof proof, Node* before) {
    static const Operator* const kAdd = FindOperator("aten::add.Tensor");
    Value*& sum = wholes_[value];
    if (sum != nullptr) return sum;
    std::vector<Value*> addends = regions_.Addends(value);
    for (int64_t chunk = symbols_.chunks() - 1; chunk >= 0; --chunk) {
      for (Value* addend : addends) {
        Value* part = CopyOf(*addend, chunk);
        if (sum == nullptr) {
          sum = part;
          continue;
        }
        const int32_t region = regions_.Of(*addend);
        Meta meta = BoundaryMeta(region, ChunkRole::kMaterialization, -1, addend->producer());
        auto mark = std::make_shared<ChunkMeta>(*meta.chunk);
        mark->proof = proof;
        meta.chunk = std::move(mark);
        sum = graph_
                  .Insert({kAdd,
                           {sum, part},
                           {OperandRef{0}, OperandRef{1}, Dim(1)},
                           std::move(meta),
                           value->name() + "_sum"},
                          before)
                  ->result();
      }
    }
    ++counts_.sums;
    return sum;
  }

  [[noreturn]] void RejectUse(const Value& value, Name user, std::string_view why) const {
    Fail(ErrorCode::kChunkLiveOut, "{} {}: a chunk of {} cannot use it", Describe(value), why,
         user.str());
  }

  Graph& graph_;
  const bool keep_;
  std::vector<std::string> suffixes_;  // by chunk: of the names of copies
  ChunkRegions regions_;
  ChunkSymbols symbols_;
  Cuts cuts_;
  std::vector<Name> original_names_;  // by number, of bodies
  std::vector<int32_t> waiting_;      // by number: the region that a node waits for
  std::vector<Node*> copies_;         // by number and chunk
  std::vector<Stretch> stretches_;    // by region
  std::vector<int32_t> open_;         // regions whose stretch has a body: one or two at a time
  std::unordered_map<const Value*, Pieces> pieces_;
  std::unordered_map<const Value*, Value*> wholes_;
  std::unordered_map<const Graph*, std::vector<GraphRef>> nested_;
  std::unordered_set<const Value*> retyped_;  // whose type is not the one its users were made for
  Counts counts_;
};

SymbolId FindSymbol(const Graph& graph, const ChunkOptions& options) {
  const ShapeEnv& shapes = graph.shapes();
  std::optional<SymbolId> symbol = shapes.Find(options.symbol);
  bool used = false;
  for (const auto& input : graph.inputs()) {
    used |= symbol && input->value.type().Mentions(*symbol);
  }
  if (!used) {
    Fail(ErrorCode::kChunkExtent,
         "no input of the graph has a dimension {} to cut; capture the step with that dimension "
         "symbolic",
         options.symbol);
  }
  int64_t extent = shapes.Hint(Dim::Symbol(*symbol));
  if (extent < options.chunks) {
    Fail(ErrorCode::kChunkExtent, "{} ({}) is {}, which cannot make {} chunks", options.symbol,
         EnumName(options.dim), extent, options.chunks);
  }
  return *symbol;
}

}  // namespace

Chunk::Chunk(ChunkOptions options) {
  Declare("modules", &options_.modules,
          "modules to cut, by pattern; those in which no tokens are exchanged are left alone",
          NotEmpty());
  Declare("symbol", &options_.symbol, "the symbol of the extent that is cut", NotEmpty());
  Declare("dim", &options_.dim, "what that extent is");
  Declare("chunks", &options_.chunks, "into how many", Within(2, 1024));
  Declare("strict", &options_.strict,
          "each chunk's gradients go through casts and collectives of their own");
  Declare("keep_across_roots", &options_.keep_across_roots,
          "hand chunks on from module to module where nothing needs the whole value");
  options_ = std::move(options);
}

const PassInfo& Chunk::info() const {
  static constexpr PassInfo kInfo = {
      .name = "chunk",
      .summary = "Cuts modules that exchange tokens into chunks along the batch or the sequence.",
      .description =
          "The nodes of each module that the pattern names and the symbol influences are repeated "
          "for every chunk, forward and backward; chunks differ by one at the most. Values that "
          "enter and mention the symbol are cut (a copy is made only where a piece is not "
          "contiguous), values that leave are put together again, parameters' gradients are added "
          "up from the last chunk to the first, and buffers are handed from chunk to chunk. What "
          "the forward keeps for the backward stays with its chunk. Symbols bound by data get a "
          "fresh image for each chunk. Parameters do not mention the symbol, so what prepares "
          "them stays single. Gradients are added before their reduce-scatter, unless `strict` "
          "asks for what eager chunking does. Runs behind rematerialize, cpu_offload and "
          "reshard_after_forward, whose nodes are cut like any others.",
      .reads = "sizes, modules, phases, labels of expert parallelism, roles of outputs, facts.",
      .writes =
          "copies of nodes with the chunk's metadata, splits, concatenations, sums; symbols, facts "
          "and guards of the chunks.",
      .never =
          "keeps the bits of the step that is not cut (a matrix product over fewer rows may round "
          "otherwise); with `strict` they are those of strategy eager. Repeats a node that the "
          "symbol does not influence, or changes a node outside of the modules.",
  };
  return kInfo;
}

bool Chunk::RunImpl(Graph& graph, PassContext& /*context*/) {
  Chunker chunker(graph, options_, FindSymbol(graph, options_));
  chunker.Run();
  const ChunkRegions& regions = chunker.regions();
  for (int32_t root = 0; root < regions.root_count(); ++root) {
    if (regions.size(2 * root) == 0) continue;
    ++roots_;
    log::Debug("chunk: {}: {} nodes forward and {} backward, {} times", regions.name(root).str(),
               regions.size(2 * root), regions.size(2 * root + 1), options_.chunks);
  }
  copies_ += chunker.counts().copies;
  splits_ += chunker.counts().splits;
  joins_ += chunker.counts().joins;
  sums_ += chunker.counts().sums;
  handed_on_ += chunker.counts().handed_on;
  return true;
}

}  // namespace gt
