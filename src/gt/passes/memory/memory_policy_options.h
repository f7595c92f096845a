// Options of the pass memory_policy.
#pragma once

#include <array>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/option_struct.h"

namespace gt {

// passes/memory/memory_policy.h says what each keeps.
enum class MemoryPolicy { kNone, kDefault, kEager, kFull, kSacAndOffload };

template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<MemoryPolicy> = {
    "none", "default", "eager", "full", "sac_and_offload"};

struct MemoryPolicyOptions {
  GT_OPTION(MemoryPolicy, policy, MemoryPolicy::kDefault, Any(),
            "how much of the forward is kept for the backward");
  GT_OPTION(StringList, full_recompute_save_ops, {}, Any(),
            "what `full` keeps nevertheless: FQN_PATTERN::OPERATOR, such as "
            "layers.*.attention.wq::aten::mm");
  GT_END_OPTIONS(MemoryPolicyOptions);
};

}  // namespace gt
