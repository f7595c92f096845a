// The folder in which gt keeps what can be made again: compiled kernels, measurements.
#pragma once

#include <filesystem>

namespace gt {

// graphtrainer in $XDG_CACHE_HOME, or in ~/.cache; empty where there is no home. May not exist yet.
std::filesystem::path UserCacheFolder();

}  // namespace gt
