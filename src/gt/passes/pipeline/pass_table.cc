// All passes. A new one is a line here and an include above it.
#include <array>

#include "gt/fusion/fuse.h"
#include "gt/passes/autoparallel/bucket_by_size.h"
#include "gt/passes/autoparallel/prefetch_collectives.h"
#include "gt/passes/autoparallel/staged_recompute.h"
#include "gt/passes/autoparallel/tag_parameter_gathers.h"
#include "gt/passes/chunk/chunk.h"
#include "gt/passes/cleanup/canonicalize.h"
#include "gt/passes/cleanup/common_subexpression_elimination.h"
#include "gt/passes/cleanup/concretize.h"
#include "gt/passes/cleanup/dead_code_elimination.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/fsdp/bucket_fsdp.h"
#include "gt/passes/fsdp/fsdp_dense_regions.h"
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"
#include "gt/passes/fsdp/reshard_after_forward.h"
#include "gt/passes/memory/cpu_offload.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/passes/memory/rematerialize.h"
#include "gt/passes/overlap/ep_overlap_schedule.h"
#include "gt/passes/overlap/isolate_ep_process_group.h"
#include "gt/passes/overlap/measure_peak.h"
#include "gt/passes/overlap/separate_count_exchanges.h"

namespace gt {
namespace {

template <typename P>
std::unique_ptr<Pass> Make() {
  return std::make_unique<P>();
}

constexpr std::array kPasses = {
    PassEntry{"dce", Make<DeadCodeElimination>},
    PassEntry{"canonicalize", Make<Canonicalize>},
    PassEntry{"cse", Make<CommonSubexpressionElimination>},
    PassEntry{"memory_policy", Make<ApplyMemoryPolicy>},
    PassEntry{"rematerialize", Make<Rematerialize>},
    PassEntry{"cpu_offload", Make<CpuOffload>},
    PassEntry{"reshard_after_forward", Make<ReshardParameters>},
    PassEntry{"measure_peak", Make<MeasurePeak>},
    PassEntry{"chunk", Make<Chunk>},
    PassEntry{"isolate_ep_process_group", Make<IsolateEpProcessGroup>},
    PassEntry{"separate_count_exchanges", Make<SeparateCountExchanges>},
    PassEntry{"reassign_fsdp_all_gathers", Make<ReassignFsdpAllGathers>},
    PassEntry{"bucket_fsdp", Make<BucketFsdp>},
    PassEntry{"ep_overlap_schedule", Make<EpOverlapSchedule>},
    PassEntry{"concretize", Make<Concretize>},
    PassEntry{"fsdp_dense_regions", Make<FsdpDenseRegions>},
    PassEntry{"tag_parameter_gathers", Make<TagParameterGathers>},
    PassEntry{"staged_recompute", Make<StagedRecompute>},
    PassEntry{"bucket_by_size", Make<BucketBySize>},
    PassEntry{"prefetch_collectives", Make<PrefetchCollectives>},
    PassEntry{"fuse", Make<Fuse>},
};

}  // namespace

std::span<const PassEntry> AllPasses() { return kPasses; }

}  // namespace gt
