// The order in which the chunks of a region take turns, by rule alone: every exchange of tokens of
// one chunk is followed by work of the others. Knows no costs and no memory.
//
// A region is a chunked module in one direction. Its exchanges of tokens (all-to-alls; those of token
// counts are ordinary work) cut the schedule into rounds: in round k each chunk in turn does what its
// k-th exchange needs and launches it, and then all that can run without a further wait runs, whether
// a later exchange needs it or not. Collectives other than the launches, waits among them, run when
// something needs them: before the next launch, or at the end. Chunks take turns from the first
// to the last in the forward, from the last to the first in the backward.
//
// Forward of a module, two chunks (router r, dispatch D, its wait d, shared expert s, experts e,
// combine C, its wait c, output o):
//   r0 D0 r1 D1 s0 s1 d0 e0 C0 d1 e1 C1 c0 o0 c1 o1        each chunk launches when it can
//   r0 r1 D0 D1 s0 s1 d0 e0 C0 d1 e1 C1 c0 o0 c1 o1        first launches together
//
// Token counts that are read on the host are all read before the first exchange. What their copies
// need is first, then the copies, then the reads, so that the host waits in one place: once for
// each chunk, or, if first launches are together, once for all.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/analysis/dependencies.h"

namespace gt {

// All nodes by number, for ApplyOrder. Nodes outside of regions, and regions without exchanges, keep
// their order and run where the others need them. With `pair_first` the first launches of a region
// are together, which suits regions that begin with the router.
//
// Fails with ExchangeMismatch if the chunks of a region exchange tokens in different sequences, with
// CountSyncMismatch if token counts are read by some chunks only or after the first exchange, and
// with IllegalOrder, naming node and tie, if the dependencies forbid the order.
std::vector<int32_t> StructuralOrder(Graph& graph, const Dependencies& dependencies,
                                     bool pair_first);

}  // namespace gt
