#include "gt/base/user_cache.h"

#include <cstdlib>

namespace gt {

std::filesystem::path UserCacheFolder() {
  namespace fs = std::filesystem;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "graphtrainer";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".cache/graphtrainer";
  }
  return {};
}

}  // namespace gt
