// A batch of tokens on the device that trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gt/data/loader.h"
#include "gt/dist/mesh.h"

namespace gt {

// All three [rows, length], int64.
struct Batch {
  at::Tensor tokens;
  at::Tensor labels;     // the same, one position further
  at::Tensor positions;  // within the document
  int64_t valid_tokens = 0;
};

// Copied: the loader's batch may go away. With context parallelism, this rank's stretches of each
// sequence (nn/attention.h).
Batch ToDevice(const TokenBatch& batch, at::Device device, const Mesh& mesh = Mesh());

}  // namespace gt
