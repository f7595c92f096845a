// Packs gathers of parameters and reductions of gradients by size, wherever in the model they are.
#pragma once

#include "gt/passes/autoparallel/bucket_by_size_options.h"
#include "gt/passes/framework/pass.h"

namespace gt {

// Members, packing and order are those of passes/fsdp/bucket_fsdp.h; this chooses other buckets. A
// bucket over a long span would make compute between its members wait for the last of them, or keep
// gathered parameters from the first use to the last: hence the limit on nodes.
class BucketBySize : public Pass {
 public:
  explicit BucketBySize(BucketBySizeOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  BucketBySizeOptions options_;
  Counter gather_buckets_{this, "gather_buckets", "collectives that gather several parameters now"};
  Counter gathers_{this, "gathers", "collectives that did so before"};
  Counter reduction_buckets_{this, "reduction_buckets",
                             "collectives that reduce several gradients now"};
  Counter reductions_{this, "reductions", "collectives that did so before"};
  Counter alone_{this, "alone", "collectives of the primary group that found no company"};
  Counter full_{this, "closed_by_bytes", "buckets that the next member would have made too large"};
  Counter long_{this, "closed_by_span", "buckets that the next member would have made too long"};
};

}  // namespace gt
