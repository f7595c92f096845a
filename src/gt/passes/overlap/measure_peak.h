// Notes what a step needs of memory before it is cut into chunks, so that its schedule may need as
// much afterwards.
#pragma once

#include <string_view>

#include "gt/passes/framework/pass.h"

namespace gt {

struct MeasurePeakOptions {
  GT_OPTION(int64_t, bucket_prefetch, -1, AtLeast(-1),
            "the prefetch of the bucket_fsdp that comes later, with which the copy is bucketed "
            "before it is measured; negative: none comes");
  GT_END_OPTIONS(MeasurePeakOptions);
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
