// The fingerprint of a configuration: equal ones mean that a train step captured and compiled under
// one configuration can be used under the other.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gt/job/config.h"

namespace gt {

// Covers every option but those of OptionsOutsideFingerprint, and the content of the files that
// options name and the compiled step depends on: the model's config.json (model.hf_path), the
// cluster (comm.cluster) and measured costs (compile.costs_file). A file that does not exist counts
// as such; whoever needs it will say so. The same in every process and on every machine.
//
// What options leave to the surroundings must be settled by the caller: `ranks` is to be the number
// of ranks there are, and `device` and `training.mixed_precision_param` not auto. `library_version`
// names everything else that a compiled step depends on: the versions of libtorch and of gt itself.
// ChecksumText (storage/checksum.h) writes the result as text.
uint64_t ConfigFingerprint(const Config& config, std::string_view library_version);

// An option that cannot change the step, or with a name that ends in ".*" a whole section of them.
// A new option is covered until somebody adds it here.
struct UncoveredOption {
  std::string_view name;
  std::string_view why;
};
std::span<const UncoveredOption> OptionsOutsideFingerprint();

}  // namespace gt
