// One number for the whole state of a model, the same however the model is spread over ranks: the sum
// over all elements of a mix of the tensor's name, the element's place in the whole tensor and its
// bits. Equal states have equal hashes; a single changed bit changes it.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/dist/world.h"
#include "gt/models/model.h"
#include "gt/train/metrics.h"

namespace gt {

// All ranks must call these; all get the hash of the whole model. Parameters and buffers together:
uint64_t StateHash(LanguageModel& model, World& world);

// Before the update of a step. `gradients` are in the order of model.parameters(); undefined ones
// count as none. Buffers are those of every rank, so their hash depends on the layout: it shows
// when a token on any rank goes to another expert.
StepHashes HashStep(LanguageModel& model, const std::vector<at::Tensor>& gradients, World& world);

// Of a tensor that every rank has; its type does not matter. For StepHashes::experts.
uint64_t HashOfCounts(const at::Tensor& counts);

}  // namespace gt
