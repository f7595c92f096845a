// The passes that a train step goes through, in order.
#pragma once

#include <optional>

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
};

// [x] marks passes that run only when asked for; those not listed in the code do not exist yet:
//   dead code, canonicalize, shared subexpressions, dead code, [memory-policy tags],
//   [rematerialization], [CPU offload], reshard after forward, [chunk, dead code], [isolate EP process
//   group], [FSDP all-gathers to their own group], [bucket and reorder FSDP collectives], [FSDP into
//   dense regions], [EP overlap schedule], [concretize], [async TP], compile, CUDA graphs.
// Cleaning comes first, so that every later pass sees one form of everything and pays for no dead
// node. Chunking comes before bucketing, while collectives are still one per parameter, and
// scheduling after whatever moves collectives, so that nothing undoes the schedule.
PassList DefaultPipeline(const PipelineOptions& options = {});

}  // namespace gt
