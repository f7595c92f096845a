// The pages of docs/ that are made from the program's own tables, so that they cannot go stale: a
// test compares the files with these functions.
#pragma once

#include <string>
#include <string_view>

namespace gt::cli {

std::string DocumentText(std::string_view page);  // "errors", "passes" or "torchtitan"

}  // namespace gt::cli
