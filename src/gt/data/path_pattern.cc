#include "gt/data/path_pattern.h"

#include <fnmatch.h>

#include <algorithm>

#include "gt/base/text.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAnyDepth = "**";

bool IsHiddenName(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool IsFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

void KeepFolders(std::vector<fs::path>& paths) {
  std::erase_if(paths, [](const fs::path& path) { return !IsFolder(path); });
}

// The components of a pattern. The first component of an absolute pattern is "/".
std::vector<std::string> ComponentsOf(std::string_view pattern) {
  std::vector<std::string> components;
  if (pattern.starts_with('/')) components.emplace_back("/");
  for (std::string& part : Split(pattern, '/')) {
    if (!part.empty()) components.push_back(std::move(part));
  }
  return components;
}

std::string WithoutBackslashes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    plain += text[i];
  }
  return plain;
}

std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? fs::path(".") : folder)) {
    entries.push_back(folder / entry.path().filename());
  }
  return entries;
}

// Follows links, as the walk of a data folder does. A cycle of links ends in a file system error.
void AddFoldersBelow(const fs::path& folder, std::vector<fs::path>& found) {
  found.push_back(folder);
  for (const fs::path& entry : EntriesOf(folder)) {
    if (!IsHiddenName(entry) && fs::is_directory(entry)) AddFoldersBelow(entry, found);
  }
}

// Matches of one component in each of the folders.
std::vector<fs::path> Descend(const std::vector<fs::path>& folders, const std::string& component) {
  std::vector<fs::path> found;
  for (const fs::path& folder : folders) {
    if (component == kAnyDepth) {
      AddFoldersBelow(folder, found);
    } else if (!IsPathPattern(component)) {
      const fs::path path = folder / WithoutBackslashes(component);
      if (Exists(path)) found.push_back(path);
    } else {
      for (const fs::path& entry : EntriesOf(folder)) {
        const std::string name = entry.filename().string();
        if (fnmatch(component.c_str(), name.c_str(), FNM_PERIOD) == 0) found.push_back(entry);
      }
    }
  }
  return found;
}

struct Search {
  std::vector<fs::path> found;
  // If nothing was found: the component without a match, and the folders that were searched for it.
  std::string failed;
  std::vector<fs::path> folders;
};

Search Follow(std::string_view pattern) {
  std::vector<std::string> components = ComponentsOf(pattern);
  // A folder stands for everything below it.
  while (!components.empty() && components.back() == kAnyDepth) components.pop_back();
  Search search;
  search.found.emplace_back(components.empty() ? "." : "");
  for (std::size_t i = 0; i < components.size(); ++i) {
    if (i > 0) KeepFolders(search.found);
    if (search.found.empty()) return search;
    search.folders = search.found;
    search.failed = components[i];
    search.found = Descend(search.folders, components[i]);
  }
  if (pattern.ends_with('/')) KeepFolders(search.found);
  return search;
}

}  // namespace

bool IsPathPattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

fs::path FixedPart(std::string_view pattern) {
  fs::path fixed;
  for (const std::string& component : ComponentsOf(pattern)) {
    if (IsPathPattern(component)) break;
    fixed /= WithoutBackslashes(component);
  }
  return fixed;
}

std::vector<fs::path> MatchesOf(std::string_view pattern) {
  std::vector<fs::path> found = Follow(pattern).found;
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    return a.generic_string() < b.generic_string();
  });
  // a/**/**/b finds a path several times.
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<fs::path> NearMissesOf(std::string_view pattern) {
  const Search search = Follow(pattern);
  std::vector<std::pair<std::size_t, fs::path>> ranked;
  for (const fs::path& folder : search.folders) {
    if (!folder.empty() && !IsFolder(folder)) continue;
    for (fs::path& entry : EntriesOf(folder)) {
      if (IsHiddenName(entry)) continue;
      const std::size_t distance = EditDistance(search.failed, entry.filename().string());
      ranked.emplace_back(distance, std::move(entry));
    }
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<fs::path> near;
  near.reserve(ranked.size());
  for (auto& [distance, path] : ranked) near.push_back(std::move(path));
  return near;
}

}  // namespace gt
