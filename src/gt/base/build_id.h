#pragma once

#include <string>

namespace gt {

// The linker's mark on this very program: two builds of different sources never share it.
std::string BuildId();

}  // namespace gt
