// The train step of a model as a graph, before any pass.
#pragma once

#include <c10/core/Device.h>

#include "gt/config/config.h"
#include "gt/dist/mesh.h"
#include "gt/models/model.h"
#include "gt/trace/capture.h"

namespace gt {

// The step as eager runs it. The dimension that `overlap` cuts is a symbol, and so is the batch
// dimension when `symbolic_batch`.
Captured CaptureUncompiled(LanguageModel& model, const Config& config,
                           const Config::Compile::EpOverlap& overlap, c10::Device device,
                           bool symbolic_batch, const Mesh& mesh);

}  // namespace gt
