// Files that come with the program: data/ and configs/.
#pragma once

#include <filesystem>
#include <string_view>

namespace gt {

// Looks in $GT_HOME, then next to the program (share/graphtrainer of an installation), then in the
// source tree that the program was built in. Throws when the file is in none of them.
std::filesystem::path ResourcePath(std::string_view relative);

}  // namespace gt
