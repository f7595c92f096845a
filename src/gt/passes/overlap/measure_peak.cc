#include "gt/passes/overlap/measure_peak.h"

#include "gt/passes/fsdp/bucket_fsdp.h"
#include "gt/sim/live_memory.h"

namespace gt {

MeasurePeak::MeasurePeak(MeasurePeakOptions options) {
  Declare(&options_);
  options_ = options;
}

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

bool MeasurePeak::RunImpl(Graph& graph, PassContext& context) {
  std::unique_ptr<Graph> copy = graph.Clone();
  if (options_.bucket_prefetch >= 0) {
    BucketFsdp({.fsdp_prefetch = options_.bucket_prefetch}).Run(*copy);
  }
  const int64_t peak = PeakInUse(*copy);
  context.Note(kNote, peak);
  bytes_ += peak;
  return false;
}

}  // namespace gt
