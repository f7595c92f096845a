// What collectives have in common.
#pragma once

#include <string>

#include "gt/ir/graph.h"

namespace gt {

// The name of a collective's process group.
inline const std::string& GroupOf(const Node& collective) {
  return std::get<std::string>(collective.arg(collective.op().group_arg));
}

// Whether the operator starts a collective, rather than waits for one.
inline bool LaunchesCollective(const Operator& op) {
  return op.collective != Collective::kNone && op.collective != Collective::kWait;
}

}  // namespace gt
