#include "gt/report/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

constexpr std::string_view kPrefix = "gt/";

bool IsSource(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cc" || extension == ".def";
}

bool IsTest(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  return stem.ends_with("_test") || stem.ends_with("_test_util") || stem.ends_with("_fuzz");
}

constexpr std::string_view kHead = R"(# Architecture

Made by `gt docs architecture` from the includes of the sources; do not edit. Why it is built this way:
[design.md](design.md).

Folders of `src/gt` from the bottom up. An include never points to a later line; `report/architecture_test.cc`
fails on one that does, so there is no cycle.

| folder | layer | what it holds | includes |
|---|---|---|---|
)";

// Edges that follow from others are left out: who includes `ir` by way of `ops` needs no arrow of its own.
std::vector<std::set<int>> WithoutTransitive(const std::vector<std::set<int>>& uses) {
  std::vector<std::set<int>> reached(uses.size()), kept(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    // Later folders first: what they reach need not be repeated.
    for (auto use = uses[i].rbegin(); use != uses[i].rend(); ++use) {
      if (reached[i].contains(*use)) continue;
      kept[i].insert(*use);
      reached[i].insert(*use);
      const std::set<int>& further = reached[static_cast<size_t>(*use)];
      reached[i].insert(further.begin(), further.end());
    }
  }
  return kept;
}

std::string Identifier(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

std::string Diagram(const std::vector<SourceFolder>& folders,
                    const std::vector<std::set<int>>& uses) {
  std::string text =
      "\nThe same as a picture; arrows that follow from others are left out.\n\n```mermaid\ngraph "
      "BT\n";
  const std::vector<std::set<int>> kept = WithoutTransitive(uses);
  for (size_t i = 0; i < folders.size(); ++i) {
    text += fmt::format("  {}[{}]\n", Identifier(folders[i].name), folders[i].name);
    for (int use : kept[i]) {
      text += fmt::format("  {} --> {}\n", Identifier(folders[i].name),
                          Identifier(folders[static_cast<size_t>(use)].name));
    }
  }
  return text + "```\n";
}

}  // namespace

std::vector<SourceFolder> ReadFolders(const std::filesystem::path& sources) {
  const std::filesystem::path path = sources / "folders.txt";
  std::ifstream file(path);
  if (!file) Fail(ErrorCode::kConfigFileUnreadable, "{} cannot be read", path.string());
  std::vector<SourceFolder> folders;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::string_view rest = line;
    const auto word = [&rest] {
      const std::string_view found = rest.substr(0, rest.find(' '));
      rest = Trim(rest.substr(found.size()));
      return std::string(found);
    };
    SourceFolder folder;
    folder.name = word();
    folder.layer = word();
    folder.holds = std::string(rest);
    folders.push_back(std::move(folder));
  }
  return folders;
}

std::string_view IncludedHeader(std::string_view line) {
  const auto skip_space = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_space();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skip_space();
  if (!line.starts_with("include")) return {};
  const size_t begin = line.find_first_of("<\"");
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin + 1);
  return line.substr(0, line.find_first_of(">\""));
}

std::vector<IncludeLine> IncludesOf(const std::filesystem::path& sources,
                                    const SourceFolder& folder, bool tests) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(sources / folder.name)) {
    if (entry.is_regular_file() && IsSource(entry.path()) && (tests || !IsTest(entry.path()))) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<IncludeLine> includes;
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      if (std::string_view header = IncludedHeader(line); !header.empty()) {
        includes.push_back({path, number, std::string(header)});
      }
    }
  }
  return includes;
}

int FolderOf(const std::vector<SourceFolder>& folders, std::string_view header) {
  if (!header.starts_with(kPrefix)) return -1;
  const size_t slash = header.rfind('/');
  const std::string_view name =
      slash < kPrefix.size() ? "" : header.substr(kPrefix.size(), slash - kPrefix.size());
  for (size_t i = 0; i < folders.size(); ++i) {
    if (folders[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string ArchitectureMarkdown(const std::filesystem::path& sources) {
  const std::vector<SourceFolder> folders = ReadFolders(sources);
  std::vector<std::set<int>> uses(folders.size());
  std::string text(kHead);
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const IncludeLine& include : IncludesOf(sources, folders[i], /*tests=*/false)) {
      const int folder = FolderOf(folders, include.header);
      if (folder >= 0 && folder != static_cast<int>(i)) uses[i].insert(folder);
    }
    std::vector<std::string> names;
    for (int use : uses[i]) names.push_back(folders[static_cast<size_t>(use)].name);
    text += fmt::format("| `{}` | {} | {} | {} |\n", folders[i].name, folders[i].layer,
                        folders[i].holds, Join(names, ", "));
  }
  return text + Diagram(folders, uses);
}

}  // namespace gt
