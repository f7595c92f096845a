// The folder that a job writes to: --dump_folder with its placeholders filled in. Every run has one of
// its own by default, and `latest` beside them is the last one.
#pragma once

#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gt/job/config.h"
#include "gt/job/trajectory.h"

namespace gt {

// What is wrong with the text; empty: nothing. {model} and {time} are the placeholders.
std::string DumpFolderProblem(std::string_view text);

// Whether each run has a folder of its own: the text has a {time}.
bool IsFolderPerRun(std::string_view text);

// "outputs/llama3-debugmodel-20261119-205212" of "outputs/{model}-{time}".
std::string FillDumpFolder(const Config& config, std::time_t now);

// The folder above the first component with a placeholder.
std::filesystem::path FolderOfRuns(std::string_view text);

// Options in which two jobs differ and that their results may depend on; not where they write, or how often
// they report. Options must be resolved alike in both.
std::vector<OptionChange> JobDifferences(const Config& before, const Config& now);

}  // namespace gt
