// [comm]: how ranks communicate.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/option_struct.h"
#include "gt/job/sections/comm_backend.h"

namespace gt {

// What ranks compare of the files that they read.
enum class VerifyInputs { kNone, kSampled, kFull };

template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<VerifyInputs> = {"none", "sampled",
                                                                             "full"};

struct CommSection {
  GT_OPTION(CommBackend, backend, CommBackend::kAuto, Any(),
            "auto: nccl on GPUs, gloo on CPUs; fake: one process stands for all ranks and nothing "
            "is sent; emulated: one real rank, and collectives take the time that a cluster's "
            "links would need");
  GT_OPTION(int64_t, init_timeout_seconds, 300, Within(1, 31536000),
            "how long ranks wait for each other at the start");
  GT_OPTION(int64_t, train_timeout_seconds, 100, Within(1, 31536000),
            "how long a collective may take before the job is ended");
  GT_OPTION(VerifyInputs, verify_inputs, VerifyInputs::kSampled, Any(),
            "what ranks on several machines compare of the files that they read before the first "
            "step: sampled, the sizes and blocks of large files; full, every byte; none, nothing");
  GT_OPTION(int64_t, trace_buf_size, 2000, Within(1, 10000000),
            "collectives that the flight record keeps, for the report when a rank is lost");
  GT_OPTION(std::string, save_traces_folder, "comm_traces", NotEmpty(),
            "folder of flight records, below dump_folder unless it is absolute");
  GT_OPTION(std::string, cluster, "h100", NotEmpty(),
            "links that emulated collectives go over: a name in configs/clusters, or a .toml file");
  GT_OPTION(double, emulated_time_scale, 1.0, Within(0, 1e6),
            "factor on the time of emulated collectives; 0 makes them free");
  GT_OPTION(bool, contention, true, Any(),
            "collectives share links with each other and multiprocessors with compute, in "
            "predictions and on emulated links; false: as if each were alone");
  GT_OPTION(bool, share_groups, false, Any(),
            "axes of the mesh that consist of the same ranks use one process group, which saves "
            "communicators and lets their collectives queue behind each other");
  GT_OPTION(int64_t, pretended_rank, 0, Within(0, 1048575),
            "which rank the one process of fake and emulated stands for");
  GT_END_OPTIONS(CommSection);
};

}  // namespace gt
