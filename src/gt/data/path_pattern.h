// Shell-style path patterns: * and ? match within a name, [a-z] and [!a-z] match one character, and
// a component ** matches any number of folders. A backslash escapes the next character. A leading
// dot must be matched explicitly.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

// Whether the text contains a pattern character.
bool IsPathPattern(std::string_view text);

// The folder that contains all matches: the components before the first pattern.
std::filesystem::path FixedPart(std::string_view pattern);

// Matching files and folders, sorted by path. A trailing ** matches the folder before it, and a
// trailing slash restricts matches to folders. Throws filesystem_error if a folder cannot be listed.
std::vector<std::filesystem::path> MatchesOf(std::string_view pattern);

// For a pattern without matches: the contents of the folders where the search ended, most similar
// names first.
std::vector<std::filesystem::path> NearMissesOf(std::string_view pattern);

}  // namespace gt
