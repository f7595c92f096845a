// What a plan must be like for exchanges of tokens to be hidden behind the compute of another chunk. A search
// would not find it by itself where a step is so small that every rank best computes all of it.
#pragma once

#include <vector>

#include "gt/ir/graph.h"
#include "gt/placement/place_problem.h"

namespace gt::placement {

// Every rank has sequences of its own in the whole forward pass, and rows travel to their experts along the
// last axis.
std::vector<Pin> SendingRows(const Graph& step, const DeviceMesh& mesh);

}  // namespace gt::placement
