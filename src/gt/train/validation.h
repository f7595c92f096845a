// The loss on data that is not trained on.
#pragma once

#include <cstdint>
#include <optional>

#include "gt/train/job.h"
#include "gt/train/signals.h"

namespace gt {

bool ValidatesAfter(const Job& job, int64_t step);

// A mean over tokens, of the same batches each time: from the beginning of the validation data. Nothing
// if any rank has received a signal: the run ends, and a mean over fewer batches would be taken for one
// over all. All ranks must call it.
std::optional<double> ValidationLoss(Job& job, const SignalWatch& signals);

}  // namespace gt
