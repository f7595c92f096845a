#include "gt/sim/queues.h"

#include <string>
#include <variant>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/collectives.h"
#include "gt/analysis/host_reads.h"

namespace gt {

std::string_view QueueOf(const Node& node) {
  const Operator& op = node.op();
  if (op.transfer == Transfer::kOffload) {
    return FeedsHostRead(*node.result()) ? "count copies" : "host copies";
  }
  if (op.transfer == Transfer::kReload) return "host copies back";
  return LaunchesCollective(op) ? std::string_view(GroupOf(node)) : "";
}

bool IsWait(const Operator& op) {
  return op.collective == Collective::kWait || op.transfer == Transfer::kWait;
}

const Node* AwaitedBy(const Node& wait) {
  // A wait may be for a part of the result, and for what another wait has returned.
  return IsWait(wait.op()) ? QueuedMakerOf(*wait.operand(0)) : nullptr;
}

const Node* QueuedMakerOf(const Value& value) {
  const Value* shown = &value;
  while (const Value* viewed = ViewedValue(*shown)) shown = viewed;
  const Node* node = shown->producer();
  return node != nullptr && !QueueOf(*node).empty() ? node : nullptr;
}

const Node* UnawaitedMakerOf(const Value& value) {
  for (const Value* shown = &value; shown != nullptr; shown = ViewedValue(*shown)) {
    const Node* node = shown->producer();
    if (node == nullptr || IsWait(node->op())) return nullptr;
    if (!QueueOf(*node).empty()) return node;
  }
  return nullptr;
}

}  // namespace gt
