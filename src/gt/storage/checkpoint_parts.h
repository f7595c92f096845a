// The manifest of a checkpoint that several ranks have written, from what each says of its part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gt/storage/checkpoint_manifest.h"

namespace gt {

// `parts` are texts of PartText, of every part one, in any order. CannotWrite if one is missing,
// damaged or of another save, or if they contradict each other.
Manifest ManifestOf(int64_t step, std::string_view temporary, std::span<const std::string> parts);

}  // namespace gt
