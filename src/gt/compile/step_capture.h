// The train step of a model as a graph, before any pass.
#pragma once

#include "gt/compile/step_request.h"
#include "gt/job/sections/compile.h"
#include "gt/trace/capture.h"

namespace gt {

// The step as eager runs it, but that the dimension that `overlap` cuts is a symbol. Its `enabled` is
// not auto; that of the request is not looked at.
// `parts`: of the dimension that is cut a rank will have one of so many.
Captured CaptureUncompiled(const StepRequest& request, const EpOverlapSection& overlap,
                           int64_t parts);
// As hand-written layouts share it out.
Captured CaptureUncompiled(const StepRequest& request, const EpOverlapSection& overlap);

}  // namespace gt
