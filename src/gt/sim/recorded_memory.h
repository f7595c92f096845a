// What CUDA graphs change about the memory of a step (exec/recorded_program.h). Recordings have memory of
// their own, in which they share blocks as the step frees them; between their replays nothing else can use
// it. So the device needs all that the allocator takes for recordings and, beside it, the most that the rest
// has in use, which may be at another time than theirs.
#pragma once

#include <cstdint>

#include "gt/analysis/recorded_spans.h"
#include "gt/ir/graph.h"
#include "gt/sim/storages.h"

namespace gt {

struct RecordedMemory {
  int64_t in_use = 0;  // the most by recordings at any time, workspace included; 0: there are none
  int64_t pool = 0;    // what the allocator takes for it: gaps between blocks come on top
  int64_t reserve =
      0;  // to be taken in one piece before anything is recorded, so that there are fewer gaps
  int64_t rest = 0;  // most that is in use outside of them, without what is alive all the time
};

// Of one memory, in the graph's order; what is alive all the time is not counted. `workspace`: what libraries
// keep for the stream on which is recorded.
RecordedMemory MeasureRecorded(const Graph& graph, const StorageTable& storages, DeviceKind device,
                               const SpanOptions& options, int64_t workspace = 0);

}  // namespace gt
