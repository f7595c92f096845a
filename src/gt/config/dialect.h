// Options under the names and values that another program gives them, so that its files and flags
// are understood.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/config/option.h"
#include "gt/config/problems.h"

namespace gt {

// Given the options of one source (a file, the flags) after another.
class Dialect {
 public:
  virtual ~Dialect() = default;

  // Whether the program has an option of this name that is not ours, or is ours with other values.
  virtual bool Knows(std::string_view key) const = 0;
  virtual bool KnowsSection(std::string_view path) const = 0;
  // Whether it may be given as a flag without a value.
  virtual bool IsSwitch(std::string_view key, std::span<const OptionGroup> groups) const = 0;
  // What we call this value of an option that both have.
  virtual std::string Translated(std::string_view key, const std::string& value) const = 0;

  // Takes an option that we have under another name or not at all. `where` begins messages. False:
  // nobody knows this option.
  virtual bool Take(const std::string& key, const std::string& value, const std::string& where) = 0;
  // Ends a source: sets the options of ours that it stands for and adds what cannot be.
  virtual void Apply(std::span<OptionGroup> groups, Problems& problems) = 0;
  // What a user should know of the options that have no effect, one line each.
  virtual std::vector<std::string> Notices() const = 0;
};

}  // namespace gt
