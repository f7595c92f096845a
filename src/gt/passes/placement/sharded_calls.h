// What a rank does beyond calling an operator on its shards (ShardMethod, ir/sharding.h): each of these
// makes the nodes that the conformance tests prove to add up to the operator on the whole.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "gt/passes/placement/moves.h"

namespace gt {

// A call that is to be made. Layouts of operands and results are by piece.
struct ShardedCall {
  const Node& node;  // of the whole step
  std::vector<Value*> operands;
  const std::vector<placement::Pieces>& operand_pieces;
  const std::vector<placement::Pieces>& result_pieces;
  std::vector<Placed> operands_at, results_at;
  std::vector<Argument> args;  // with the sizes of this rank's results
  AxisList axes = {};          // along which the call is special
};

class ShardedCalls {
 public:
  // Makes a node of the step with these operands and arguments; its first result has the node's name.
  using Emit = std::function<Node*(const Node& node, std::vector<Value*> operands,
                                   std::vector<Argument> args)>;

  ShardedCalls(NodeMaker& make, Mover& mover, Emit emit)
      : make_(make), mover_(mover), emit_(std::move(emit)) {}

  // Results in the order of the node's.
  std::vector<Value*> Masked(ShardedCall call);
  std::vector<Value*> WithStatistics(const ShardedCall& call);
  // Shards are equally long: the mean of all is the sum of their means, divided by their number.
  std::vector<Value*> Averaged(const ShardedCall& call);
  // Makes all of it, with the arguments and operands of the whole, and takes the shard. What was drawn is
  // alive as long as that takes, no longer.
  std::vector<Value*> Sliced(const ShardedCall& call, std::vector<Value*> whole_operands);

 private:
  struct LocalIndex {
    Value* index;
    Value* others;  // whether it is another rank's
  };
  LocalIndex Localize(Value* index, ShardRange range, const Dim& elsewhere);
  ShardRange RangeOf(const ShardedCall& call) const;
  static bool IsLookUpOfRows(const ShardedCall& call, const std::vector<int32_t>& indices);
  Value* LookUp(ShardedCall call, ShardRange range);
  std::vector<Value*> WithOneMore(ShardedCall call, ShardRange range);
  Value* InFloat(Value* x);
  struct Exponentials {
    Dim dim;
    Value *most, *shifted, *powers, *sum;
  };
  Exponentials Exponentiate(const ShardedCall& call);
  Value* Softmax(const ShardedCall& call, bool log);
  Value* LogSumExp(const ShardedCall& call);
  Value* SoftmaxBackward(const ShardedCall& call, bool log);

  NodeMaker& make_;
  Mover& mover_;
  Emit emit_;
};

}  // namespace gt
