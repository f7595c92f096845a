// Options as the text of a config file, read and written.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/config/dialect.h"
#include "gt/config/option.h"
#include "gt/config/problems.h"

namespace gt {

std::string ReadConfigFile(const std::string& path);

// Sets the options that the text names and adds a problem for everything that is wrong with it; keys
// that are fine are set. Throws if it is no TOML. Ranges are checked here, rules between options are
// not, since flags come later.
void ApplyToml(std::string_view text, std::string_view file_name, std::vector<OptionGroup>& groups,
               Dialect& dialect, Problems& problems);
// The same, with an unreadable file reported as one more problem. For a file that does not exist it lists
// similar ones, as command lines of `command`.
void ApplyTomlFile(const std::string& path, std::string_view command,
                   std::vector<OptionGroup>& groups, Dialect& dialect, Problems& problems);

// All options, in the form ApplyToml reads.
std::string OptionsAsToml(std::span<const OptionGroup> groups);

}  // namespace gt
