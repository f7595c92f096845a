#include "gt/base/resources.h"

#include <cstdlib>
#include <vector>

#include "gt/base/error.h"

namespace gt {

std::filesystem::path ResourcePath(std::string_view relative) {
  namespace fs = std::filesystem;
  std::vector<fs::path> roots;
  if (const char* home = std::getenv("GT_HOME")) roots.emplace_back(home);
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    roots.push_back(program / "../share/graphtrainer");
    // A build folder is build/<preset> below the source tree, and benchmarks have a folder in it.
    roots.push_back(program / "../..");
    roots.push_back(program / "../../..");
  }
  for (const fs::path& root : roots) {
    fs::path candidate = root / relative;
    if (fs::exists(candidate, error)) return candidate.lexically_normal();
  }
  Fail(ErrorCode::kDataUnreadable,
       "the file {} that comes with the program was not found; set GT_HOME to the folder that "
       "holds it",
       relative);
}

}  // namespace gt
