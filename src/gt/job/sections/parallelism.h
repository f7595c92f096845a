// [parallelism]: how the work is shared among ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/option_struct.h"

namespace gt {

enum class ReshardAfterForward { kDefault, kAlways, kNever };

template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<ReshardAfterForward> = {
    "default", "always", "never"};

struct ParallelismSection {
  GT_OPTION(int64_t, data_parallel_replicate_degree, 1, Within(1, 1048576),
            "copies of the sharded model, each with its own part of the batch (HSDP)");
  GT_OPTION(int64_t, data_parallel_shard_degree, -1, Within(-1, 1048576),
            "ranks that share parameters, gradients and optimizer state, each with its own part of "
            "the batch (FSDP); -1: all that the other degrees leave");
  GT_OPTION(int64_t, tensor_parallel_degree, 1, Within(1, 1048576),
            "ranks that share each layer's matrices, heads and the vocabulary, and the sequence "
            "between layers");
  GT_OPTION(int64_t, context_parallel_degree, 1, Within(1, 1048576),
            "ranks that share each sequence, attention included");
  GT_OPTION(int64_t, pipeline_parallel_degree, 1, Within(1, 1048576),
            "stages of layers; more than 1 is not supported yet");
  GT_OPTION(int64_t, expert_parallel_degree, 1, Within(1, 1048576),
            "ranks that share the experts of a layer; taken from those of dp_shard, cp and tp");
  GT_OPTION(ReshardAfterForward, fsdp_reshard_after_forward, ReshardAfterForward::kDefault, Any(),
            "free gathered parameters after forward and gather them again for backward: default "
            "and always do, never keeps them");
  GT_END_OPTIONS(ParallelismSection);
};

}  // namespace gt
