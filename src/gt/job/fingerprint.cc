#include "gt/job/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <vector>

#include "gt/base/error.h"
#include "gt/job/derived_options.h"
#include "gt/sim/cluster_path.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

// When in doubt, an option stays out of this table: a step compiled once too often costs minutes, a
// wrong one costs the run.
constexpr auto kUncovered = std::to_array<UncoveredOption>({
    // The step ends with gradients; what is done with them comes after it.
    {"optimizer.*", "updates happen behind the step"},
    {"lr_scheduler.*", "the learning rate belongs to the update"},
    {"training.max_norm", "clipping belongs to the update"},
    // How long, and on what.
    {"training.steps", "every step is the same"},
    {"training.seed", "random operators draw from a generator that is no part of the step"},
    {"training.dataset", "tokens are inputs of the step"},
    {"training.dataset_path", "tokens are inputs of the step"},
    {"training.text_field", "tokens are inputs of the step"},
    {"training.shuffle", "tokens are inputs of the step"},
    {"training.prefetch", "tokens are inputs of the step"},
    {"model.tokenizer_path", "the model says how large the vocabulary is, not the tokenizer"},
    {"validation.*", "validation has a step of its own"},
    // What is written and reported.
    {"dump_folder", "where files go"},
    {"overwrite", "where files go"},
    {"checkpoint.*", "what is saved, and when"},
    {"metrics.*", "what is reported"},
    {"profiling.*", "what is measured"},
    {"compile.debug_graph_passes", "dumps graphs, changes none"},
    {"compile.debug_graph_passes_ranks", "dumps graphs, changes none"},
    // What is waited for and refused.
    {"training.check_memory", "refuses to start, changes nothing"},
    {"comm.init_timeout_seconds", "how long to wait"},
    {"comm.train_timeout_seconds", "how long to wait"},
    {"comm.verify_inputs", "compares files"},
    {"comm.trace_buf_size", "what the report of a lost rank shows"},
    {"comm.save_traces_folder", "where files go"},
    {"debug.fault", "happens between steps"},
});

bool IsCovered(std::string_view path) {
  return std::none_of(kUncovered.begin(), kUncovered.end(), [path](const UncoveredOption& entry) {
    return NamesOption(entry.name, path);
  });
}

struct NamedFile {
  std::string_view name;  // in the fingerprint's text, unlike that of any option
  std::optional<std::filesystem::path> path;
};

// A name in configs/clusters that is none is an error only for those who use the cluster.
std::optional<std::filesystem::path> ClusterFile(const Config& config) {
  try {
    return ClusterPath(config.comm.cluster);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The files whose content the compiled step depends on.
std::vector<NamedFile> FilesOf(const Config& config) {
  std::vector<NamedFile> files;
  if (!config.model.hf_path.empty()) {
    files.push_back({"config.json", std::filesystem::path(config.model.hf_path) / "config.json"});
  }
  files.push_back({"cluster file", ClusterFile(config)});
  if (std::optional<std::string> costs = CostsPath(config)) files.push_back({"costs", *costs});
  if (!config.compile.autoparallel_plan.empty()) {
    files.push_back({"placement plan", config.compile.autoparallel_plan});
  }
  if (config.debug.moe_load.ends_with(".json")) {
    files.push_back({"loads", config.debug.moe_load});
  }
  return files;
}

// One spelling for one folder.
std::string FolderText(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  return path.string();
}

// Nothing for a file that cannot be read: whoever needs it will say so, and better.
std::optional<std::string> ContentOf(const NamedFile& named) {
  std::error_code ignored;
  if (!named.path || !std::filesystem::is_regular_file(*named.path, ignored)) return std::nullopt;
  std::ifstream file(*named.path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

std::span<const UncoveredOption> OptionsOutsideFingerprint() { return kUncovered; }

// One line for each thing. Values in TOML syntax have no line breaks and no second reading, so that
// different configurations have different texts.
uint64_t ConfigFingerprint(const Config& config, std::string_view library_version) {
  std::string text = fmt::format("version = {}\n", Quoted(library_version));
  Config spelled = config;
  spelled.model.hf_path = FolderText(config.model.hf_path);
  ForEachOption(spelled, [&text](const Option& option) {
    if (!IsCovered(option.path())) return;
    text += fmt::format("{} = {}\n", option.path(), option.TomlText());
  });
  for (const NamedFile& file : FilesOf(config)) {
    const std::optional<std::string> content = ContentOf(file);
    text += content ? fmt::format("{} = {}\n", file.name, Quoted(*content))
                    : fmt::format("no {}\n", file.name);
  }
  return Xxh64Of(std::string_view(text));
}

}  // namespace gt
