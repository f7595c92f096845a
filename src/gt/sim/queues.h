// Which nodes run beside the compute stream: in which queue, and who waits for them.
#pragma once

#include <string_view>

#include "gt/ir/graph.h"

namespace gt {

// The queue of a collective or a copy, which is also the name of its lane: the process group, "host
// copies", "count copies" (to the host, of what it reads), or "host copies back". Empty for all other
// nodes.
std::string_view QueueOf(const Node& node);

// Whether the node waits for a collective or a copy.
bool IsWait(const Operator& op);
// The collective or copy that a wait is for; null for other nodes.
const Node* AwaitedBy(const Node& wait);

// The collective or copy that made the memory which the value shows, through views and waits; null if
// that was made by another node.
const Node* QueuedMakerOf(const Value& value);
// The same through views alone: one that may still be under way when the value is used.
const Node* UnawaitedMakerOf(const Value& value);

}  // namespace gt
