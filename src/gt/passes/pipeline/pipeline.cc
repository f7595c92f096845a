#include "gt/passes/pipeline/pipeline.h"

#include <algorithm>
#include <iterator>

#include "gt/base/text.h"
#include "gt/fusion/fuse.h"
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
#include "gt/passes/memory/rematerialize.h"
#include "gt/passes/overlap/isolate_ep_process_group.h"
#include "gt/passes/overlap/measure_peak.h"
#include "gt/passes/overlap/separate_count_exchanges.h"

namespace gt {
namespace {

template <typename P, typename... Options>
std::string SpecOf(const Options&... options) {
  return P(options...).Spec();
}

std::vector<std::string> SpecsOf(const PipelineOptions& options) {
  std::vector<std::string> specs;
  const auto add = [&specs](bool runs, auto spec) {
    if (runs) specs.push_back(spec());
  };
  const OverlapSchedule mode = options.overlap ? options.overlap->schedule : OverlapSchedule::kNone;
  const bool has_policy = options.memory.policy != MemoryPolicy::kNone;
  const bool bounds_growth =
      mode == OverlapSchedule::kCost && options.overlap->memory_headroom >= 0;

  add(true, SpecOf<DeadCodeElimination>);
  add(true, SpecOf<Canonicalize>);
  add(options.share_subexpressions, SpecOf<CommonSubexpressionElimination>);
  add(true, SpecOf<DeadCodeElimination>);
  add(has_policy, [&] { return SpecOf<ApplyMemoryPolicy>(options.memory); });
  add(has_policy, SpecOf<Rematerialize>);
  // After rematerialization: what is recomputed is then a backward user like any other, and reads
  // what came back.
  add(options.memory.policy == MemoryPolicy::kSacAndOffload,
      [&] { return SpecOf<CpuOffload>(options.offload); });
  // After rematerialization: what is recomputed then uses parameters that are gathered again.
  add(options.reshard_after_forward, SpecOf<ReshardParameters>);
  if (options.chunk) {
    add(bounds_growth, [&] {
      return SpecOf<MeasurePeak>(
          MeasurePeakOptions{.bucket_prefetch = options.bucket_prefetch.value_or(-1)});
    });
    specs.push_back(SpecOf<Chunk>(*options.chunk));
    specs.push_back(SpecOf<DeadCodeElimination>());
  }
  add(options.isolate_ep_group, SpecOf<IsolateEpProcessGroup>);
  add(mode != OverlapSchedule::kNone, SpecOf<SeparateCountExchanges>);
  add(options.reassign_gathers, SpecOf<ReassignFsdpAllGathers>);
  add(options.bucket_prefetch.has_value(), [&] {
    return SpecOf<BucketFsdp>(BucketFsdpOptions{.fsdp_prefetch = *options.bucket_prefetch});
  });
  // Before the schedule, which then counts the time and memory of collectives where they start.
  add(options.dense_regions, SpecOf<FsdpDenseRegions>);
  add(options.overlap.has_value(), [&] { return SpecOf<EpOverlapSchedule>(*options.overlap); });
  add(options.concretize, SpecOf<Concretize>);
  // Last, so that recomputation, chunks, buckets and schedules see operators. It moves nothing across
  // what a schedule is about.
  add(options.fuse.has_value(), [&] { return SpecOf<Fuse>(*options.fuse); });
  return specs;
}

bool EndsThePipeline(const std::unique_ptr<Pass>& pass) {
  const std::string_view name = pass->info().name;
  return name == "ep_overlap_schedule" || name == "prefetch_collectives" || name == "concretize" ||
         name == "fuse";
}

}  // namespace

std::string DefaultPipelineText(const PipelineOptions& options) {
  return Join(SpecsOf(options), ",");
}

PassList DefaultPipeline(const PipelineOptions& options) {
  return ParsePipeline(DefaultPipelineText(options));
}

PassList ChangedPipeline(PassList passes, std::string_view change) {
  if (change.empty()) return passes;
  if (!change.starts_with('+')) return ParsePipeline(change);
  PassList more = ParsePipeline(change.substr(1));
  passes.insert(std::find_if(passes.begin(), passes.end(), EndsThePipeline),
                std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return passes;
}

}  // namespace gt
