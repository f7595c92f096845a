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
  // Sees every option that both programs call alike, and returns its value in our terms. `where` starts
  // error messages.
  virtual std::string Read(const std::string& key, const std::string& value,
                           const std::string& where) = 0;
  // Takes an option that we have under another name or not at all. `where` begins messages. False:
  // nobody knows this option.
  virtual bool Take(const std::string& key, const std::string& value, const std::string& where) = 0;
  // Ends a source: sets our options for the dialect's, and reports those that are not supported or that
  // contradict options of the same source under our names.
  virtual void Apply(std::span<OptionGroup> groups, Problems& problems) = 0;
  // Our option that other programs call `key`; empty if none.
  virtual std::string OtherName(std::string_view key) const = 0;
  // The end of an error message for a key that the program has in another section. `prefix` precedes our
  // option names. Empty if there is none.
  virtual std::string Hint(std::string_view key, std::string_view prefix) const = 0;
  // What a user should know of the options that have no effect, one line each.
  virtual std::vector<std::string> Notices() const = 0;
};

// The end of an error message for an unknown option: the nearest of `names`, or what the dialect (may be
// null) knows about it. Empty if nothing is near.
std::string HintFor(std::string_view key, std::span<const std::string> names,
                    std::string_view prefix, const Dialect* dialect);

}  // namespace gt
