#include "gt/passes/chunk/chunk_boundaries.h"

#include <memory>
#include <string>
#include <utility>

#include "gt/base/error.h"
#include "gt/ops/rules.h"

namespace gt {
namespace {

Name ParentOf(Name module) {
  size_t dot = module.str().rfind('.');
  return dot == std::string::npos ? Name() : Name(std::string_view(module.str()).substr(0, dot));
}

}  // namespace

ChunkBoundaries::Pieces& ChunkBoundaries::PiecesFor(Value& value) {
  Pieces& pieces = pieces_[&value];
  pieces.contiguous.resize(static_cast<size_t>(state_.symbols.chunks()), nullptr);
  return pieces;
}

Value* ChunkBoundaries::PieceOf(Value& value, int32_t region, int64_t chunk, Node* before) {
  Pieces& pieces = PiecesFor(value);
  Value*& piece = pieces.contiguous[static_cast<size_t>(chunk)];
  if (piece != nullptr) return piece;
  if (pieces.split == nullptr) pieces.split = Split(value, region, before);
  return piece =
             Contiguous(pieces.split->result(static_cast<int32_t>(chunk)), region, chunk, before);
}

Value* ChunkBoundaries::HandOn(Value& value, int32_t region, int64_t chunk, Node* before) {
  Pieces& pieces = PiecesFor(value);
  Value*& piece = pieces.contiguous[static_cast<size_t>(chunk)];
  if (piece == nullptr) {
    state_.cuts.Of(value, state_.RootName(region));
    piece = Contiguous(state_.CopyOf(value, chunk), region, chunk, before);
    ++state_.counts.handed_on;
  }
  return piece;
}

Node* ChunkBoundaries::Split(Value& value, int32_t region, Node* before) {
  static const Operator* const kSplit = FindOperator("aten::split_with_sizes");
  Cut cut = state_.cuts.Of(value, state_.RootName(region));
  Value* whole = state_.IsOfBody(value) ? Whole(&value, before) : &value;
  Shape sizes;
  for (int64_t i = 0; i < state_.symbols.chunks(); ++i)
    sizes.push_back(state_.symbols.extent(i) * cut.factor);
  Meta meta = BoundaryMeta(region, ChunkRole::kSplitBoundary, -1, whole->producer());
  ++state_.counts.splits;
  return state_.graph.Insert({kSplit,
                              {whole},
                              {OperandRef{0}, std::move(sizes), Dim(cut.dim)},
                              std::move(meta),
                              whole->name() + "_split"},
                             before);
}

// Modules get contiguous inputs, as from the eager producer.
Value* ChunkBoundaries::Contiguous(Value* piece, int32_t region, int64_t chunk, Node* before) {
  static const Operator* const kClone = FindOperator("aten::clone");
  if (rules::IsContiguous(state_.graph.shapes(), piece->type())) return piece;
  Meta meta = BoundaryMeta(region, ChunkRole::kChunkInput, chunk, piece->producer());
  return state_.graph
      .Insert({kClone,
               {piece},
               {OperandRef{0}, MemoryFormat::kContiguous},
               std::move(meta),
               piece->name() + "_contiguous"},
              before)
      ->result();
}

Meta ChunkBoundaries::BoundaryMeta(int32_t region, ChunkRole role, int64_t chunk,
                                   const Node* origin) const {
  Meta meta;
  Name root = state_.RootName(region);
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

void ChunkBoundaries::UseWholes(Node* node) {
  bool other_types = false;
  for (int32_t i = 0; i < node->operand_count(); ++i) {
    Value* operand = node->operand(i);
    if (state_.IsOfBody(*operand)) {
      Value* whole = WholeFor(operand, node);
      node->SetOperand(i, whole);
      other_types |= whole->type() != operand->type();
    } else if (!retyped_.empty()) {
      other_types |= retyped_.contains(operand);
    }
  }
  if (other_types) Reinfer(node);
}

// What is put together is contiguous, which the original may not have been. The node makes way
// for one of other types; in two steps, because its names are free only when it is gone.
void ChunkBoundaries::Reinfer(Node* node) {
  Graph::NodeSpec spec;
  spec.op = &node->op();
  spec.args.assign(node->args().begin(), node->args().end());
  spec.meta = node->meta();
  for (int32_t i = 0; i < node->operand_count(); ++i) spec.operands.push_back(node->operand(i));
  Node* inferred = state_.graph.Insert(spec, node);
  Graph::Typed typed;
  typed.view_offsets.assign(inferred->view_offsets().begin(), inferred->view_offsets().end());
  std::vector<bool> other_type;
  for (int32_t i = 0; i < node->result_count(); ++i) {
    typed.results.push_back(inferred->result(i)->type());
    typed.result_names.push_back(node->result(i)->name());
    other_type.push_back(inferred->result(i)->type() != node->result(i)->type());
  }
  TakePlaceOf(node, inferred);
  Node* again = state_.graph.InsertTyped(std::move(spec), std::move(typed), inferred);
  TakePlaceOf(inferred, again);
  for (int32_t i = 0; i < again->result_count(); ++i) {
    if (other_type[static_cast<size_t>(i)]) retyped_.insert(again->result(i));
  }
}

void ChunkBoundaries::TakePlaceOf(Node* node, Node* successor) {
  for (int32_t i = 0; i < node->result_count(); ++i) {
    if (node->result(i)->has_uses()) node->result(i)->ReplaceAllUses(successor->result(i));
  }
  state_.cuts.Replace(*node, *successor);
  state_.graph.Erase(node);
}

template <typename DescribeUser>
Value* ChunkBoundaries::WholeFor(Value* value, bool sums, ChunkProof proof, Node* before,
                                 const DescribeUser& describe) {
  if (value->type().Mentions(state_.symbols.symbol())) return Whole(value, before);
  if (state_.regions.IsUpdate(*value)) return state_.CopyOf(*value, state_.symbols.chunks() - 1);
  if (!sums) {
    Fail(ErrorCode::kChunkLiveOut,
         "{} leaves the chunks of {} for {}, but cannot be made from the chunks' values: it has "
         "no dimension that grows with {}, and it is no part of a parameter's gradient",
         Describe(*value), value->producer()->meta().module.str(), describe(),
         state_.graph.shapes().NameOf(state_.symbols.symbol()));
  }
  return SumOf(value, proof, before);
}

Value* ChunkBoundaries::WholeFor(Value* value, Node* user) {
  bool sums = state_.regions.LeadsToGradient(*user);
  return WholeFor(value, sums, sums ? ChunkProof::kBackwardPartialSum : ChunkProof::kNone, user,
                  [&] { return Describe(*user); });
}
Value* ChunkBoundaries::ReturnWhole(Value* value, const Output& output, Node* before) {
  bool sums = output.role == OutputRole::kGradient;
  return WholeFor(value, sums, sums ? ChunkProof::kOutputPartialSum : ChunkProof::kNone, before,
                  [&] { return fmt::format("the step's output '{}'", output.name); });
}

Value* ChunkBoundaries::Whole(Value* value, Node* before) {
  static const Operator* const kJoin = FindOperator("aten::cat");
  // Positions in the chunks, one after the other, are not the positions in the whole.
  if (state_.regions.IsMadeOfSizes(*value)) return value;
  Value*& whole = wholes_[value];
  if (whole != nullptr) return whole;
  const int32_t region = state_.regions.Of(*value);
  Cut cut = state_.cuts.Of(*value, state_.RootName(region));
  std::vector<Value*> chunks;
  OperandList list;
  for (int64_t i = 0; i < state_.symbols.chunks(); ++i) {
    list.indices.push_back(static_cast<int32_t>(i));
    chunks.push_back(state_.CopyOf(*value, i));
  }
  Meta meta = BoundaryMeta(region, ChunkRole::kMaterialization, -1, value->producer());
  whole = state_.graph
              .Insert({kJoin,
                       std::move(chunks),
                       {std::move(list), Dim(cut.dim)},
                       std::move(meta),
                       value->name() + "_whole"},
                      before)
              ->result();
  if (whole->type() != value->type()) retyped_.insert(whole);
  ++state_.counts.joins;
  return whole;
}

// From the last chunk to the first, use by use: the order in which autograd adds.
Value* ChunkBoundaries::SumOf(Value* value, ChunkProof proof, Node* before) {
  static const Operator* const kAdd = FindOperator("aten::add.Tensor");
  Value*& sum = wholes_[value];
  if (sum != nullptr) return sum;
  std::vector<Value*> addends = state_.regions.Addends(value);
  for (int64_t chunk = state_.symbols.chunks() - 1; chunk >= 0; --chunk) {
    for (Value* addend : addends) {
      Value* part = state_.CopyOf(*addend, chunk);
      if (sum == nullptr) {
        sum = part;
        continue;
      }
      const int32_t region = state_.regions.Of(*addend);
      Meta meta = BoundaryMeta(region, ChunkRole::kMaterialization, -1, addend->producer());
      auto mark = std::make_shared<ChunkMeta>(*meta.chunk);
      mark->proof = proof;
      meta.chunk = std::move(mark);
      sum = state_.graph
                .Insert({kAdd,
                         {sum, part},
                         {OperandRef{0}, OperandRef{1}, Dim(1)},
                         std::move(meta),
                         value->name() + "_sum"},
                        before)
                ->result();
    }
  }
  ++state_.counts.sums;
  return sum;
}

}  // namespace gt
