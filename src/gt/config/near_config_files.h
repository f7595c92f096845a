// Suggests shipped config files (configs/) for a --config that does not exist, such as torchtitan's
// --config NAME.
#pragma once

#include <string>
#include <string_view>

namespace gt {

// The end of the error message: the files nearest to `wanted`, each as a command line of `command`. Empty
// if none is near and `wanted` looks like a path.
std::string NearConfigFiles(std::string_view wanted, std::string_view command);

}  // namespace gt
