// The folders of the sources and who includes whom: for docs/architecture.md, and for the test that
// keeps includes pointing downwards.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

struct SourceFolder {
  std::string name;   // "passes/chunk"
  std::string layer;  // "core", "torch", "cuda", "cli" or "tests"
  std::string holds;  // what is in it, for people
};

// src/gt/folders.txt, from the bottom up.
std::vector<SourceFolder> ReadFolders(const std::filesystem::path& sources);

// One #include line of a file.
struct IncludeLine {
  std::filesystem::path file;
  int line = 0;
  std::string header;
};

// What an #include line names; empty for other lines.
std::string_view IncludedHeader(std::string_view line);

// Every include of the files of one folder, in the order of their names; tests included if wanted.
std::vector<IncludeLine> IncludesOf(const std::filesystem::path& sources,
                                    const SourceFolder& folder, bool tests);

// The folder that a header of ours ("gt/passes/chunk/chunk.h") belongs to, as an index; -1: it is none
// of ours, or in a folder that the list does not name.
int FolderOf(const std::vector<SourceFolder>& folders, std::string_view header);

// docs/architecture.md: the folders as a diagram, and which of them each includes.
std::string ArchitectureMarkdown(const std::filesystem::path& sources);

}  // namespace gt
