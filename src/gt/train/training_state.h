// What training changes: parameters, optimizer, place in the data; and checkpoints of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gt/train/checkpoint.h"
#include "gt/train/job.h"
#include "gt/train/metrics.h"
#include "gt/train/step/optimizer.h"

namespace gt {

struct TrainingState {
  // Gives the model memory and its first values.
  explicit TrainingState(Job& job);

  // Of the parts of parameters that this rank owns; `gradients` are in the order of `parameters`.
  std::vector<at::Tensor> OwnedGradients(const std::vector<at::Tensor>& gradients,
                                         int64_t rank) const;

  std::vector<at::Tensor> parameters;
  std::unique_ptr<AdamW> optimizer;
  std::unique_ptr<Checkpointer> checkpoints;
  Progress progress;

 private:
  std::vector<std::optional<bool>> owned_;  // by parameter, as nn::Parameter::owned
};

// Goes on from the checkpoint that --checkpoint.* asks for, if there is one. All ranks must call it.
void Resume(Job& job, TrainingState& state);

// Updates progress.best with the step's validation loss, if the best checkpoint is kept. True if it is
// the lowest so far, so that the state must be saved.
bool NoteValidation(const Job& job, Progress& progress, const StepMetrics& metrics);

// In the middle of a run.
void SaveCheckpoint(Job& job, TrainingState& state);

// At the end of a run: returns the flags that a command needs to continue from it, besides
// --checkpoint.enable. A run that did not ask for checkpoints leaves those of others alone.
std::string SaveLastCheckpoint(Job& job, TrainingState& state);

// Where the run was before a step.
struct BeforeStep {
  std::vector<nlohmann::json> data;  // of this rank's readers
  int64_t tokens = 0;
};

// Fails with NonFiniteLoss. The state before the step and the batch that broke it are left as a
// checkpoint: continuing from it reproduces the same numbers.
[[noreturn]] void FailNonFinite(Job& job, TrainingState& state, const StepMetrics& metrics,
                                BeforeStep before);

}  // namespace gt
