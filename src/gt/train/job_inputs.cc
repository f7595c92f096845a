#include "gt/train/job_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <system_error>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/data/files.h"
#include "gt/dist/agreement.h"
#include "gt/job/config.h"
#include "gt/job/derived_options.h"
#include "gt/sim/cluster_path.h"
#include "gt/storage/checksum.h"
#include "gt/train/job_data.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

class Inputs {
 public:
  // A file, or the files of a folder but for hidden ones.
  void Add(const std::string& option, const fs::path& path) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      files_.push_back({option, path.filename().string(), path});
      return;
    }
    std::vector<fs::path> inside;
    for (fs::directory_iterator i(path, error), end; !error && i != end; i.increment(error)) {
      const bool is_hidden = i->path().filename().string().starts_with('.');
      std::error_code ignored;
      if (!is_hidden && i->is_regular_file(ignored)) inside.push_back(i->path());
    }
    std::sort(inside.begin(), inside.end());
    for (const fs::path& file : inside) files_.push_back({option, file.filename().string(), file});
  }

  void AddData(const std::string& option, const StringList& paths) {
    std::optional<DataFiles> found;
    try {
      found = FindDataFiles(paths);
    } catch (const Error&) {  // the loader says it, and better
      return;
    }
    for (const DataFile& file : found->files) {
      files_.push_back({option, file.name, file.path});
      if (found->kind != DataKind::kBin) continue;
      const fs::path sidecar = SidecarOf(file.path);
      if (!sidecar.empty()) files_.push_back({option, sidecar.filename().string(), sidecar});
    }
  }

  std::vector<InputFile> Take() { return std::move(files_); }

 private:
  std::vector<InputFile> files_;
};

bool IsOfTokenizer(std::string_view name) {
  return std::ranges::any_of(
      std::array<std::string_view, 4>{"tokenizer", "vocab", "merges", "special_tokens"},
      [name](std::string_view start) { return name.starts_with(start); });
}

DigestOf WhatOf(const Config& config) {
  return config.comm.verify_inputs == VerifyInputs::kFull ? DigestOf::kWhole : DigestOf::kSamples;
}

std::vector<FileDigest> Digests(const std::vector<InputFile>& files, DigestOf what) {
  std::vector<fs::path> paths;
  for (const InputFile& file : files) paths.push_back(file.path);
  return DigestFiles(paths, what);
}

// One hash for all; empty if there is no file.
std::string HashOf(const std::vector<InputFile>& files) {
  if (files.empty()) return "";
  // Always of samples, so that a checkpoint does not depend on how ranks compare their files.
  return ChecksumText(Xxh64Of(DescribeInputs(files, DigestOf::kSamples)));
}

}  // namespace

std::vector<InputFile> InputFilesOf(const Config& config) {
  Inputs inputs;
  if (!config.model.hf_path.empty()) inputs.Add("--model.hf_path", config.model.hf_path);
  const std::string tokenizer = TokenizerPath(config);
  if (tokenizer != TextCodec::kBytes) inputs.Add("--model.tokenizer_path", tokenizer);
  inputs.AddData("--training.dataset_path", DataPaths(config));
  if (!config.validation.dataset_path.empty()) {
    inputs.AddData("--validation.dataset_path", config.validation.dataset_path);
  }
  if (config.debug.moe_load.ends_with(".json")) {
    inputs.Add("--debug.moe_load", config.debug.moe_load);
  }
  if (config.comm.cluster.ends_with(".toml")) inputs.Add("--comm.cluster", config.comm.cluster);
  if (const std::optional<std::string> costs = CostsPath(config)) {
    inputs.Add("--compile.costs_file", *costs);
  }
  if (!config.compile.autoparallel_plan.empty()) {
    inputs.Add("--compile.autoparallel_plan", config.compile.autoparallel_plan);
  }
  return inputs.Take();
}

std::string DescribeInputs(const std::vector<InputFile>& files, DigestOf what) {
  const std::vector<FileDigest> digests = Digests(files, what);
  std::string text;
  for (size_t i = 0; i < files.size(); ++i) {
    const FileDigest& digest = digests[i];
    text += fmt::format("{} {}: ", files[i].option, files[i].name);
    text += digest.size < 0
                ? "cannot be read\n"
                : fmt::format("{} bytes, xxh64 {}{}\n", digest.size, ChecksumText(digest.hash),
                              what == DigestOf::kSamples ? " of samples" : "");
  }
  return text;
}

void AgreeOnInputs(World& world, const Config& config) {
  const bool has_others = world.ranks_in_process() < world.size() && !world.pretended();
  if (!has_others || config.comm.verify_inputs == VerifyInputs::kNone) return;
  AgreeOnText(world, "list of input files", DescribeInputs(InputFilesOf(config), WhatOf(config)),
              "every rank must read the same files: copy them to all machines, or name a shared "
              "folder (--comm.verify_inputs none skips this comparison)");
}

DataContents ContentsOfData(World& world, const Config& config) {
  if (config.comm.verify_inputs == VerifyInputs::kNone) return {};
  const std::string text = world.DecideForAll("the contents of the data", [&config] {
    Inputs data, tokenizer;
    data.AddData("data", DataPaths(config));
    const std::string path = TokenizerPath(config);
    if (path != TextCodec::kBytes) tokenizer.Add("tokenizer", path);
    std::vector<InputFile> of_tokenizer = tokenizer.Take();  // its folder may be that of a model
    std::erase_if(of_tokenizer, [](const InputFile& file) { return !IsOfTokenizer(file.name); });
    return HashOf(data.Take()) + " " + HashOf(of_tokenizer);
  });
  const size_t space = text.find(' ');
  return {.data = text.substr(0, space), .tokenizer = text.substr(space + 1)};
}

}  // namespace gt
