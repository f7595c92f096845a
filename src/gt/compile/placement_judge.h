// Which of several placements of a step is the fastest. Placement's own costs let moves hide behind any
// kernel of their phase, and links be used by one collective at a time; the simulator knows when what is
// under way. So each plan is carried out, goes through all passes, and is simulated.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gt/compile/prediction.h"
#include "gt/compile/single_device_step.h"
#include "gt/compile/step_request.h"
#include "gt/job/sections/compile.h"
#include "gt/placement/plan.h"

namespace gt {

struct JudgedPlan {
  size_t index = 0;
  Prediction prediction;
};
struct FastestOf : JudgedPlan {
  JudgedPlan unlimited;            // the fastest if memory did not matter
  std::vector<JudgedPlan> judged;  // all that could be carried out
};

// `step` is that of one device. Of plans that do not fit into memory the one that is least above it. Plans
// that cannot be carried out (not every one can be cut into chunks) are left out, unless none is left:
// then that of the first is the error.
FastestOf FastestPlan(const StepRequest& request, const EpOverlapSection& overlap,
                      SingleDeviceStep& step, std::span<const placement::Plan> plans);

// With all that the job's policy does after the trace, generated kernels among it, which plans are told
// apart without.
Prediction PredictPlan(const StepRequest& request, const EpOverlapSection& overlap,
                       SingleDeviceStep& step, const placement::Plan& plan);

}  // namespace gt
