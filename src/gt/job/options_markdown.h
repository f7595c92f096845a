// docs/options.md: every option of a job, as a table for each section.
#pragma once

#include <string>

namespace gt {

std::string OptionsMarkdown();

}  // namespace gt
