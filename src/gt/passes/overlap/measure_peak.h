// Notes what a step needs of memory before it is cut into chunks, so that its schedule may need as
// much afterwards.
#pragma once

#include <memory>
#include <optional>

#include "gt/passes/framework/pass.h"
#include "gt/passes/fsdp/bucket_fsdp.h"

namespace gt {

class MeasurePeak : public Pass {
 public:
  // `bucketing`, if given, is what will be done to the step later and is done to the measured one.
  explicit MeasurePeak(std::shared_ptr<int64_t> peak = std::make_shared<int64_t>(0),
                       std::optional<BucketFsdpOptions> bucketing = {})
      : peak_(std::move(peak)), bucketing_(bucketing) {}
  const PassInfo& info() const override;
  bool Run(Graph& graph) override;

 private:
  std::shared_ptr<int64_t> peak_;
  std::optional<BucketFsdpOptions> bucketing_;
  Counter bytes_{this, "bytes", "in use at the peak, inputs not counted"};
};

}  // namespace gt
