#include "gt/config/config_file.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/config/near_config_files.h"
#include "gt/config/toml.h"

namespace gt {
namespace {

Option* FindOption(std::vector<OptionGroup>& groups, std::string_view path) {
  for (OptionGroup& group : groups) {
    for (Option& option : group.options) {
      if (option.path() == path) return &option;
    }
  }
  return nullptr;
}

// A section counts as known when it holds options or other sections.
bool IsSection(const std::vector<OptionGroup>& groups, std::string_view path) {
  const std::string inside = std::string(path) + ".";
  return std::any_of(groups.begin(), groups.end(), [&](const OptionGroup& group) {
    return !group.name.empty() && (group.name == path || group.name.starts_with(inside));
  });
}

std::vector<std::string> SectionNames(const std::vector<OptionGroup>& groups) {
  std::vector<std::string> names;
  for (const OptionGroup& group : groups) {
    if (!group.name.empty()) names.push_back(group.name);
  }
  return names;
}

std::vector<std::string> OptionNames(const std::vector<OptionGroup>& groups) {
  std::vector<std::string> names;
  for (const OptionGroup& group : groups) {
    for (const Option& option : group.options) names.push_back(option.path());
  }
  return names;
}

// A value as a flag would be given it.
std::string FlagText(const toml::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return fmt::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value.data)) return fmt::to_string(*number);
  std::vector<std::string> items;
  for (const toml::Value& item : std::get<toml::Array>(value.data)) items.push_back(FlagText(item));
  return fmt::format("[{}]", Join(items, ","));
}

void SetFromEntry(const toml::Entry& entry, std::string_view file, Dialect& dialect, Option& option,
                  Problems& problems) {
  const std::string where = fmt::format("{}:{}: {}", file, entry.line, entry.path);
  const std::string text = FlagText(entry.value);
  const std::string translated = dialect.Read(entry.path, text, where);
  if (translated == text) {
    option.SetFromToml(entry.value, where, problems);
  } else {
    option.SetFromText(translated, where, /*append=*/false, problems);
  }
}

// Returns the unknown sections, each followed by a dot.
std::vector<std::string> ReportUnknownSections(const toml::Document& document,
                                               std::string_view file,
                                               std::vector<OptionGroup>& groups,
                                               const Dialect& dialect, Problems& problems) {
  std::vector<std::string> unknown;
  for (const toml::Section& section : document.sections) {
    if (IsSection(groups, section.path) || dialect.KnowsSection(section.path)) continue;
    unknown.push_back(section.path + ".");
    if (FindOption(groups, section.path) != nullptr) {
      problems.Add(ErrorCode::kUnknownOption, "{}:{}: {} is a key, not a section; write {} = ...",
                   file, section.line, section.path, section.path);
      continue;
    }
    const std::optional<std::string> nearest = NearestName(section.path, SectionNames(groups));
    problems.Add(ErrorCode::kUnknownOption, "{}:{}: unknown section [{}]{}", file, section.line,
                 section.path, nearest ? fmt::format("; did you mean [{}]?", *nearest) : "");
  }
  return unknown;
}

void ApplyDocument(const toml::Document& document, std::string_view file,
                   std::vector<OptionGroup>& groups, Dialect& dialect, Problems& problems) {
  // One misspelled section is one problem, not one for each of its keys.
  const std::vector<std::string> unknown_sections =
      ReportUnknownSections(document, file, groups, dialect, problems);
  for (const toml::Entry& entry : document.entries) {
    if (std::any_of(unknown_sections.begin(), unknown_sections.end(),
                    [&](const std::string& s) { return entry.path.starts_with(s); })) {
      continue;
    }
    if (Option* option = FindOption(groups, entry.path)) {
      SetFromEntry(entry, file, dialect, *option, problems);
    } else if (IsSection(groups, entry.path)) {
      problems.Add(ErrorCode::kUnknownOption,
                   "{}:{}: {} is a section, not a key; write [{}] and its keys below", file,
                   entry.line, entry.path, entry.path);
    } else if (!dialect.Take(entry.path, FlagText(entry.value),
                             fmt::format("{}:{}: {}", file, entry.line, entry.path))) {
      problems.Add(ErrorCode::kUnknownOption, "{}:{}: unknown key {}{}", file, entry.line,
                   entry.path, HintFor(entry.path, OptionNames(groups), "", &dialect));
    }
  }
  dialect.Apply(groups, problems);
}

}  // namespace

std::string ReadConfigFile(const std::string& path) {
  try {
    return ReadWholeFile(path);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kConfigFileUnreadable, "cannot read config file {}: {}", path, problem.what());
  }
}

void ApplyToml(std::string_view text, std::string_view file_name, std::vector<OptionGroup>& groups,
               Dialect& dialect, Problems& problems) {
  ApplyDocument(toml::Parse(text, file_name), file_name, groups, dialect, problems);
}

void ApplyTomlFile(const std::string& path, std::string_view command,
                   std::vector<OptionGroup>& groups, Dialect& dialect, Problems& problems) {
  try {
    ApplyToml(ReadConfigFile(path), path, groups, dialect, problems);
  } catch (const Error& error) {
    std::error_code ignored;
    const bool is_there = std::filesystem::exists(path, ignored);
    problems.Add(error.code(), "{}{}", error.message(),
                 is_there ? "" : NearConfigFiles(path, command));
  }
}

std::string OptionsAsToml(std::span<const OptionGroup> groups) {
  std::string text;
  for (const OptionGroup& group : groups) {
    if (!group.name.empty()) text += fmt::format("\n[{}]\n", group.name);
    const std::size_t section_length = group.name.empty() ? 0 : group.name.size() + 1;
    for (const Option& option : group.options) {
      text += fmt::format("{} = {}\n", option.path().substr(section_length), option.TomlText());
    }
  }
  return text;
}

}  // namespace gt
