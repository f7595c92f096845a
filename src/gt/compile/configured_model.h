// The model that --model.*, --training.* and --parallelism.* describe, and the loss it is trained with.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/job/sections/checkpoint.h"
#include "gt/job/sections/training.h"
#include "gt/models/loss.h"
#include "gt/models/model.h"

namespace gt {

struct Config;

at::ScalarType ToTorch(TrainingDtype dtype);
at::ScalarType ToTorch(ExportDtype dtype);

// Built without data, as --model.* says, and casting its parameters for compute.
ModelPtr BuildConfiguredModel(const Config& config);
// The same, sharded over the ranks.
ModelPtr BuildConfiguredModel(const Config& config, World& world, const Mesh& mesh);
// Allocates it, and fills it with the weights of hf_path or from the seed.
void InitializeModel(LanguageModel& model, const Config& config, at::Device device);
// "llama3 debugmodel", or the folder it was read from.
std::string ModelTitle(const Config& config);

// Casts parameters to `dtype` wherever they are used; gradients are returned in the stored dtype.
void CastParametersForCompute(LanguageModel& model, at::ScalarType dtype);

LossConfig LossConfigOf(const Config& config, const LanguageModel& model);

}  // namespace gt
