#include "gt/passes/placement/sharded_calls.h"

#include <algorithm>
#include <utility>

#include "gt/base/error.h"

namespace gt {
namespace {

// The dimension of a tensor that one of these axes cuts; -1: none.
int64_t CutDim(const Placed& at, const placement::Pieces& pieces, const AxisList& axes) {
  for (int8_t axis : axes) {
    if (at.layout[axis] >= 0) return pieces[static_cast<size_t>(at.layout[axis])].dim;
  }
  return -1;
}

std::vector<Value*> ResultsOf(const Node& node) {
  std::vector<Value*> results;
  results.reserve(static_cast<size_t>(node.result_count()));
  for (int32_t i = 0; i < node.result_count(); ++i) results.push_back(node.result(i));
  return results;
}

// Operands that count along the dimension that is cut.
std::vector<int32_t> IndexOperands(const Node& node) {
  std::vector<int32_t> found;
  for (size_t i = 0; i < node.args().size(); ++i) {
    const std::string& name = node.op().schema.args[i].name;
    if (name != "index" && name != "indices" && name != "target") continue;
    const Argument& arg = node.arg(static_cast<int32_t>(i));
    if (const auto* ref = std::get_if<OperandRef>(&arg)) found.push_back(ref->index);
    if (const auto* list = std::get_if<OperandList>(&arg)) {
      std::copy_if(list->indices.begin(), list->indices.end(), std::back_inserter(found),
                   [](int32_t index) { return index >= 0; });
    }
  }
  return found;
}

bool IsLog(const Node& node) {
  return node.op().name.str().find("_log_softmax") != std::string::npos;
}
bool IsBackwardOf(const Node& node) {
  return node.op().name.str().find("backward") != std::string::npos;
}

}  // namespace

ShardRange ShardedCalls::RangeOf(const ShardedCall& call) const {
  auto range = [&](const Placed& at, const placement::Pieces& pieces) -> ShardRange {
    for (int8_t axis : call.axes) {
      const ShardState state = at.layout[axis];
      if (state < 0) continue;
      return make_.rank().Own(pieces[static_cast<size_t>(state)].dim_size, at.CutsOf(state));
    }
    return {0, -1};
  };
  for (size_t i = 0; i < call.operands_at.size(); ++i) {
    const ShardRange found = range(call.operands_at[i], call.operand_pieces[i]);
    if (found.length >= 0) return found;
  }
  for (size_t i = 0; i < call.results_at.size(); ++i) {
    const ShardRange found = range(call.results_at[i], call.result_pieces[i]);
    if (found.length >= 0) return found;
  }
  return {};
}

// Indices within the rank's range; others' become `elsewhere`.
ShardedCalls::LocalIndex ShardedCalls::Localize(Value* index, ShardRange range,
                                                const Dim& elsewhere) {
  Value* local =
      make_.Make("aten::sub.Tensor").Set("self", index).Set("other", Dim(range.begin)).Result();
  Value* below = make_.Make("aten::lt.Scalar").Set("self", local).Set("other", Dim(0)).Result();
  Value* above =
      make_.Make("aten::ge.Scalar").Set("self", local).Set("other", Dim(range.length)).Result();
  Value* others = make_.Make("aten::logical_or").Set("self", below).Set("other", above).Result();
  Value* masked = make_.Make("aten::masked_fill.Scalar")
                      .Set("self", local)
                      .Set("mask", others)
                      .Set("value", elsewhere)
                      .Result();
  return {masked, others};
}

std::vector<Value*> ShardedCalls::Masked(ShardedCall call) {
  const ShardRange range = RangeOf(call);
  const std::vector<int32_t> indices = IndexOperands(call.node);
  GT_CHECK(!indices.empty(), "masked indices of an operator that has none");
  if (IsLookUpOfRows(call, indices)) return {LookUp(std::move(call), range)};
  const int ignored = call.node.op().schema.Find("ignore_index");
  // A loss has a target that it ignores.
  const Dim elsewhere =
      ignored >= 0 ? std::get<Dim>(call.args[static_cast<size_t>(ignored)]) : Dim(range.length);
  for (int32_t i : indices) {
    Value*& index = call.operands[static_cast<size_t>(i)];
    index = Localize(index, range, elsewhere).index;
  }
  if (ignored >= 0) return ResultsOf(*emit_(call.node, call.operands, call.args));
  return WithOneMore(std::move(call), range);
}

// A row of the result for each index, in the same order, and zeros where others have the row.
bool ShardedCalls::IsLookUpOfRows(const ShardedCall& call, const std::vector<int32_t>& indices) {
  if (call.node.op().order != DimOrder::kLookedUp || indices != std::vector<int32_t>{1} ||
      call.operands.size() != 2 || call.operand_pieces[0].empty()) {
    return false;
  }
  const bool sums = std::any_of(call.axes.begin(), call.axes.end(), [&](int8_t axis) {
    return call.results_at[0].layout[axis] == kPartial;
  });
  const int64_t index_rank = call.operands[1]->type().rank();
  return sums && CutDim(call.operands_at[0], call.operand_pieces[0], call.axes) == 0 &&
         call.operands[0]->type().rank() == 2 &&
         call.node.result()->type().rank() == index_rank + 1;
}

// As the embedding of a tensor-parallel model does it: others' rows are looked up at 0 and cleared.
Value* ShardedCalls::LookUp(ShardedCall call, ShardRange range) {
  const LocalIndex local = Localize(call.operands[1], range, Dim(0));
  call.operands[1] = local.index;
  Value* found = emit_(call.node, call.operands, call.args)->result();
  Value* rows =
      make_.Make("aten::unsqueeze").Set("self", local.others).Set("dim", Dim(-1)).Result();
  return make_.Make("aten::masked_fill.Scalar")
      .Set("self", found)
      .Set("mask", rows)
      .Set("value", 0.0)
      .Result();
}

// Others' elements are directed to one more, which is zero and taken away again.
std::vector<Value*> ShardedCalls::WithOneMore(ShardedCall call, ShardRange range) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const int64_t dim = CutDim(call.operands_at[i], call.operand_pieces[i], call.axes);
    if (dim >= 0) call.operands[i] = make_.PadEnd(call.operands[i], dim, 1);
  }
  std::vector<Shape> sizes;
  for (size_t i = 0; i < call.results_at.size(); ++i) {
    sizes.push_back(mover_.LocalSizes(call.node.result(static_cast<int32_t>(i))->type().sizes,
                                      call.result_pieces[i], call.results_at[i]));
    const int64_t dim = CutDim(call.results_at[i], call.result_pieces[i], call.axes);
    if (dim >= 0) sizes.back()[static_cast<size_t>(dim)] += Dim(1);
  }
  std::vector<Value*> results = ResultsOf(
      *emit_(call.node, call.operands, LocalArguments(call.node.op(), call.node.args(), sizes)));
  for (size_t i = 0; i < results.size(); ++i) {
    const int64_t dim = CutDim(call.results_at[i], call.result_pieces[i], call.axes);
    if (dim >= 0) results[i] = make_.Slice(results[i], dim, 0, range.length);
  }
  return results;
}

std::vector<Value*> ShardedCalls::WithStatistics(const ShardedCall& call) {
  const bool log = IsLog(call.node);
  Value* result = nullptr;
  if (IsBackwardOf(call.node)) {
    result = SoftmaxBackward(call, log);
  } else if (call.node.result()->type().rank() < call.node.operand(0)->type().rank()) {
    result = LogSumExp(call);
  } else {
    result = Softmax(call, log);
  }
  const DType wanted = call.node.result()->type().dtype;
  if (result->type().dtype != wanted) {
    result = make_.Make("aten::_to_copy").Set("self", result).Set("dtype", wanted).Result();
  }
  return {result};
}

std::vector<Value*> ShardedCalls::Averaged(const ShardedCall& call) {
  Value* mean = emit_(call.node, call.operands, call.args)->result();
  return {make_.Make("aten::div.Tensor")
              .Set("self", mean)
              .Set("other", Dim(make_.rank().SizeOf(call.axes)))
              .Result()};
}

Value* ShardedCalls::InFloat(Value* x) {
  if (x->type().dtype == DType::kFloat32 || x->type().dtype == DType::kFloat64) return x;
  return make_.Make("aten::_to_copy").Set("self", x).Set("dtype", DType::kFloat32).Result();
}

// Along the dimension that is cut, which stays with size 1: the largest of all ranks' elements, and the sum of
// their exponentials, less that.
ShardedCalls::Exponentials ShardedCalls::Exponentiate(const ShardedCall& call) {
  const Shape dim = {Dim(CutDim(call.operands_at[0], call.operand_pieces[0], call.axes))};
  Value* x = InFloat(call.operands[0]);
  Value* own =
      make_.Make("aten::amax").Set("self", x).Set("dim", dim).Set("keepdim", true).Result();
  Value* most = make_.AllReduce(own, "max", call.axes);
  Value* shifted = make_.Make("aten::sub.Tensor").Set("self", x).Set("other", most).Result();
  Value* powers = make_.Make("aten::exp").Set("self", shifted).Result();
  Value* part = make_.Make("aten::sum.dim_IntList")
                    .Set("self", powers)
                    .Set("dim", dim)
                    .Set("keepdim", true)
                    .Result();
  return {dim[0], most, shifted, powers, make_.AllReduce(part, "sum", call.axes)};
}

Value* ShardedCalls::Softmax(const ShardedCall& call, bool log) {
  const Exponentials of = Exponentiate(call);
  if (!log) {
    return make_.Make("aten::div.Tensor").Set("self", of.powers).Set("other", of.sum).Result();
  }
  Value* logarithm = make_.Make("aten::log").Set("self", of.sum).Result();
  return make_.Make("aten::sub.Tensor").Set("self", of.shifted).Set("other", logarithm).Result();
}

Value* ShardedCalls::LogSumExp(const ShardedCall& call) {
  const Exponentials of = Exponentiate(call);
  Value* logarithm = make_.Make("aten::log").Set("self", of.sum).Result();
  Value* result =
      make_.Make("aten::add.Tensor").Set("self", logarithm).Set("other", of.most).Result();
  return make_.Make("aten::squeeze.dim").Set("self", result).Set("dim", of.dim).Result();
}

Value* ShardedCalls::SoftmaxBackward(const ShardedCall& call, bool log) {
  const Shape dim = {Dim(CutDim(call.operands_at[0], call.operand_pieces[0], call.axes))};
  Value *gradient = InFloat(call.operands[0]), *output = InFloat(call.operands[1]);
  auto product = [&](Value* a, Value* b) {
    return make_.Make("aten::mul.Tensor").Set("self", a).Set("other", b).Result();
  };
  auto difference = [&](Value* a, Value* b) {
    return make_.Make("aten::sub.Tensor").Set("self", a).Set("other", b).Result();
  };
  Value* part = make_.Make("aten::sum.dim_IntList")
                    .Set("self", log ? gradient : product(gradient, output))
                    .Set("dim", dim)
                    .Set("keepdim", true)
                    .Result();
  Value* sum = make_.AllReduce(part, "sum", call.axes);
  if (!log) return product(output, difference(gradient, sum));
  Value* powers = make_.Make("aten::exp").Set("self", output).Result();
  return difference(gradient, product(powers, sum));
}

std::vector<Value*> ShardedCalls::Sliced(const ShardedCall& call,
                                         std::vector<Value*> whole_operands) {
  const Node& node = call.node;
  Node* whole = emit_(node, std::move(whole_operands), {node.args().begin(), node.args().end()});
  std::vector<Value*> results;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    const auto at = static_cast<size_t>(i);
    Value* shard = mover_
                       .Move({whole->result(i), {}}, node.result(i)->type().sizes,
                             call.result_pieces[at], call.results_at[at])
                       .value;
    // A view would keep all that was drawn until the backward has used the shard.
    const bool keeps_whole = node.op().random && shard != whole->result(i);
    results.push_back(keeps_whole ? make_.Make("aten::clone").Set("self", shard).Result() : shard);
  }
  return results;
}

}  // namespace gt
