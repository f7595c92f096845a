// The passes that a train step goes through, in order.
#pragma once

#include <optional>

#include "gt/passes/chunk.h"
#include "gt/passes/cpu_offload.h"
#include "gt/passes/memory_policy.h"
#include "gt/passes/pass.h"

namespace gt {

struct PipelineOptions {
  bool share_subexpressions = true;
  MemoryPolicyOptions memory = {.policy = MemoryPolicy::kNone};
  CpuOffloadOptions offload = {};  // for policy sac_and_offload
  bool reshard_after_forward = true;
  std::optional<ChunkOptions> chunk = {};
};

// [x] marks passes that run only when asked for; those not listed in the code do not exist yet:
//   dead code, canonicalize, shared subexpressions, dead code, [memory-policy tags],
//   [rematerialization], [CPU offload], reshard after forward, [chunk, dead code], [isolate EP process
//   group], [FSDP all-gathers to their own group], bucket and reorder FSDP collectives, [EP
//   overlap schedule, concretize], [FSDP into dense regions], [async TP], compile, CUDA graphs.
// Cleaning comes first, so that every later pass sees one form of everything and pays for no dead
// node. Chunking comes before bucketing, while collectives are still one per parameter, and
// scheduling after it, so that moving buckets cannot undo the schedule.
PassList DefaultPipeline(const PipelineOptions& options = {});

}  // namespace gt
