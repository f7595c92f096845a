// [optimizer] and [lr_scheduler]: how gradients become updates.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/option_struct.h"

namespace gt {

enum class DecayType { kLinear, kCosine, kSqrt, kNone };

template <>
inline constexpr std::array<std::string_view, 4> kEnumNames<DecayType> = {"linear", "cosine",
                                                                          "sqrt", "none"};

struct OptimizerSection {
  GT_OPTION(double, lr, 8e-4, AtLeast(0), "learning rate at the height of the schedule");
  GT_OPTION(double, beta1, 0.9, WithinBelow(0, 1), "decay of the mean of gradients");
  GT_OPTION(double, beta2, 0.95, WithinBelow(0, 1), "decay of the mean of squared gradients");
  GT_OPTION(double, eps, 1e-8, Above(0), "added to the denominator of the update");
  GT_OPTION(double, weight_decay, 0.1, AtLeast(0), "decoupled weight decay");
  GT_OPTION(StringList, no_decay, {}, Any(),
            "parameters that do not decay, by pattern: components separated by dots, * for any "
            "one, ** for any number");
  GT_END_OPTIONS(OptimizerSection);
};

struct LrSchedulerSection {
  GT_OPTION(int64_t, warmup_steps, 2, AtLeast(0),
            "steps of linear warm-up; cut to training.steps in shorter runs");
  GT_OPTION(double, decay_ratio, 0.8, Within(0, 1),
            "share of the steps, at the end, that decay; cut to what warm-up leaves, so 1 decays "
            "right after it");
  GT_OPTION(DecayType, decay_type, DecayType::kLinear, Any(), "shape of the decay");
  GT_OPTION(double, min_lr_factor, 0.0, Within(0, 1),
            "share of the learning rate the decay ends at");
  GT_END_OPTIONS(LrSchedulerSection);
};

}  // namespace gt
