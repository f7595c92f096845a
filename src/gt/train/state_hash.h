// One number for the whole state of a model, the same however the model is spread over ranks: the sum
// over all elements of a mix of the tensor's name, the element's place in the whole tensor and its
// bits. Equal states have equal hashes; a single changed bit changes it.
#pragma once

#include <cstdint>

#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/models/model.h"

namespace gt {

// All ranks must call it; all get the hash of the whole model.
uint64_t StateHash(LanguageModel& model, World& world, const Mesh& mesh);

}  // namespace gt
