// Weights in Hugging Face layout, in and out. Nothing but safetensors is ever read.
#pragma once

#include <string>

#include "gt/dist/world.h"
#include "gt/models/model.h"

namespace gt {

// Fills parameters and buffers of the model, which must be allocated, from the .safetensors files of
// the folder; of a model that is sharded over ranks, each reads its own shards. Files are
// memory-mapped, read on all cores and copied straight to where the model is; dtypes are converted to
// the model's on the way. Tensors that are missing, that the model does not know or whose shapes
// differ are one error that lists them all, and then nothing has been loaded.
void LoadHfWeights(LanguageModel& model, const std::string& folder);

// Writes config.json and the weights in `dtype`. When `original` names the folder the model came
// from, keys of its config.json that gt does not use are kept.
// A crash leaves each file old or new, never cut short. Of a model that is spread over ranks, all must
// call it: rank 0 writes, and has one tensor of the checkpoint in memory at a time.
void SaveHfFolder(LanguageModel& model, const std::string& folder, at::ScalarType dtype,
                  const std::string& original = "", World* world = nullptr,
                  int64_t max_shard_bytes = int64_t{5} << 30);

}  // namespace gt
