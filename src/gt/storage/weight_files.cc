#include "gt/storage/weight_files.h"

#include <fmt/format.h>

#include <algorithm>

namespace gt {
namespace {

// Whether `text` is written as `pattern`, in which # stands for one digit.
bool Fits(std::string_view text, std::string_view pattern) {
  const auto fits = [](char c, char p) { return p == '#' ? c >= '0' && c <= '9' : c == p; };
  return std::equal(text.begin(), text.end(), pattern.begin(), pattern.end(), fits);
}

bool IsWeightFile(std::string_view name) {
  return name == kSingleFile || name == kIndexFile ||
         Fits(name, "model-#####-of-#####.safetensors");
}

}  // namespace

std::string ShardName(std::string_view stem, size_t index, size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, index + 1, count);
}

std::vector<std::string> WeightFilesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (IsWeightFile(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace gt
