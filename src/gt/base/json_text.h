// The one reader for JSON that comes from outside: files of users, checkpoints, messages of ranks.
//
// It refuses what no such text needs before anything is built. Without a limit on depth, a few bytes
// per level overflow the stack of whatever walks the value later (copies, comparisons, dump()), and
// dump() with an indent writes gigabytes.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gt/base/read_file.h"

namespace gt {

struct JsonLimits {
  int depth = 64;  // lists and objects, one inside the other
  std::size_t bytes = kLargestSettingsFile;
  std::size_t values = std::size_t{1} << 22;  // in all lists and objects together
  std::size_t keys = std::size_t{1} << 22;    // likewise
};

// For texts that grow with the model and the number of ranks: manifests, plans, boxes of tensors.
inline constexpr JsonLimits kLargeJson = {
    .bytes = std::size_t{1} << 30, .values = std::size_t{1} << 26, .keys = std::size_t{1} << 26};

// What is wrong and where, for a message that names the file: "line 3, column 7: ...".
class BadJson : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws BadJson and nothing else. Of keys that occur twice in an object, the last one counts.
nlohmann::json ParseJson(std::string_view text, const JsonLimits& limits = {});

// The same with keys in the order of the text. Every key is compared with all others of its object, so
// `limits.keys` should be some thousands.
nlohmann::ordered_json ParseOrderedJson(std::string_view text, const JsonLimits& limits);

// Nothing for what ParseJson refuses, where a reader passes over it.
std::optional<nlohmann::json> ParseJsonIfGood(std::string_view text, const JsonLimits& limits = {});

// A value in a message: its JSON, or the beginning of it.
std::string ShortJson(const nlohmann::json& value);
std::string ShortJson(const nlohmann::ordered_json& value);

}  // namespace gt
