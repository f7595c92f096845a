#include "gt/config/near_config_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/resources.h"
#include "gt/base/text.h"

namespace gt {
namespace {

namespace fs = std::filesystem;
using Words = std::set<std::string>;

constexpr const char* kFolder = "configs";

// Empty if the shipped files are not installed.
fs::path FolderOfConfigs() {
  std::error_code ignored;
  if (fs::is_directory(kFolder, ignored)) return kFolder;
  try {
    return ResourcePath(kFolder);
  } catch (const Error&) {
    return {};
  }
}

std::vector<fs::path> ShippedFiles() {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(FolderOfConfigs(), ignored)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// "graph_trainer_qwen3_30b-a3b": graph, trainer, qwen3, 30b, a3b.
Words WordsOf(const std::string& name) {
  Words words;
  std::string word;
  for (const char c : name + "_") {
    if (c != '_' && c != '-') {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

// The files whose words are all in `name`, with the most words; else the one with the most similar name;
// else the files that share the most words.
std::vector<fs::path> Nearest(const std::vector<fs::path>& files, const std::string& name) {
  const Words wanted = WordsOf(name);
  std::vector<fs::path> nearest;
  std::pair<bool, std::size_t> best = {false, 1};
  for (const fs::path& file : files) {
    const Words words = WordsOf(file.stem().string());
    const auto common = static_cast<std::size_t>(
        std::count_if(words.begin(), words.end(),
                      [&](const std::string& word) { return wanted.contains(word); }));
    const std::pair nearness = {common == words.size(), common};
    if (nearness > best) nearest.clear();
    best = std::max(best, nearness);
    if (nearness == best) nearest.push_back(file);
  }
  if (best.first) return nearest;
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const fs::path& file : files) names.push_back(file.stem().string());
  const std::optional<std::string> mistyped = NearestName(name, names);
  if (!mistyped) return nearest;
  return {files[static_cast<std::size_t>(std::find(names.begin(), names.end(), *mistyped) -
                                         names.begin())]};
}

}  // namespace

std::string NearConfigFiles(std::string_view wanted, std::string_view command) {
  const fs::path path = wanted;
  const bool is_toml = path.extension() == ".toml";
  const std::string name = is_toml ? path.stem().string() : path.filename().string();
  const std::vector<fs::path> files = ShippedFiles();
  const std::vector<fs::path> near = Nearest(files, name);
  if (near.size() == 1) {
    return fmt::format("; gt reads TOML files: {} --config {}", command,
                       ShellWord(near.front().string()));
  }
  if (near.empty() && (is_toml || files.empty() || path.has_parent_path())) return "";
  std::string text = near.empty() ? "; gt reads TOML files, such as these of configs/:"
                                  : "; gt reads TOML files, such as";
  for (const fs::path& file : near.empty() ? files : near) {
    text += fmt::format("\n    {} --config {}", command, ShellWord(file.string()));
  }
  return text;
}

}  // namespace gt
