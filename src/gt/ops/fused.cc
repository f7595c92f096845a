// gt::fused: several operators as one kernel. Its nested graph is its meaning; where there is no
// kernel, the graph's operators run one by one and give the same bits.
#include <fmt/format.h>

#include "gt/ir/graph.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"

namespace gt {
namespace {

const Graph& BodyOf(const RuleContext& ctx) {
  const auto* body = std::get_if<GraphRef>(&ctx.arg(1));
  if (body == nullptr || *body == nullptr) ctx.Reject("body must be a graph");
  return **body;
}

// The verifier runs the rules of the nested nodes; here the two graphs must fit each other. Results
// are fresh memory, as passes and the memory engine take them to be: an output that shows an input,
// or another output, would be two names for one storage.
void FusedRule(RuleContext& ctx) {
  const std::vector<const TensorType*> operands = ctx.Tensors(0);
  const Graph& body = BodyOf(ctx);
  if (body.inputs().size() != operands.size()) {
    ctx.Reject(fmt::format("the body has {} inputs, {} tensors are given", body.inputs().size(),
                           operands.size()));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    if (body.inputs()[i]->value.type() == *operands[i]) continue;
    ctx.Reject(fmt::format("input {} of the body has another type than the tensor", i));
  }
  for (const auto& output : body.outputs()) {
    const Node* producer = output->value()->producer();
    if (producer == nullptr || producer->op().aliasing != Aliasing::kNone) {
      ctx.Reject(fmt::format("output %{} of the body shares memory with another value",
                             output->value()->name()));
    }
    ctx.Return(output->value()->type());
  }
}

Dim FusedFlops(const CostContext& cost) {
  Dim flops(0);
  for (const Node* node : std::get<GraphRef>(cost.args[1])->nodes()) flops += FlopsOf(*node);
  return flops;
}

}  // namespace

void RegisterFused(OperatorTable& table) {
  table.Add("gt::fused(Tensor[] inputs, Graph body) -> Tensor[]", FusedRule,
            {.work = Work::kFused, .order = DimOrder::kUnknown, .flops = FusedFlops});
}

}  // namespace gt
