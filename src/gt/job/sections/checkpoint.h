// [checkpoint]: what is saved, when, and what a run starts from.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/option_struct.h"

namespace gt {

enum class CheckpointAsync { kDisabled, kAsync };
enum class ExportDtype { kFloat32, kBfloat16, kFloat16 };

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<CheckpointAsync> = {"disabled",
                                                                                "async"};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<ExportDtype> = {"float32", "bfloat16",
                                                                            "float16"};

struct CheckpointSection {
  GT_OPTION(bool, enable, false, Any(),
            "save checkpoints as the run goes, and continue from the latest one when there is one "
            "in the folder");
  GT_OPTION(std::string, folder, "checkpoint", NotEmpty(),
            "folder of the checkpoints, below dump_folder unless it is absolute");
  GT_OPTION(int64_t, interval, 500, AtLeast(1),
            "save every so many steps; the last step is always saved");
  GT_OPTION(int64_t, keep_latest_k, 3, Within(0, 1048576),
            "older checkpoints are removed once a newer one is complete; 0 keeps all");
  GT_OPTION(bool, keep_best, false, Any(),
            "also save whenever the validation loss is the lowest so far, and keep that checkpoint "
            "beside the latest ones until a better one is complete");
  GT_OPTION(CheckpointAsync, async_mode, CheckpointAsync::kAsync, Any(),
            "async writes in the background while training goes on; disabled waits");
  GT_OPTION(int64_t, load_step, -1, AtLeast(-1),
            "continue from this step's checkpoint; -1 takes the latest");
  GT_OPTION(bool, accept_changed_data, false, Any(),
            "continue although data or tokenizer have other contents than when the checkpoint was "
            "saved");
  GT_OPTION(
      bool, last_save_in_hf, true, Any(),
      "write the final weights as a Hugging Face folder (dump_folder/hf), which gt generate reads");
  GT_OPTION(ExportDtype, export_dtype, ExportDtype::kFloat32, Any(),
            "type of the weights in that folder");
  GT_END_OPTIONS(CheckpointSection);
};

}  // namespace gt
