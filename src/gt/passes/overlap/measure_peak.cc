#include "gt/passes/overlap/measure_peak.h"

#include "gt/sim/live_memory.h"

namespace gt {

const PassInfo& MeasurePeak::info() const {
  static constexpr PassInfo kInfo = {
      .name = "measure_peak",
      .summary = "Notes how much memory the step has in use at its peak.",
      .description =
          "Looks at a copy of the step, with its collectives packed as they are going to be. What "
          "is "
          "noted bounds the memory of ep_overlap_schedule later: a chunked step may need what the "
          "whole one would have needed.",
      .reads = "sizes, uses and aliasing of values.",
      .writes = "nothing.",
      .never = "changes the graph.",
  };
  return kInfo;
}

bool MeasurePeak::Run(Graph& graph) {
  std::unique_ptr<Graph> copy = graph.Clone();
  if (bucketing_) BucketFsdp(*bucketing_).Run(*copy);
  *peak_ = PeakInUse(*copy);
  bytes_ += *peak_;
  return false;
}

}  // namespace gt
