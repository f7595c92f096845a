// What a model weighs: parameters by part, arithmetic per token, and memory of one rank under a
// given parallelism. Nothing is allocated, so every model can be asked about on any machine.
//
// Parameters, gradients and optimizer state are exact up to rounding: they are divided by all
// ranks of a replica, dense ones by FSDP, context and tensor parallelism, those of experts by expert
// parallelism and what is left of the ranks, which is the same number. The rest is an estimate:
//
//   activations    tokens of a rank x bytes of the compute dtype / tensor parallelism x the sum of inputs and
//                  outputs of every matrix that a token passes (top_k experts of each mixture), the
//                  outputs of attention's matrices and of gates twice, with the embedding's output
//                  and the head's input. Nothing is recomputed.
//   logits         of one chunk of the loss: float32 logits, their gradient, and the gradient in
//                  the compute dtype
//   weight copies  parameters as they are computed with. With FSDP, two blocks at a time: the one
//                  in use and the next. Without it, all of them if they are cast, none otherwise.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gt/job/sections/training.h"

namespace gt {

struct Config;

enum class ModelPart {
  kEmbedding,
  kAttention,
  kDenseFfn,
  kRouter,
  kRoutedExperts,
  kSharedExperts,
  kNorms,
  kHead,
  kOther
};

template <>
inline constexpr std::array<std::string_view, 9> kEnumNames<ModelPart> = {
    "embedding",      "attention", "dense ffn", "router", "routed experts",
    "shared experts", "norms",     "head",      "other"};

struct ParallelDegrees {
  int64_t data_parallel_replicate = 1;
  int64_t data_parallel_shard = 1;
  int64_t context_parallel = 1;
  int64_t tensor_parallel = 1;
  int64_t expert_parallel = 1;  // over the ranks that share parameters

  // Ranks that share parameters, and all ranks.
  int64_t shards() const { return data_parallel_shard * context_parallel * tensor_parallel; }
  int64_t ranks() const { return data_parallel_replicate * shards(); }
};

// Those of --parallelism.* on --ranks ranks. Fails with BadMesh if they do not fit.
ParallelDegrees DegreesOf(const Config& config);

struct PartReport {
  ModelPart part;
  int64_t parameters = 0;  // of the whole model
  // Of one rank, in bytes.
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;

  int64_t bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

struct ModelReport {
  std::string title;
  ParallelDegrees degrees;
  TrainingDtype stored = TrainingDtype::kFloat32;
  TrainingDtype compute = TrainingDtype::kFloat32;
  int64_t batch = 0, length = 0;  // of one rank
  bool tied = false;              // the head is the embedding
  std::vector<PartReport> parts;  // those that the model has
  int64_t parameters = 0;
  int64_t active_parameters = 0;
  int64_t flops_per_token = 0;  // forward and backward
  // Estimates for one rank, in bytes.
  int64_t activation_bytes = 0;
  int64_t logit_bytes = 0;
  int64_t weight_copy_bytes = 0;

  PartReport Sum() const;  // of all parts
  int64_t bytes() const;   // of everything
};

// ConflictingOptions for degrees that do not divide what they split; the message names the law.
ModelReport ReportOnModel(const Config& config, const ParallelDegrees& degrees = {});

std::string ToTable(const ModelReport& report);
nlohmann::ordered_json ToJson(const ModelReport& report);

}  // namespace gt
