#include "gt/passes/placement/apply_placement.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "gt/base/error.h"
#include "gt/ir/describe.h"
#include "gt/passes/placement/buffer_updates.h"
#include "gt/passes/placement/expert_moves.h"
#include "gt/passes/placement/moves.h"
#include "gt/passes/placement/sharded_calls.h"
#include "gt/placement/dim_pieces.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

using placement::ClassPieces;
using placement::Folding;
using placement::Layout;
using placement::PieceRow;
using placement::Pieces;
using placement::Plan;

bool CutsTwice(const Layout& layout) {
  for (size_t i = 0; i < layout.axes.size(); ++i) {
    if (layout.axes[i] < 0) continue;
    for (size_t j = i + 1; j < layout.axes.size(); ++j) {
      if (layout.axes[i] == layout.axes[j]) return true;
    }
  }
  return false;
}

// Where a move ends that sorts nothing: axes that are new to a piece cut it last.
AxisOrder NaturalOrder(const Placed& from, const Layout& to) {
  AxisList added;
  for (int8_t axis = 0; axis < placement::kMaxAxes; ++axis) {
    if (to[axis] >= 0 && from.layout[axis] != to[axis]) added.push_back(axis);
  }
  Placed end = from;
  end.MoveInside(added);
  return end.order;
}

// What is known of a value of the whole step.
struct PlacedValue {
  const Pieces* pieces = nullptr;
  std::optional<Layout> kept = {};
  LocalTensor made = {};
  std::vector<LocalTensor> stored = {};  // also as it is kept
  std::vector<LocalTensor> moved = {};   // as users wanted it in this phase
  Phase phase = Phase::kForward;         // of `moved`
  bool of_parameters = false;
};

// The layouts of a node, read from the plan.
struct NodeLayouts {
  std::vector<Layout> operands, results;
};

class Rewriter {
 public:
  Rewriter(const Graph& whole, Graph& local, const Plan& plan, int64_t rank,
           const std::map<std::string, PlacedInput>& stored, Folding folding,
           std::vector<ClassPieces> pieces)
      : whole_(whole),
        stored_(stored),
        local_(local),
        plan_(plan),
        rank_(placement::DeviceMesh(plan.mesh), rank),
        folding_(std::move(folding)),
        pieces_(std::move(pieces)),
        make_(local, rank_),
        mover_(make_, OpenPieces()),
        experts_(whole, make_),
        calls_(make_, mover_,
               [this](const Node& node, std::vector<Value*> operands, std::vector<Argument> args) {
                 return Emit(node, std::move(operands), std::move(args));
               }) {}

  PlacedStep Run() {
    step_.rank = rank_.rank();
    for (const auto& input : whole_.inputs()) PlaceInput(*input);
    FollowGradients();
    for (const Node* node : whole_.nodes()) Place(*node);
    for (size_t i = 0; i < whole_.outputs().size(); ++i) PlaceOutput(*whole_.outputs()[i], i);
    DeferBufferUpdates(local_);
    step_.exchanges = experts_.exchanges();
    return std::move(step_);
  }

 private:
  // Pieces of inputs whose sizes are symbols.
  std::set<int32_t> OpenPieces() const {
    std::set<int32_t> open;
    for (const auto& input : whole_.inputs()) {
      const auto class_index = folding_.class_of_input[static_cast<size_t>(input->value.index())];
      const Shape& sizes = input->value.type().sizes;
      for (const placement::Piece& piece : pieces_[static_cast<size_t>(class_index)].results[0]) {
        if (!sizes[static_cast<size_t>(piece.dim)].is_const()) open.insert(piece.id);
      }
    }
    return open;
  }

  const placement::DeviceMesh& mesh() const { return rank_.mesh(); }
  const ClassPieces& PiecesOf(const Node& node) const {
    const auto number = static_cast<size_t>(node.number());
    return pieces_[static_cast<size_t>(folding_.class_of_node[number])];
  }

  Layout Parse(const std::string& text, const Pieces& pieces, const std::string& what) const {
    const std::optional<Layout> layout = ParseLayout(text, pieces, mesh());
    if (!layout) {
      Fail(ErrorCode::kBadPlan,
           "the plan is for another step: {} cannot be laid out as {} on mesh {}", what, text,
           mesh().ToString());
    }
    return *layout;
  }

  // Inputs.

  void PlaceInput(const Input& input) {
    const auto position = static_cast<size_t>(input.value.index());
    const auto class_index = static_cast<size_t>(folding_.class_of_input[position]);
    PlacedValue& value = values_[&input.value];
    value.pieces = &pieces_[class_index].results[0];
    value.of_parameters = input.role == InputRole::kParameter;
    const Layout planned = InputLayout(input, *value.pieces);
    Placed placed;
    // Buffers and constants are whole on every rank: they are small, and checkpoints know them so.
    const bool sharded = input.role == InputRole::kParameter || input.role == InputRole::kInput;
    if (sharded) {
      placed.layout = planned;
      placed.order = OrderOf(input, planned);
      RequireBox(input, planned, *value.pieces);
    }
    value.kept = KeptLayout(input.value, *value.pieces);
    if (!sharded && !value.kept) value.kept = planned;
    Value* local = &local_.inputs()[position]->value;
    TensorType type = input.value.type();
    type.sizes = mover_.LocalSizes(type.sizes, *value.pieces, placed);
    // Shards are kept row by row, whatever the whole looked like.
    if (type.sizes != input.value.type().sizes) {
      type.strides = ContiguousStrides(type.sizes, local_.shapes());
    }
    local->set_type(std::move(type));
    value.made = {local, placed};
    value.stored = {value.made};
    step_.inputs[input.name] = {placed, *value.pieces, SizesOf(input.value.type())};
  }

  Layout InputLayout(const Input& input, const Pieces& pieces) const {
    auto found = plan_.inputs.find(input.name);
    if (found == plan_.inputs.end()) {
      Fail(ErrorCode::kBadPlan, "the plan is for another step: it says nothing of input {}",
           input.name);
    }
    return Parse(found->second, pieces, input.name);
  }

  std::vector<int64_t> SizesOf(const TensorType& type) const {
    std::vector<int64_t> sizes;
    for (const Dim& size : type.sizes) sizes.push_back(SizeAt(size, whole_.shapes().Hints()));
    return sizes;
  }

  void RequireBox(const Input& input, const Layout& layout, const Pieces& pieces) const {
    for (ShardState state : layout.axes) {
      if (state < 0 || pieces[static_cast<size_t>(state)].first) continue;
      Fail(ErrorCode::kBadPlan,
           "{} is cut within rows ({}): what a rank keeps must be a range of every dimension",
           input.name, ToString(layout, pieces, mesh()));
    }
  }

  std::optional<Layout> KeptLayout(const Value& value, const Pieces& pieces) const {
    std::string name = value.is_input() ? InputNameOf(value) : value.producer()->result()->name();
    if (!value.is_input() && value.index() > 0) name += fmt::format("#{}", value.index());
    auto found = plan_.kept.find(name);
    if (found == plan_.kept.end()) return std::nullopt;
    return Parse(found->second, pieces, name);
  }
  const std::string& InputNameOf(const Value& value) const {
    return whole_.inputs()[static_cast<size_t>(value.index())]->name;
  }

  // Of a parameter that several axes cut: those that stay when it is gathered for its first use are the
  // outer ones, so that the gather, and the reduction of its gradient, is one collective.
  AxisOrder OrderOf(const Input& input, const Layout& layout) {
    if (!CutsTwice(layout)) return kMeshOrder;
    if (auto found = stored_.find(input.name); found != stored_.end()) {
      return found->second.placed.order;
    }
    const std::optional<Layout> used = FirstUse(input.value, layout);
    Placed placed{layout, kMeshOrder};
    if (!used) return placed.order;
    AxisList gathered;
    for (int axis = 0; axis < mesh().axes(); ++axis) {
      if ((*used)[axis] == kWhole && layout[axis] >= 0) {
        gathered.push_back(static_cast<int8_t>(axis));
      }
    }
    placed.MoveInside(gathered);
    return placed.order;
  }

  // The layout that the first user wants, or the user after nodes that only pass it on.
  std::optional<Layout> FirstUse(const Value& value, const Layout& layout) {
    const Value* at = &value;
    const Pieces* pieces =
        &pieces_[static_cast<size_t>(folding_.class_of_input[static_cast<size_t>(value.index())])]
             .results[0];
    Layout now = layout;
    while (true) {
      if (const std::optional<Layout> kept = KeptLayout(*at, *pieces); kept && *kept != now) {
        return kept;
      }
      const Node* first = nullptr;
      int32_t operand = 0;
      for (const Use& use : at->uses()) {
        if (use.node() == nullptr || (first && use.node()->number() >= first->number())) continue;
        first = use.node();
        operand = use.index();
      }
      if (first == nullptr) return std::nullopt;
      const NodeLayouts layouts = LayoutsOf(*first);
      if (layouts.operands[static_cast<size_t>(operand)] != now) {
        return layouts.operands[static_cast<size_t>(operand)];
      }
      if (first->operand_count() != 1 || first->result_count() != 1) return std::nullopt;
      at = first->result();
      pieces = &PiecesOf(*first).results[0];
      now = layouts.results[0];
    }
  }

  // What leads to the gradient of such a parameter is cut in the parameter's order.
  void FollowGradients() {
    for (const auto& output : whole_.outputs()) {
      if (output->role != OutputRole::kGradient) continue;
      const Input* parameter = FindInput(output->name);
      if (parameter == nullptr) continue;
      const Placed& placed = values_.at(&parameter->value).made.placed;
      if (!CutsTwice(placed.layout)) continue;
      for (const Value* at = output->value(); at->producer() != nullptr;) {
        order_of_node_[at->producer()] = placed.order;
        if (at->producer()->operand_count() != 1) break;
        at = at->producer()->operand(0);
      }
    }
  }
  const Input* FindInput(const std::string& name) {
    if (input_of_.empty()) {
      for (const auto& input : whole_.inputs()) input_of_[input->name] = input.get();
    }
    auto found = input_of_.find(name);
    return found == input_of_.end() ? nullptr : found->second;
  }

  // Values.

  LocalTensor Move(const Value& value, const LocalTensor& from, const Placed& to) {
    if (!SamePlace(from.placed, to)) ++step_.moved;
    const PlacedValue& known = values_.at(&value);
    return mover_.Move(from, value.type().sizes, *known.pieces, to);
  }

  // Nothing but slices leads from one to the other.
  static bool IsFree(const Layout& from, const Layout& to) {
    for (size_t i = 0; i < to.axes.size(); ++i) {
      if (from.axes[i] != to.axes[i] && !(from.axes[i] == kWhole && to.axes[i] >= 0)) return false;
    }
    return true;
  }

  // The value where it is wanted. Moved once for all users in the same phase: what the forward gathers
  // is not kept for the backward, unless the plan keeps it so or it is made of parameters, which are
  // gathered again by the pass that knows when.
  Value* Bring(const Value& value, const Placed& to) {
    PlacedValue& known = values_.at(&value);
    const Phase phase = make_.meta().phase;
    if (known.phase != phase && !known.of_parameters) known.moved.clear();
    known.phase = phase;
    for (const auto* forms : {&known.stored, &known.moved}) {
      for (const LocalTensor& form : *forms) {
        if (SamePlace(form.placed, to)) return form.value;
      }
    }
    Keep(value, known);
    LocalTensor from = known.stored.back();
    for (const LocalTensor& form : known.stored) {
      if (IsFree(form.placed.layout, to.layout)) from = form;
    }
    for (const LocalTensor& form : known.moved) {
      if (IsFree(form.placed.layout, to.layout)) from = form;
    }
    LocalTensor there = Move(value, from, to);
    known.moved.push_back(there);
    return there.value;
  }

  void Keep(const Value& value, PlacedValue& known) {
    if (!known.kept || known.stored.size() > 1 || *known.kept == known.made.placed.layout) return;
    const Placed to{*known.kept, NaturalOrder(known.made.placed, *known.kept)};
    known.stored.push_back(Move(value, known.made, to));
  }

  // Nodes.

  NodeLayouts LayoutsOf(const Node& node) const {
    const ClassPieces& pieces = PiecesOf(node);
    NodeLayouts layouts;
    if (node.result_count() == 0) {  // computed by every rank
      layouts.operands.resize(static_cast<size_t>(node.operand_count()));
      return layouts;
    }
    const std::string& name = node.result()->name();
    auto found = plan_.nodes.find(name);
    if (found == plan_.nodes.end() || found->second.operands.size() != pieces.operands.size() ||
        found->second.results.size() != pieces.results.size()) {
      Fail(ErrorCode::kBadPlan, "the plan is for another step: it says nothing of {}",
           DescribeNode(node));
    }
    for (size_t i = 0; i < pieces.operands.size(); ++i) {
      layouts.operands.push_back(Parse(found->second.operands[i], pieces.operands[i], name));
    }
    for (size_t i = 0; i < pieces.results.size(); ++i) {
      layouts.results.push_back(Parse(found->second.results[i], pieces.results[i], name));
    }
    return layouts;
  }

  // One order for all tensors of a node, so that shards fit together: that of an operand which is there
  // already, else the one in which an operand arrives.
  AxisOrder ChooseOrder(const Node& node, const NodeLayouts& layouts) const {
    // Rows travel in the order of the mesh, their experts are where they arrive, and what says where a
    // rank's rows are cannot go to another one.
    if (experts_.SortOf(node) != nullptr) return kMeshOrder;
    if (auto found = order_of_node_.find(&node); found != order_of_node_.end()) {
      return found->second;
    }
    std::optional<AxisOrder> arrives;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Layout& wanted = layouts.operands[static_cast<size_t>(i)];
      if (!CutsTwice(wanted)) continue;
      const PlacedValue& known = values_.at(node.operand(i));
      for (const auto* forms : {&known.stored, &known.moved}) {
        for (const LocalTensor& form : *forms) {
          if (form.placed.layout == wanted) return form.placed.order;
        }
      }
      if (!arrives) arrives = NaturalOrder(known.stored.back().placed, wanted);
    }
    return arrives.value_or(kMeshOrder);
  }

  // The way of sharding that is taken along an axis.
  const PieceRow& RowAlong(const Node& node, const NodeLayouts& layouts, int axis) const {
    const ClassPieces& pieces = PiecesOf(node);
    auto fits = [axis](const std::vector<Layout>& all, const std::vector<ShardState>& states) {
      for (size_t i = 0; i < states.size(); ++i) {
        if (all[i][axis] != states[i]) return false;
      }
      return true;
    };
    for (const PieceRow& row : pieces.rows) {
      if (fits(layouts.operands, row.operands) && fits(layouts.results, row.results)) return row;
    }
    Fail(ErrorCode::kBadPlan, "the plan is for another step: {} cannot be sharded as it says",
         DescribeNode(node));
  }

  static Meta MetaOf(const Node& node) { return node.meta(); }

  void Place(const Node& node) {
    const NodeLayouts layouts = LayoutsOf(node);
    const AxisOrder order = ChooseOrder(node, layouts);
    MetaScope scope(make_, MetaOf(node));
    const ClassPieces& pieces = PiecesOf(node);
    ShardedCall call{node, {}, pieces.operands, pieces.results, {}, {}, {}, {}};
    for (const Layout& layout : layouts.operands) call.operands_at.push_back({layout, order});
    for (const Layout& layout : layouts.results) call.results_at.push_back({layout, order});
    std::vector<Value*> results = Compute(call, layouts);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const auto at = static_cast<size_t>(i);
      PlacedValue& value = values_[node.result(i)];
      value.pieces = &pieces.results[at];
      value.kept = KeptLayout(*node.result(i), *value.pieces);
      value.made = {results[at], call.results_at[at]};
      value.stored = {value.made};
      value.phase = node.meta().phase;
      value.of_parameters = IsOfParameters(node);
      CheckSizes(node, i, call);
    }
    const Node* sort = experts_.SortOf(node);
    if (sort == &node) experts_.Begin(node, results[0]);
    for (int32_t i = 0; i < node.result_count(); ++i) ReduceGradient(*node.result(i));
  }

  // A gradient is sent where it belongs as soon as it is there, so that the rest of the backward can hide
  // it.
  void ReduceGradient(const Value& value) {
    for (const Use& use : value.uses()) {
      if (use.node() != nullptr) continue;
      const Output& output = *whole_.outputs()[static_cast<size_t>(use.index())];
      if (output.role != OutputRole::kGradient) continue;
      if (const Input* parameter = FindInput(output.name)) {
        Bring(value, values_.at(&parameter->value).made.placed);
      }
    }
  }

  bool IsOfParameters(const Node& node) const {
    if (node.operand_count() == 0 || node.op().random) return false;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      if (!values_.at(node.operand(i)).of_parameters) return false;
    }
    return true;
  }

  std::vector<Value*> Compute(ShardedCall& call, const NodeLayouts& layouts) {
    const Node& node = call.node;
    AxisList masked, statistics, random, sliced, travels;
    for (int number = 0; number < mesh().axes(); ++number) {
      if (node.result_count() == 0) break;
      const auto axis = static_cast<int8_t>(number);
      const PieceRow& row = RowAlong(node, layouts, axis);
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
    const Node* made = Emit(node, call.operands, call.args);
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
      call.operands.push_back(Bring(*node.operand(i), call.operands_at[at]));
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
    if (!numbers || !IsSharded(*sort)) return nullptr;
    const TensorType& rows = values_.at(sort->result(0)).made.value->type();
    return make_.Arange(rows.sizes[0], rows.device);
  }

  // Whether each rank sorts rows of its own.
  bool IsSharded(const Node& sort) const {
    const Layout& rows = values_.at(sort.result(0)).made.placed.layout;
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
    return IsSharded(*sort) ? experts_.OwnEnds(*sort) : nullptr;
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
      return {Emit(node, call.operands, call.args)->result()};
    }
    return {experts_.Send(*sort, Emit(node, call.operands, call.args)->result(), axes)};
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
        operands.push_back(Bring(value, {}));
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

  // The node itself, with other operands; values keep their names where they are free.
  Node* Emit(const Node& node, std::vector<Value*> operands, std::vector<Argument> args) {
    FitNestedGraphs(args, operands);
    Graph::NodeSpec spec{&node.op(), std::move(operands), std::move(args), make_.meta(), ""};
    if (!node.bound_symbols().empty()) {
      Graph::Typed typed = TypedOf(node);
      typed.bound_symbols.assign(node.bound_symbols().begin(), node.bound_symbols().end());
      return local_.InsertTyped(std::move(spec), std::move(typed));
    }
    Graph::Typed typed = Infer(spec);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      typed.result_names.push_back(node.result(i)->name());
    }
    return local_.InsertTyped(std::move(spec), std::move(typed));
  }

  // A view that the strides of a shard do not allow looks into a copy of it.
  Graph::Typed Infer(Graph::NodeSpec& spec) {
    try {
      return local_.Infer(spec);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadOperands || !spec.op->is_view()) throw;
      spec.operands[0] = make_.Contiguous(spec.operands[0]);
      return local_.Infer(spec);
    }
  }

  // Functions of attention get the types of the tensors that they look things up in.
  void FitNestedGraphs(std::vector<Argument>& args, const std::vector<Value*>& operands) {
    const OperandList* list = nullptr;
    for (Argument& arg : args) {
      if (const auto* operand_list = std::get_if<OperandList>(&arg)) list = operand_list;
      auto* nested = std::get_if<GraphRef>(&arg);
      if (nested == nullptr || *nested == nullptr || list == nullptr) continue;
      std::vector<const TensorType*> captures;
      for (int32_t index : list->indices) {
        captures.push_back(&operands[static_cast<size_t>(index)]->type());
      }
      *nested = Fitting(*nested, captures);
    }
  }
  GraphRef Fitting(const GraphRef& nested, const std::vector<const TensorType*>& captures) {
    auto fits = [&captures](const Graph& graph) {
      auto inputs = graph.inputs().last(captures.size());
      for (size_t i = 0; i < captures.size(); ++i) {
        if (inputs[i]->value.type() != *captures[i]) return false;
      }
      return true;
    };
    std::vector<GraphRef>& copies = nested_[nested.get()];
    for (const GraphRef& copy : copies) {
      if (fits(*copy)) return copy;  // layers share their functions
    }
    copies.push_back(nested->CloneInto(local_, captures));
    return copies.back();
  }

  void CheckSizes(const Node& node, int32_t i, const ShardedCall& call) {
    const Layout& layout = call.results_at[static_cast<size_t>(i)].layout;
    if (!node.result(i)->type().defined()) return;
    if (std::any_of(layout.axes.begin(), layout.axes.end(), placement::IsRouted)) return;
    const Shape wanted = LocalResult(call, static_cast<size_t>(i));
    const Shape& got = values_.at(node.result(i)).made.value->type().sizes;
    bool equal = wanted.size() == got.size();
    for (size_t d = 0; equal && d < wanted.size(); ++d) {
      equal = local_.shapes().KnownEqual(wanted[d], got[d]).value_or(false);
    }
    GT_CHECK(equal, "{}: a shard has other sizes than its layout {} says", DescribeNode(node),
             ToString(layout, call.result_pieces[static_cast<size_t>(i)], mesh()));
  }

  // Outputs.

  // Gradients and buffers are laid out as what they belong to; everything else is whole, unless the plan
  // says otherwise.
  void PlaceOutput(const Output& output, size_t position) {
    const Value& value = *output.value();
    Placed to;
    const bool belongs =
        output.role == OutputRole::kGradient || output.role == OutputRole::kBufferUpdate;
    if (const Input* input = belongs ? FindInput(output.name) : nullptr) {
      to = values_.at(&input->value).made.placed;
    }
    Meta meta = value.producer() != nullptr ? value.producer()->meta() : Meta();
    MetaScope scope(make_, meta);
    local_.outputs()[position]->use.Set(Bring(value, to));
  }

  const Graph& whole_;
  const std::map<std::string, PlacedInput>& stored_;
  Graph& local_;
  const Plan& plan_;
  const MeshRank rank_;
  const Folding folding_;
  const std::vector<ClassPieces> pieces_;
  NodeMaker make_;
  Mover mover_;
  ExpertMoves experts_;
  ShardedCalls calls_;
  std::unordered_map<const Value*, PlacedValue> values_;
  std::unordered_map<const Node*, AxisOrder> order_of_node_;
  std::unordered_map<std::string, const Input*> input_of_;
  std::unordered_map<const Graph*, std::vector<GraphRef>> nested_;
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
  Folding folding = placement::Fold(*whole);
  std::vector<ClassPieces> pieces = placement::FindPieces(folding, whole->shapes().Hints());
  Empty(graph);
  return Rewriter(*whole, graph, plan, rank, stored, std::move(folding), std::move(pieces)).Run();
}

}  // namespace gt
