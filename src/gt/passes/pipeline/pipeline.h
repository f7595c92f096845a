// The passes that a train step goes through under gt's own policy, in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gt/fusion/fuse_options.h"
#include "gt/passes/chunk/chunk.h"
#include "gt/passes/framework/pass.h"
#include "gt/passes/memory/cpu_offload.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/passes/overlap/ep_overlap_schedule.h"

namespace gt {

struct PipelineOptions {
  bool share_subexpressions = true;
  MemoryPolicyOptions memory = {.policy = MemoryPolicy::kNone};
  CpuOffloadOptions offload = {};  // for policy sac_and_offload
  bool reshard_after_forward = true;
  std::optional<ChunkOptions> chunk = {};
  bool isolate_ep_group = false;
  bool reassign_gathers = false;
  std::optional<int64_t> bucket_prefetch = {};  // blocks; nothing: collectives stay one by one
  std::optional<EpOverlapOptions> overlap = {};
  bool dense_regions = false;
  bool concretize = false;  // the size that was left open to be cut
  std::optional<FuseOptions> fuse = {};
};

// The passes of a train step as text (passes/framework/registry.h); the options say which of them run:
//   dce, canonicalize, cse, dce, memory_policy, rematerialize, cpu_offload, reshard_after_forward,
//   measure_peak, chunk, dce, isolate_ep_process_group, separate_count_exchanges,
//   reassign_fsdp_all_gathers, bucket_fsdp, fsdp_dense_regions, ep_overlap_schedule, concretize,
//   fuse
// Cleaning is first, so that every later pass sees one form of everything and pays for no dead
// node. Chunking is before bucketing, while collectives are still one per parameter, and
// scheduling after whatever moves collectives, so that nothing undoes the schedule. Fusion is last:
// all others see plain operators.
std::string DefaultPipelineText(const PipelineOptions& options = {});
PassList DefaultPipeline(const PipelineOptions& options = {});

// What --compile.passes makes of a job's pipeline. Empty: what it was. A text that begins with '+':
// its passes run after the job's own, but before ep_overlap_schedule, prefetch_collectives and
// concretize, since nothing may undo the schedule and what is added finds sizes as symbols, like the passes before it. Any
// other text replaces the whole pipeline.
PassList ChangedPipeline(PassList passes, std::string_view change);

}  // namespace gt
