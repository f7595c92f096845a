// The train step under libtorch's autograd: the reference of what a captured step computes.
#pragma once

#include <memory>

#include "gt/models/loss.h"
#include "gt/models/model.h"
#include "gt/train/step/step.h"

namespace gt {

std::unique_ptr<TrainStep> MakeEagerStep(LanguageModel& model, const LossConfig& loss);

}  // namespace gt
