// The pages of docs/ that are made from the program's own tables, so that they cannot go stale: a
// test compares the files with these functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gt::cli {

std::vector<std::string> DocumentNames();
// docs/<name>.md.
std::string DocumentText(std::string_view name);

}  // namespace gt::cli
