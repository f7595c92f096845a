// Which options decide where training goes: changing one of them between a checkpoint and the run
// that continues it may be intended, and is stated.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/job/config.h"

namespace gt {

// An option that changes nothing beyond rounding, or that is compared in another way; with a name
// that ends in ".*" a whole section of them. A new option counts until somebody adds it here.
struct OptionWithoutBearing {
  std::string_view name;
  std::string_view why;
};
std::span<const OptionWithoutBearing> OptionsWithoutBearing();

struct OptionChange {
  std::string name, before, now;  // values in TOML syntax
};

// What differs in the options that count. What options leave to the surroundings must be settled by
// the caller: precision, and the sequences of a step, which are to be in global_batch_size.
std::vector<OptionChange> TrajectoryChanges(const Config& before, const Config& now);

}  // namespace gt
