// The loss on data that is not trained on.
#pragma once

#include <cstdint>

#include "gt/train/job.h"

namespace gt {

bool ValidatesAfter(const Job& job, int64_t step);

// A mean over tokens, of the same batches each time: from the beginning of the validation data. All
// ranks must call it.
double ValidationLoss(Job& job);

}  // namespace gt
