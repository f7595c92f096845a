// Finds JSON lines without a text before a run starts.
#pragma once

#include <string_view>

#include "gt/data/files.h"

namespace gt {

// Parses the first lines of up to 64 files, 8 MiB in all, and fails on the first line without a text
// in `text_field` (BadData), naming its file, number and fields. Later lines are checked when they
// are read.
void CheckDocuments(const DataFiles& data, std::string_view text_field);

}  // namespace gt
