// The job of one device with the batch of all ranks, whose step placement starts from.
#pragma once

#include <cstdint>

#include "gt/models/model.h"

namespace gt {

struct Config;

// Sequences that all ranks together have in one forward and backward.
int64_t GlobalBatch(const Config& config, int64_t ranks);

// The configuration of a job on one device with the batch of all ranks. The loss is taken in as many parts
// as a rank of the job takes it in.
Config GlobalConfig(const Config& config, int64_t ranks, const LanguageModel& model);

}  // namespace gt
