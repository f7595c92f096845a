#include "gt/passes/pipeline/pipeline.h"

#include "gt/passes/cleanup/canonicalize.h"
#include "gt/passes/cleanup/common_subexpression_elimination.h"
#include "gt/passes/cleanup/concretize.h"
#include "gt/passes/cleanup/dead_code_elimination.h"
#include "gt/passes/fsdp/bucket_fsdp.h"
#include "gt/passes/fsdp/fsdp_dense_regions.h"
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"
#include "gt/passes/fsdp/reshard_after_forward.h"
#include "gt/passes/memory/cpu_offload.h"
#include "gt/passes/memory/rematerialize.h"
#include "gt/passes/overlap/isolate_ep_process_group.h"
#include "gt/passes/overlap/measure_peak.h"
#include "gt/passes/overlap/separate_count_exchanges.h"

namespace gt {

PassList DefaultPipeline(const PipelineOptions& options) {
  PassList passes;
  passes.push_back(std::make_unique<DeadCodeElimination>());
  passes.push_back(std::make_unique<Canonicalize>());
  if (options.share_subexpressions) {
    passes.push_back(std::make_unique<CommonSubexpressionElimination>());
  }
  passes.push_back(std::make_unique<DeadCodeElimination>());
  if (options.memory.policy != MemoryPolicy::kNone) {
    passes.push_back(std::make_unique<ApplyMemoryPolicy>(options.memory));
    passes.push_back(std::make_unique<Rematerialize>());
  }
  // Behind rematerialization: what is computed again is then a backward user as any other, and
  // reads what came back.
  if (options.memory.policy == MemoryPolicy::kSacAndOffload) {
    passes.push_back(std::make_unique<CpuOffload>(options.offload));
  }
  // Behind rematerialization: what is computed again then uses parameters that are gathered again.
  if (options.reshard_after_forward) passes.push_back(std::make_unique<ReshardParameters>());
  if (options.chunk) {
    if (options.overlap && options.overlap->mode == OverlapSchedule::kCost &&
        options.overlap->memory_headroom >= 0) {
      passes.push_back(std::make_unique<MeasurePeak>(
          MeasurePeakOptions{.bucket_prefetch = options.bucket_prefetch.value_or(-1)}));
    }
    passes.push_back(std::make_unique<Chunk>(*options.chunk));
    passes.push_back(std::make_unique<DeadCodeElimination>());
  }
  if (options.isolate_ep_group) {
    passes.push_back(std::make_unique<IsolateEpProcessGroup>());
  }
  if (options.overlap && options.overlap->mode != OverlapSchedule::kNone) {
    passes.push_back(std::make_unique<SeparateCountExchanges>());
  }
  if (options.reassign_gathers) {
    passes.push_back(std::make_unique<ReassignFsdpAllGathers>());
  }
  if (options.bucket_prefetch) {
    passes.push_back(
        std::make_unique<BucketFsdp>(BucketFsdpOptions{.prefetch = *options.bucket_prefetch}));
  }
  // Before the schedule, which then counts the time and memory of collectives where they start.
  if (options.dense_regions) passes.push_back(std::make_unique<FsdpDenseRegions>());
  if (options.overlap) {
    passes.push_back(std::make_unique<EpOverlapSchedule>(*options.overlap));
  }
  if (options.concretize) passes.push_back(std::make_unique<Concretize>());
  return passes;
}

}  // namespace gt
