// Where a trained model is: anything that gt train wrote, or a Hugging Face folder. Which weights and
// which tokenizer belong to it is read from what was written with them, never guessed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gt/job/config.h"
#include "gt/models/model.h"
#include "gt/train/job_data.h"

namespace gt {

// A Hugging Face folder, or one checkpoint of a run.
struct ModelSource {
  std::string hf_folder;         // empty: `checkpoints`, `step` and `config` count
  std::string checkpoints = {};  // the folder that has the steps
  int64_t step = -1;
  Config config = {};  // that the checkpoint was made with
};

// In place of a step: the checkpoint with the lowest validation loss (--checkpoint.keep_best).
inline constexpr int64_t kBestStep = -2;

// `folder` is a Hugging Face folder, the dump folder of a run, a folder of checkpoints, or a single
// checkpoint. Of a run, the checkpoints if it kept some, else the weights that it exported. `step`: -1
// takes the latest.
ModelSource FindModel(const std::string& folder, int64_t step = -1);

// "outputs/hf", or "step 10 of outputs/checkpoint".
std::string TitleOf(const ModelSource& source);

// `tokenizer` as --model.tokenizer_path; empty: the one that the model was trained with.
TextCodec CodecOf(const ModelSource& source, const std::string& tokenizer = "");

// Ready to run: on `device`, in float32 on the CPU and bfloat16 on a GPU, not training. Before any
// weights are read, BadPrompt if the model's positions end before the longest prompt and the new tokens
// do, and TokenOutOfVocabulary if its embedding lacks a token of a prompt.
ModelPtr LoadForGeneration(const ModelSource& source, std::span<const std::vector<int32_t>> prompts,
                           int64_t new_tokens, at::Device device);

}  // namespace gt
