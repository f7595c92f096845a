// Reads the part of TOML that config files use: sections, plain, quoted and dotted keys, strings,
// integers, floats, booleans, arrays and inline tables. Arrays of tables, dates and multi-line
// strings are refused by name.
//
// CLI11 brings a reader too, but it keeps no line numbers, does not tell "20" from 20, cuts strings
// at '#', merges duplicate keys and skips lines it does not understand. A config file that is
// silently half read costs a training run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gt::toml {

struct Value;
using Array = std::vector<Value>;

struct Value {
  std::variant<bool, std::int64_t, double, std::string, Array> data;
};

// What the value is and what it says, for error messages: `the string "20"`, `the integer 20`, `a
// list`.
std::string Describe(const Value& value);

// A key prefixed with its section, such as "training.steps".
struct Entry {
  std::string path;
  int line = 0;
  Value value;
};

struct Section {
  std::string path;
  int line = 0;
};

struct Document {
  std::vector<Entry> entries;  // in file order
  std::vector<Section> sections;
};

// `file` is only used in errors, which read "file:line: what is wrong" (codes MalformedToml,
// DuplicateKey).
Document Parse(std::string_view text, std::string_view file);

}  // namespace gt::toml
