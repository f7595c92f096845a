// Shares a model out among the ranks of a mesh: tensor parallelism by the model's own plan, experts,
// sequences, and every parameter among the ranks that compute with the same block of it. The model is
// not allocated yet, and its code does not know.
#pragma once

#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/models/model.h"

namespace gt {

struct Config;

// Fails with NotDivisible or UnsupportedParallelism, naming the module, when the model cannot be
// sharded like that; then the model must not be used. Makes the groups that are needed, in the same
// order on every rank. Parameters are computed with in `compute`, whatever they are stored in.
void Parallelize(LanguageModel& model, World& world, const Mesh& mesh, const Config& config,
                 at::ScalarType compute);

}  // namespace gt
