// What CUDA graphs change about the memory of a step (exec/recorded_program.h). Recordings have memory of
// their own, in which they share blocks as the step frees them; between their replays nothing else can use
// it. So the device needs the most that recordings have in use at any time and, beside it, the most that the
// rest has, which may be at another.
#pragma once

#include <cstdint>

#include "gt/analysis/recorded_spans.h"
#include "gt/ir/graph.h"
#include "gt/sim/storages.h"

namespace gt {

struct RecordedMemory {
  int64_t pool = 0;  // most that recordings have in use; 0: there are none
  int64_t rest = 0;  // most that is in use outside of them, without what is alive all the time
};

// Of one memory, in the graph's order; what is alive all the time is not counted.
RecordedMemory MeasureRecorded(const Graph& graph, const StorageTable& storages, DeviceKind device,
                               const SpanOptions& options);

}  // namespace gt
