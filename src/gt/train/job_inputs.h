// The files that a job reads: whether all ranks read the same ones, and what a checkpoint remembers of
// their contents.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gt/data/loader.h"
#include "gt/dist/world.h"
#include "gt/storage/file_digest.h"

namespace gt {

struct Config;

struct InputFile {
  std::string option;  // that names it, such as "--model.hf_path"
  std::string name;    // below the path of the option
  std::filesystem::path path;
};

// Model, tokenizer, data, validation data, loads of experts, cluster, costs, plan. A file that only this
// machine lacks is missing from the list, and a path without any file is left to whoever needs it.
std::vector<InputFile> InputFilesOf(const Config& config);

// A line for each file: option, name, size, hash.
std::string DescribeInputs(const std::vector<InputFile>& files, DigestOf what);

// Fails with RanksDisagree if a rank reads another file than the first one. Threads of one process read
// the same files, and a rank that stands for all has nobody to compare with.
void AgreeOnInputs(World& world, const Config& config);

// Every rank must call it. Knows no contents if comm.verify_inputs is none.
DataContents ContentsOfData(World& world, const Config& config);

}  // namespace gt
