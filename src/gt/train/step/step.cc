#include "gt/train/step/step.h"

#include <ATen/ATen.h>

#include "gt/base/error.h"

namespace gt {

void TrainStep::Reorder(std::unique_ptr<Graph> /*graph*/) {
  GT_CHECK(false, "an eager step has no order that could be changed");
}

at::Tensor ValidTokens(int64_t count, const Batch& batch) {
  return at::scalar_tensor(static_cast<double>(count), batch.tokens.options().dtype(at::kFloat));
}

}  // namespace gt
