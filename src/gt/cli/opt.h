// gt opt: runs passes on a stored graph and prints the result.
#pragma once

#include <string>
#include <vector>

namespace gt {

// Arguments without "gt opt". Returns the exit code; errors are thrown as gt::Error.
int RunOpt(std::vector<std::string> args);

}  // namespace gt
