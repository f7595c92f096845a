#include "gt/job/dump_folder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "gt/base/text.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModel = "{model}", kTime = "{time}";

// Options that change neither what is computed nor which results there are.
constexpr auto kImmaterial = std::to_array<std::string_view>({
    "dump_folder",
    "overwrite",
    "checkpoint.enable",
    "checkpoint.folder",
    "checkpoint.interval",
    "checkpoint.keep_latest_k",
    "checkpoint.async_mode",
    "checkpoint.load_step",
    "metrics.log_freq",
    "profiling.*",
    "training.prefetch",
    "training.check_memory",
    "debug.fault",
    "comm.init_timeout_seconds",
    "comm.train_timeout_seconds",
    "comm.trace_buf_size",
    "comm.save_traces_folder",
});

// Of a folder with the weights, or of the flavor.
std::string ModelName(const Config& config) {
  std::string name = config.model.name + "-" + config.model.flavor;
  if (!config.model.hf_path.empty()) {
    const fs::path folder = fs::path(config.model.hf_path).lexically_normal();
    name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  for (char& c : name) {
    const bool is_plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    if (!is_plain) c = '_';
  }
  return name.empty() || name.front() == '.' ? "model" + name : name;
}

std::string TimeName(std::time_t now) {
  std::tm local = {};
  localtime_r(&now, &local);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return text.data();
}

void ReplaceAll(std::string& text, std::string_view what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

}  // namespace

std::string DumpFolderProblem(std::string_view text) {
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(kModel) || rest.starts_with(kTime)) continue;
    const size_t end = rest.find('}');
    const std::string_view what = rest.substr(0, end == rest.npos ? end : end + 1);
    return fmt::format("{} is no placeholder; there are {} and {}", what, kModel, kTime);
  }
  return "";
}

bool IsFolderPerRun(std::string_view text) { return text.find(kTime) != std::string_view::npos; }

std::string FillDumpFolder(const Config& config, std::time_t now) {
  std::string folder = config.dump_folder;
  ReplaceAll(folder, kModel, ModelName(config));
  ReplaceAll(folder, kTime, TimeName(now));
  return folder;
}

fs::path FolderOfRuns(std::string_view text) {
  const std::string above(text.substr(0, text.find('{')));
  const size_t slash = above.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : above.substr(0, slash);
}

std::vector<OptionChange> JobDifferences(const Config& before, const Config& now) {
  std::vector<OptionChange> options;
  ForEachOption(before, [&](const Option& option) {
    options.push_back({option.path(), option.TomlText(), ""});
  });
  size_t next = 0;
  ForEachOption(now, [&](const Option& option) { options[next++].now = option.TomlText(); });
  std::erase_if(options, [](const OptionChange& option) {
    return option.before == option.now ||
           std::any_of(kImmaterial.begin(), kImmaterial.end(),
                       [&](std::string_view entry) { return NamesOption(entry, option.name); });
  });
  return options;
}

}  // namespace gt
