// The passes that a train step goes through under the policy of AutoParallel's backend, in order.
#pragma once

#include <optional>
#include <string>

#include "gt/passes/autoparallel/bucket_by_size_options.h"
#include "gt/passes/autoparallel/prefetch_collectives_options.h"
#include "gt/passes/autoparallel/staged_recompute_options.h"
#include "gt/passes/framework/pass.h"

namespace gt {

struct AutoparallelPipelineOptions {
  bool share_subexpressions = true;
  bool reshard_after_forward = true;
  StagedRecomputeOptions recompute = {};
  bool reassign_gathers = false;
  std::optional<BucketBySizeOptions> buckets = {};  // nothing: collectives stay one by one
  PrefetchCollectivesOptions prefetch = {};
  bool fuse = false;  // the whole graph is one region of generated kernels
};

// As text (passes/framework/registry.h):
//   dce, canonicalize, cse, dce, tag_parameter_gathers, staged_recompute, rematerialize,
//   reassign_fsdp_all_gathers, bucket_by_size, prefetch_collectives, fuse
// Cleaning also removes collectives whose results nobody uses, and with them their waits: all ranks
// have the same ones. Tags on gathers are there before the stages, which leave tagged nodes alone,
// and the order is chosen after whatever makes or packs collectives.
std::string AutoparallelPipelineText(const AutoparallelPipelineOptions& options = {});

}  // namespace gt
