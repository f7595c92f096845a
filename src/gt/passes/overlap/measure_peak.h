// Notes what a step needs of memory before it is cut into chunks, so that its schedule may need as
// much afterwards.
#pragma once

#include <string_view>

#include "gt/passes/framework/pass.h"

namespace gt {

struct MeasurePeakOptions {
  // As in BucketFsdpOptions, if the step will be bucketed later, and the copy that is measured with
  // it; negative: it will not.
  int64_t bucket_prefetch = -1;
};

class MeasurePeak : public Pass {
 public:
  // What PassContext calls the bytes that are noted.
  static constexpr std::string_view kNote = "whole_peak";

  explicit MeasurePeak(MeasurePeakOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  MeasurePeakOptions options_;
  Counter bytes_{this, "bytes", "in use at the peak, inputs not counted"};
};

}  // namespace gt
