#include "gt/passes/pipeline/autoparallel_pipeline.h"

#include <vector>

#include "gt/base/text.h"
#include "gt/fusion/fuse.h"
#include "gt/passes/autoparallel/bucket_by_size.h"
#include "gt/passes/autoparallel/prefetch_collectives.h"
#include "gt/passes/autoparallel/staged_recompute.h"
#include "gt/passes/autoparallel/tag_parameter_gathers.h"
#include "gt/passes/cleanup/canonicalize.h"
#include "gt/passes/cleanup/common_subexpression_elimination.h"
#include "gt/passes/cleanup/dead_code_elimination.h"
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"
#include "gt/passes/memory/rematerialize.h"

namespace gt {

std::string AutoparallelPipelineText(const AutoparallelPipelineOptions& options) {
  const std::string cleanup = DeadCodeElimination({.drop_collectives = true}).Spec();
  std::vector<std::string> specs = {cleanup, Canonicalize().Spec()};
  if (options.share_subexpressions) specs.push_back(CommonSubexpressionElimination().Spec());
  specs.push_back(cleanup);
  specs.push_back(TagParameterGathers({.reshard = options.reshard_after_forward}).Spec());
  specs.push_back(StagedRecompute(options.recompute).Spec());
  specs.push_back(Rematerialize().Spec());
  // Before buckets: a bucket is of one group.
  if (options.reassign_gathers) specs.push_back(ReassignFsdpAllGathers().Spec());
  if (options.buckets) specs.push_back(BucketBySize(*options.buckets).Spec());
  specs.push_back(PrefetchCollectives(options.prefetch).Spec());
  if (options.fuse) specs.push_back(Fuse().Spec());
  return Join(specs, ",");
}

}  // namespace gt
