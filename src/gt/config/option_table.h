// Options as a table of a Markdown page.
#pragma once

#include <span>
#include <string>

#include "gt/config/option.h"

namespace gt {

// Name, allowed values, default and help, with an empty line before it; nothing without options.
std::string OptionTable(std::span<const Option> options);

}  // namespace gt
