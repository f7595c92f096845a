#include "gt/passes/placement/apply_placement.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "gt/base/error.h"
#include "gt/ir/describe.h"
#include "gt/passes/placement/buffer_updates.h"
#include "gt/passes/placement/expert_moves.h"
#include "gt/passes/placement/local_nodes.h"
#include "gt/passes/placement/placed_inputs.h"
#include "gt/passes/placement/placed_values.h"
#include "gt/passes/placement/plan_reader.h"
#include "gt/passes/placement/sharded_calls.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

using placement::ClassPieces;
using placement::Layout;
using placement::PieceRow;
using placement::Plan;

class Rewriter {
 public:
  Rewriter(const PlanReader& plan, Graph& local, int64_t rank,
           const std::map<std::string, PlacedInput>& stored)
      : plan_(plan),
        whole_(plan.whole()),
        local_(local),
        rank_(plan.mesh(), rank),
        inputs_(plan, stored),
        make_(local, rank_),
        mover_(make_, plan.OpenPieces()),
        values_(make_, mover_),
        nodes_(make_),
        experts_(whole_, make_),
        calls_(make_, mover_,
               [this](const Node& node, std::vector<Value*> operands, std::vector<Argument> args) {
                 return nodes_.Emit(node, std::move(operands), std::move(args));
               }) {}

  PlacedStep Run() {
    step_.rank = rank_.rank();
    for (const auto& input : whole_.inputs()) PlaceInput(*input);
    for (const Node* node : whole_.nodes()) Place(*node);
    for (size_t i = 0; i < whole_.outputs().size(); ++i) PlaceOutput(*whole_.outputs()[i], i);
    DeferBufferUpdates(local_);
    step_.moved = values_.moved();
    step_.exchanges = experts_.exchanges();
    step_.expert_axes = experts_.AxesByModule();
    return std::move(step_);
  }

 private:
  const placement::DeviceMesh& mesh() const { return plan_.mesh(); }

  void PlaceInput(const Input& input) {
    const placement::Pieces& pieces = plan_.PiecesOf(input);
    const Placed& placed = inputs_.Of(input);
    Input& local = *local_.inputs()[static_cast<size_t>(input.value.index())];
    TensorType type = input.value.type();
    type.sizes = mover_.LocalSizes(type.sizes, pieces, placed);
    // Shards are kept row by row, whatever the whole looked like.
    if (type.sizes != input.value.type().sizes) {
      type.strides = ContiguousStrides(type.sizes, local_.shapes());
    }
    local.value.set_type(std::move(type));
    local.placement = Name(ToString(placed.layout, pieces, mesh()));
    std::optional<Layout> kept = plan_.KeptLayout(input.value, pieces);
    if (!IsSharded(input) && !kept) kept = plan_.LayoutOf(input);
    values_.Add(input.value, {&pieces,
                              {&local.value, placed},
                              kept,
                              /*of_parameters=*/input.role == InputRole::kParameter});
    step_.inputs[input.name] = {placed, pieces, SizesOf(input.value.type())};
  }

  std::vector<int64_t> SizesOf(const TensorType& type) const {
    std::vector<int64_t> sizes;
    for (const Dim& size : type.sizes) sizes.push_back(SizeAt(size, whole_.shapes().Hints()));
    return sizes;
  }

  // One order for all tensors of a node, so that shards fit together. Activations are cut in the order of the
  // mesh, as their moves are priced: one that was cut otherwise would make all that it meets be sorted. What
  // is made of parameters follows these: the order of an operand which is there already, else the one in
  // which an operand arrives.
  AxisOrder ChooseOrder(const Node& node, const NodeLayouts& layouts) const {
    // Rows travel in the order of the mesh, their experts are where they arrive, and what says where a
    // rank's rows are cannot go to another one.
    if (experts_.SortOf(node) != nullptr) return kMeshOrder;
    // Of a gradient that is a sum of parts the order is decided when these are added up.
    for (int32_t i = 0; i < node.result_count(); ++i) {
      if (!CutsTwice(layouts.results[static_cast<size_t>(i)])) continue;
      if (const AxisOrder* order = inputs_.GradientOrder(*node.result(i))) return *order;
    }
    if (!IsOfParameters(node)) return kMeshOrder;
    std::optional<AxisOrder> arrives;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Layout& wanted = layouts.operands[static_cast<size_t>(i)];
      if (!CutsTwice(wanted)) continue;
      if (const AxisOrder* order = values_.OrderIn(*node.operand(i), wanted)) return *order;
      if (!arrives) arrives = values_.ArrivingOrder(*node.operand(i), wanted);
    }
    return arrives.value_or(kMeshOrder);
  }

  void Place(const Node& node) {
    const NodeLayouts layouts = plan_.LayoutsOf(node);
    const AxisOrder order = ChooseOrder(node, layouts);
    MetaScope scope(make_, node.meta());
    const ClassPieces& pieces = plan_.PiecesOf(node);
    ShardedCall call{node, {}, pieces.operands, pieces.results, {}, {}, {}, {}};
    for (const Layout& layout : layouts.operands) call.operands_at.push_back({layout, order});
    for (const Layout& layout : layouts.results) call.results_at.push_back({layout, order});
    const std::vector<Value*> results = Compute(call, layouts);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const auto at = static_cast<size_t>(i);
      values_.Add(*node.result(i), {&pieces.results[at],
                                    {results[at], call.results_at[at]},
                                    plan_.KeptLayout(*node.result(i), pieces.results[at]),
                                    IsOfParameters(node)});
      CheckSizes(node, i, call);
    }
    if (node.result_count() > 0) {
      results[0]->producer()->meta().placement =
          Name(ToString(layouts.results[0], pieces.results[0], mesh()));
    }
    const Node* sort = experts_.SortOf(node);
    if (sort == &node) experts_.Begin(node, values_.MadeAs(*node.result(0)));
    for (int32_t i = 0; i < node.result_count(); ++i) ReduceGradient(*node.result(i));
  }

  // A gradient is sent where it belongs as soon as it is there, so that the rest of the backward can hide
  // it.
  void ReduceGradient(const Value& value) {
    for (const Use& use : value.uses()) {
      if (use.node() != nullptr) continue;
      const Output& output = *whole_.outputs()[static_cast<size_t>(use.index())];
      if (output.role != OutputRole::kGradient) continue;
      if (const Input* parameter = inputs_.Find(output.name)) {
        values_.Bring(value, inputs_.Of(*parameter));
      }
    }
  }

  bool IsOfParameters(const Node& node) const {
    if (node.operand_count() == 0 || node.op().random) return false;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      if (!values_.IsOfParameters(*node.operand(i))) return false;
    }
    return true;
  }

  std::vector<Value*> Compute(ShardedCall& call, const NodeLayouts& layouts) {
    const Node& node = call.node;
    AxisList masked, statistics, random, sliced, averaged, travels;
    for (int number = 0; number < mesh().axes(); ++number) {
      if (node.result_count() == 0) break;
      const auto axis = static_cast<int8_t>(number);
      const PieceRow& row = plan_.RowAlong(node, layouts, axis);
      if (row.exchanged != PieceRow::kNothing) travels.push_back(axis);
      switch (row.method) {
        case ShardMethod::kPlain:
          break;
        case ShardMethod::kMaskedIndices:
          masked.push_back(axis);
          break;
        case ShardMethod::kStatistics:
          statistics.push_back(axis);
          break;
        case ShardMethod::kRandom:
          random.push_back(axis);
          break;
        case ShardMethod::kSliced:
          sliced.push_back(axis);
          break;
        case ShardMethod::kAveraged:
          averaged.push_back(axis);
          break;
      }
    }
    if (!travels.empty()) return Travel(call, travels);
    if (!random.empty()) return calls_.Sliced(call, WholeOperands(node));
    if (!sliced.empty()) return calls_.Sliced(call, {});
    BringOperands(call);
    SetArguments(call);
    if (!statistics.empty()) {
      call.axes = InOrder(statistics, call.operands_at[0].order);
      return calls_.WithStatistics(call);
    }
    if (!masked.empty()) {
      call.axes = InOrder(masked, call.operands_at[0].order);
      return calls_.Masked(call);
    }
    if (!averaged.empty()) {
      call.axes = averaged;
      return calls_.Averaged(call);
    }
    const Node* made = nodes_.Emit(node, call.operands, call.args);
    std::vector<Value*> results;
    results.reserve(static_cast<size_t>(made->result_count()));
    for (int32_t i = 0; i < made->result_count(); ++i) results.push_back(made->result(i));
    return results;
  }

  static AxisList InOrder(const AxisList& axes, const AxisOrder& order) {
    AxisList sorted;
    for (int8_t axis : order) {
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) sorted.push_back(axis);
    }
    return sorted;
  }

  void BringOperands(ShardedCall& call) {
    const Node& node = call.node;
    call.operands.clear();
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (Value* own = OfOwnRows(call, i)) {
        call.operands.push_back(own);
        continue;
      }
      call.operands.push_back(values_.Bring(*node.operand(i), call.operands_at[at]));
    }
  }

  // What is about the rank's own rows of experts, and so no part of what is about all of them: where the
  // rows of each expert end, and the numbers of rows.
  Value* OfOwnRows(const ShardedCall& call, int32_t operand) {
    const Node& node = call.node;
    if (node.op().work == Work::kGroupedProduct && operand == 2) return EndsOf(call);
    const Node* made = node.operand(operand)->producer();
    const Node* sort = experts_.SortOf(node);
    const bool numbers = sort != nullptr && ExpertMoves::IsInside(node) && made != nullptr &&
                         made->operand_count() == 0 && ExpertMoves::IsInside(*made);
    if (!numbers || !HasOwnRows(*sort)) return nullptr;
    const TensorType& rows = values_.MadeAs(*sort->result(0)).value->type();
    return make_.Arange(rows.sizes[0], rows.device);
  }

  // Whether each rank sorts rows of its own.
  bool HasOwnRows(const Node& sort) const {
    const Layout& rows = values_.MadeAs(*sort.result(0)).placed.layout;
    return std::any_of(rows.axes.begin(), rows.axes.end(),
                       [](ShardState state) { return state >= 0; });
  }

  // Grouped products of a rank's own rows, or of those that arrived, end where these end.
  Value* EndsOf(const ShardedCall& call) {
    const Node* sort = experts_.SortOf(call.node);
    if (sort == nullptr) return nullptr;
    for (const Placed& at : call.operands_at) {
      if (std::any_of(at.layout.axes.begin(), at.layout.axes.end(), placement::IsRouted)) {
        return experts_.ArrivedEnds(*sort);
      }
    }
    return HasOwnRows(*sort) ? experts_.OwnEnds(*sort) : nullptr;
  }

  // Rows leave for their experts after a lookup, and come back before one.
  std::vector<Value*> Travel(ShardedCall& call, const AxisList& travels) {
    const Node& node = call.node;
    const Node* sort = experts_.SortOf(node);
    GT_CHECK(sort != nullptr, "rows travel that no node has sorted");
    const AxisList axes = InOrder(travels, kMeshOrder);
    const bool back = placement::IsRouted(call.operands_at[0].layout[axes[0]]);
    BringOperands(call);
    SetArguments(call);
    if (back) {
      call.operands[0] = experts_.Return(*sort, call.operands[0], axes);
      return {nodes_.Emit(node, call.operands, call.args)->result()};
    }
    return {experts_.Send(*sort, nodes_.Emit(node, call.operands, call.args)->result(), axes)};
  }

  // Of a node that draws: what it draws like is as large as the whole.
  std::vector<Value*> WholeOperands(const Node& node) {
    std::vector<Value*> operands;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value& value = *node.operand(i);
      if (value.producer() != nullptr && value.producer()->op().work == Work::kAllocate) {
        operands.push_back(make_.Make("aten::empty.memory_format")
                               .Set("size", value.type().sizes)
                               .Set("dtype", value.type().dtype)
                               .Set("device", value.type().device)
                               .Result());
      } else {
        operands.push_back(values_.Bring(value, {}));
      }
    }
    return operands;
  }

  Shape LocalResult(const ShardedCall& call, size_t i) const {
    const Shape& sizes = call.node.result(static_cast<int32_t>(i))->type().sizes;
    const Layout& layout = call.results_at[i].layout;
    if (std::none_of(layout.axes.begin(), layout.axes.end(), placement::IsRouted)) {
      return mover_.LocalSizes(sizes, call.result_pieces[i], call.results_at[i]);
    }
    // Rows that have arrived are as many as were sent here.
    const Node& sort = *experts_.SortOf(call.node);
    Shape local = sizes;
    for (Dim& size : local) {
      if (size == sort.result()->type().sizes[0]) size = experts_.ArrivedRows(sort);
    }
    return local;
  }

  void SetArguments(ShardedCall& call) {
    std::vector<Shape> sizes;
    for (size_t i = 0; i < call.results_at.size(); ++i) sizes.push_back(LocalResult(call, i));
    if (sizes.empty()) {
      call.args.assign(call.node.args().begin(), call.node.args().end());
      return;
    }
    call.args = LocalArguments(call.node.op(), call.node.args(), sizes);
  }

  void CheckSizes(const Node& node, int32_t i, const ShardedCall& call) {
    const Layout& layout = call.results_at[static_cast<size_t>(i)].layout;
    if (!node.result(i)->type().defined()) return;
    if (std::any_of(layout.axes.begin(), layout.axes.end(), placement::IsRouted)) return;
    const Shape wanted = LocalResult(call, static_cast<size_t>(i));
    const Shape& got = values_.MadeAs(*node.result(i)).value->type().sizes;
    bool equal = wanted.size() == got.size();
    for (size_t d = 0; equal && d < wanted.size(); ++d) {
      equal = local_.shapes().KnownEqual(wanted[d], got[d]).value_or(false);
    }
    GT_CHECK(equal, "{}: a shard has other sizes than its layout {} says", DescribeNode(node),
             ToString(layout, call.result_pieces[static_cast<size_t>(i)], mesh()));
  }

  // Gradients and buffers are laid out as what they belong to; everything else is whole, unless the plan
  // says otherwise.
  void PlaceOutput(const Output& output, size_t position) {
    const Value& value = *output.value();
    Placed to;
    const bool belongs =
        output.role == OutputRole::kGradient || output.role == OutputRole::kBufferUpdate;
    if (const Input* input = belongs ? inputs_.Find(output.name) : nullptr) to = inputs_.Of(*input);
    Meta meta = value.producer() != nullptr ? value.producer()->meta() : Meta();
    MetaScope scope(make_, meta);
    local_.outputs()[position]->use.Set(values_.Bring(value, to));
  }

  const PlanReader& plan_;
  const Graph& whole_;
  Graph& local_;
  const MeshRank rank_;
  const PlacedInputs inputs_;
  NodeMaker make_;
  Mover mover_;
  PlacedValues values_;
  LocalNodes nodes_;
  ExpertMoves experts_;
  ShardedCalls calls_;
  PlacedStep step_;
};

void RequireMesh(const Plan& plan, int64_t rank) {
  const placement::DeviceMesh mesh(plan.mesh);
  if (rank < mesh.ranks()) return;
  Fail(ErrorCode::kBadPlan, "the plan is for mesh {}, which has no rank {}", mesh.ToString(), rank);
}

// Nodes without their uses: names and places of inputs and outputs stay.
void Empty(Graph& graph) {
  for (const auto& output : graph.outputs()) output->use.Set(nullptr);
  while (Node* last = graph.last()) graph.Erase(last);
}

}  // namespace

PlacedStep ApplyPlacement(Graph& graph, const Plan& plan, int64_t rank,
                          const std::map<std::string, PlacedInput>& stored) {
  RequireMesh(plan, rank);
  const std::unique_ptr<Graph> whole = graph.Clone();
  const PlanReader reader(*whole, plan);
  Empty(graph);
  return Rewriter(reader, graph, rank, stored).Run();
}

}  // namespace gt
