// [training]: what is trained on, how long, and in which precision.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/auto_switch.h"
#include "gt/config/option_struct.h"

namespace gt {

enum class TrainingDtype { kFloat32, kBfloat16 };
enum class ComputeDtype { kAuto, kFloat32, kBfloat16 };

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<TrainingDtype> = {"float32",
                                                                              "bfloat16"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<ComputeDtype> = {"auto", "float32",
                                                                             "bfloat16"};

struct TrainingSection {
  GT_OPTION(int64_t, steps, 150, AtLeast(1), "optimizer steps of the whole run");
  GT_OPTION(int64_t, seq_len, 256, Within(1, 16777216), "tokens per sequence");
  GT_OPTION(int64_t, local_batch_size, 8, Within(1, 1048576), "sequences at a time and rank");
  GT_OPTION(int64_t, global_batch_size, 0, Within(0, 1099511627776),
            "sequences per optimizer step over all ranks; gradients accumulate until they are "
            "reached. 0: one batch per rank");
  GT_OPTION(int64_t, seed, 42, AtLeast(0), "seed of initialization and of everything else random");
  GT_OPTION(bool, deterministic, false, Any(),
            "use only kernels that give the same bits in every run, also where others are faster");
  GT_OPTION(std::string, dataset, "sample", NotEmpty(),
            "name of the data set; sample is the text that ships with the program");
  GT_OPTION(
      StringList, dataset_path, {}, Paths(),
      "files, folders and patterns (*, ?, [a-z], ** for any depth) to read the data set from, "
      "in place of the one its name stands for: text, .jsonl (also .gz, .zst), .npy, .bin; "
      "may be repeated");
  GT_OPTION(std::string, text_field, "", Any(),
            "field of JSON lines that holds the text, also of validation data, such as body or "
            "message.body; empty: text, else content");
  GT_OPTION(AutoSwitch, shuffle, AutoSwitch::kAuto, Any(),
            "draw the order of the data anew from the seed for each pass over it; auto shuffles "
            "everything but pretokenized rows");
  GT_OPTION(int64_t, prefetch, 4, Within(0, 1024),
            "batches that a background thread prepares ahead; 0 prepares them in the loop");
  GT_OPTION(TrainingDtype, dtype, TrainingDtype::kFloat32, Any(),
            "type in which parameters are kept and updated");
  GT_OPTION(ComputeDtype, mixed_precision_param, ComputeDtype::kAuto, Any(),
            "type to which parameters are cast for forward and backward; auto: bfloat16 on GPUs, "
            "and elsewhere training.dtype");
  GT_OPTION(double, memory_limit_gb, 0.0, Within(0, 1048576),
            "GiB of the device's memory that each rank may use; 0: all there is");
  GT_OPTION(bool, check_memory, true, Any(),
            "refuse to start when the predicted peak of the step is above what the device has");
  GT_OPTION(double, max_norm, 1.0, AtLeast(0),
            "clip gradients to this global norm; 0 switches clipping off");
  GT_OPTION(int64_t, loss_chunks, 0, Within(0, 65536),
            "parts of the sequence for which logits and cross entropy are computed one after "
            "another; 0: as many as keep a part below 256 MiB, at least 2");
  GT_OPTION(double, z_loss_coeff, 0.0, AtLeast(0),
            "weight of the squared log of the softmax's denominator, which keeps logits small; 0 "
            "leaves it out");
  GT_END_OPTIONS(TrainingSection);
};

}  // namespace gt
