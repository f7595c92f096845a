#include "gt/config/command_line.h"

#include <algorithm>
#include <set>

#include "gt/base/error.h"
#include "gt/config/torchtitan.h"

namespace gt {
namespace {

constexpr std::string_view kConfigFlag = "config";
constexpr std::string_view kConfigFlagOfTorchtitan = "job.config_file";
constexpr std::string_view kHelpFlag = "help";

bool LooksLikeFlag(std::string_view arg) { return arg.starts_with("--") && arg.size() > 2; }

std::string_view WithoutDashes(std::string_view flag) {
  while (flag.starts_with('-')) flag.remove_prefix(1);
  return flag;
}

bool IsHelp(std::string_view arg) { return arg == "--help" || arg == "-h"; }

// One entry of the help: what to write on the left, what it means on the right.
std::string HelpEntry(const std::string& left, const std::string& right) {
  constexpr std::size_t kWidth = 100;
  constexpr std::size_t kRightColumn = 36;
  std::string entry = "  " + left;
  if (entry.size() + 2 > kRightColumn) {
    entry += '\n';
    entry.append(kRightColumn, ' ');
  } else {
    entry.append(kRightColumn - entry.size(), ' ');
  }
  return entry + Wrapped(right, kWidth, kRightColumn) + "\n";
}

std::string HelpEntry(const Option& option) {
  const std::string placeholder = option.Placeholder();
  const std::string left = placeholder.empty() ? "--" + option.path()
                                               : fmt::format("--{} {}", option.path(), placeholder);
  std::string limit = option.LimitText();
  if (!limit.empty()) limit += "; ";
  return HelpEntry(left,
                   fmt::format("{} ({}default {})", option.help(), limit, option.default_text()));
}

}  // namespace

CommandLine::CommandLine(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)), log_level_(log::CurrentLevel()) {
  Flag("log_level", &log_level_, "how much to log on stderr; GT_LOG sets it as well");
}

void CommandLine::AddFlag(Option option) {
  GT_CHECK(Find(option.path()) == nullptr, "{} has two flags --{}", program_, option.path());
  flags_.push_back(std::move(option));
}

CommandLine& CommandLine::AddPositional(PositionalArgument positional) {
  const bool open = positionals_.empty() || positionals_.back().rest == nullptr;
  GT_CHECK(open, "{} cannot follow an argument that takes all that remain", positional.name);
  GT_CHECK(!positional.required || positionals_.empty() || positionals_.back().required,
           "{} cannot follow an optional argument", positional.name);
  positionals_.push_back(std::move(positional));
  return *this;
}

CommandLine& CommandLine::Positional(std::string name, std::string* variable, std::string help) {
  return AddPositional({std::move(name), std::move(help), true, variable, nullptr});
}

CommandLine& CommandLine::OptionalPositional(std::string name, std::string* variable,
                                             std::string help) {
  return AddPositional({std::move(name), std::move(help), false, variable, nullptr});
}

CommandLine& CommandLine::Positionals(std::string name, StringList* variable, std::string help) {
  return AddPositional({std::move(name), std::move(help), false, nullptr, variable});
}

CommandLine& CommandLine::WithConfig(Config* config) {
  GT_CHECK(config_ == nullptr, "{} has a config already", program_);
  std::vector<OptionGroup> groups = BindOptions(config);
  for (const OptionGroup& group : groups) {
    for (const Option& option : group.options) {
      GT_CHECK(Find(option.path()) == nullptr, "{}: flag --{} is also an option of the config",
               program_, option.path());
    }
  }
  config_ = config;
  config_groups_ = std::move(groups);
  return *this;
}

Option* CommandLine::Find(std::string_view name) {
  for (Option& option : flags_) {
    if (option.path() == name) return &option;
  }
  for (OptionGroup& group : config_groups_) {
    for (Option& option : group.options) {
      if (option.path() == name) return &option;
    }
  }
  return nullptr;
}

std::vector<std::string> CommandLine::FlagNames() const {
  std::vector<std::string> names;
  for (const Option& option : flags_) names.push_back(option.path());
  if (config_ != nullptr) names.emplace_back(kConfigFlag);
  for (const OptionGroup& group : config_groups_) {
    for (const Option& option : group.options) names.push_back(option.path());
  }
  names.emplace_back(kHelpFlag);
  return names;
}

CommandLine::Given CommandLine::Sort(std::span<const std::string> args, Problems& problems) {
  Given given;
  for (std::size_t at = 0; at < args.size();) {
    if (args[at] == "--") {
      const auto rest = args.subspan(at + 1);
      given.positionals.insert(given.positionals.end(), rest.begin(), rest.end());
      break;
    }
    // A lone "-" is an argument: by custom it stands for stdin or stdout.
    if (args[at].size() > 1 && args[at].starts_with("-")) {
      at += SortFlag(args, at, given, problems);
    } else {
      given.positionals.push_back(args[at]);
      ++at;
    }
  }
  return given;
}

// Returns how many arguments the flag took.
std::size_t CommandLine::SortFlag(std::span<const std::string> args, std::size_t at, Given& given,
                                  Problems& problems) {
  const std::string_view arg = args[at];
  const std::size_t equals = arg.find('=');
  const std::string_view flag = arg.substr(0, equals);
  const bool has_value = equals != std::string_view::npos;
  const std::string_view value = has_value ? arg.substr(equals + 1) : std::string_view();
  const bool next_is_value = at + 1 < args.size() && !LooksLikeFlag(args[at + 1]);

  const std::string_view name = flag.starts_with("--") ? flag.substr(2) : std::string_view();
  const bool is_config_file =
      config_ != nullptr && (name == kConfigFlag || name == kConfigFlagOfTorchtitan);
  Option* option = Find(name);
  const bool is_torchtitans =
      option == nullptr && !is_config_file && config_ != nullptr && TorchtitanReader::Knows(name);

  if (is_torchtitans) return SortTorchtitanFlag(args, at, given, problems);
  if (option == nullptr && !is_config_file) {
    problems.Add(ErrorCode::kUnknownOption, "unknown flag {}{}", flag,
                 DidYouMean(WithoutDashes(flag), FlagNames(), "--"));
    given.unknown_flag = true;
    // What follows was most likely meant as its value; complaining about it as well would only
    // confuse.
    return !has_value && next_is_value && args[at + 1] != "--" ? 2 : 1;
  }
  if (option != nullptr && option->is_flag() && !has_value) {
    const bool spelled_out = next_is_value && option->Names(args[at + 1]);
    given.flags.push_back({option, spelled_out ? args[at + 1] : "true"});
    return spelled_out ? 2 : 1;
  }
  if (!has_value && (!next_is_value || args[at + 1] == "--")) {
    problems.Add(ErrorCode::kMissingArgument, "{} needs a value: {}", flag,
                 is_config_file ? "the path of a TOML file" : option->Expected());
    return 1;
  }
  std::string text(has_value ? value : std::string_view(args[at + 1]));
  if (is_config_file) {
    given.config_files.push_back(std::move(text));
  } else {
    given.flags.push_back({option, std::move(text)});
  }
  return has_value ? 1 : 2;
}

// The same for an option that torchtitan calls otherwise.
std::size_t CommandLine::SortTorchtitanFlag(std::span<const std::string> args, std::size_t at,
                                            Given& given, Problems& problems) const {
  const std::string_view arg = args[at];
  const std::size_t equals = arg.find('=');
  const std::string name(arg.substr(2, equals == std::string_view::npos ? equals : equals - 2));
  if (equals != std::string_view::npos) {
    given.torchtitan_flags.emplace_back(name, arg.substr(equals + 1));
    return 1;
  }
  const bool has_next =
      at + 1 < args.size() && !LooksLikeFlag(args[at + 1]) && args[at + 1] != "--";
  if (TorchtitanReader::IsSwitch(name, config_groups_)) {
    const bool spelled_out = has_next && (args[at + 1] == "true" || args[at + 1] == "false");
    given.torchtitan_flags.emplace_back(name, spelled_out ? args[at + 1] : "true");
    return spelled_out ? 2 : 1;
  }
  if (!has_next) {
    problems.Add(ErrorCode::kMissingArgument, "{} needs a value", arg);
    return 1;
  }
  given.torchtitan_flags.emplace_back(name, args[at + 1]);
  return 2;
}

void CommandLine::SetPositionals(const Given& given, Problems& problems) const {
  std::size_t next = 0;
  for (const PositionalArgument& positional : positionals_) {
    if (positional.rest != nullptr) {
      const auto rest = std::span(given.positionals).subspan(next);
      positional.rest->assign(rest.begin(), rest.end());
      next = given.positionals.size();
    } else if (next < given.positionals.size()) {
      *positional.one = given.positionals[next++];
    } else if (positional.required && !given.unknown_flag) {
      // After an unknown flag, the argument may have been taken for its value.
      problems.Add(ErrorCode::kMissingArgument, "{} is missing: {}; see {} --help", positional.name,
                   positional.help, program_);
    }
  }
  for (; next < given.positionals.size(); ++next) {
    problems.Add(ErrorCode::kUnexpectedArgument,
                 "unexpected argument {}; flags are written --name=value, see {} --help",
                 Quoted(given.positionals[next]), program_);
  }
}

bool CommandLine::Parse(std::span<const std::string> args) {
  const auto flags_end = std::find(args.begin(), args.end(), "--");
  if (std::any_of(args.begin(), flags_end, IsHelp)) return false;

  Problems problems;
  const Given given = Sort(args, problems);
  TorchtitanReader torchtitan;
  for (const std::string& file : given.config_files) {
    ApplyTomlFile(file, config_groups_, torchtitan, problems);
  }
  for (const auto& [name, value] : given.torchtitan_flags) {
    torchtitan.Take(name, value, "--" + name);
  }
  torchtitan.Apply(config_groups_, problems);
  std::set<const Option*> seen;
  for (const GivenFlag& flag : given.flags) {
    // A list given by flags replaces that of a config file, and grows from then on.
    const bool append = !seen.insert(flag.option).second;
    const std::string value = TorchtitanReader::Translated(flag.option->path(), flag.value);
    flag.option->SetFromText(value, "--" + flag.option->path(), append, problems);
  }
  SetPositionals(given, problems);
  problems.ThrowIfAny();

  log::SetLevel(log_level_);
  for (const std::string& notice : torchtitan.Notices()) log::Info("{}", notice);
  if (config_ != nullptr) Validate(*config_);
  return true;
}

bool CommandLine::Parse(int count, const char* const* args) {
  return Parse(std::vector<std::string>(args, args + count));
}

std::string CommandLine::Help() const {
  std::string help = fmt::format("{}: {}\n\nusage: {} [flags]", program_, summary_, program_);
  for (const PositionalArgument& positional : positionals_) {
    const std::string shown =
        positional.rest != nullptr ? positional.name + "..." : positional.name;
    help += positional.required ? " " + shown : fmt::format(" [{}]", shown);
  }
  help += "\n\n";
  for (const PositionalArgument& positional : positionals_) {
    help += HelpEntry(positional.name, positional.help);
  }
  if (!positionals_.empty()) help += '\n';

  // --log_level, the first flag, belongs to every command and is of least interest, so it is shown
  // last.
  for (std::size_t i = 1; i < flags_.size(); ++i) help += HelpEntry(flags_[i]);
  if (config_ != nullptr) {
    help += HelpEntry("--config FILE",
                      "read options from a TOML file; may be repeated, later files win over "
                      "earlier ones and flags over all (also --job.config_file)");
  }
  help += HelpEntry(flags_.front());
  help += HelpEntry("--help", "print this text");

  for (const OptionGroup& group : config_groups_) {
    help += group.name.empty() ? fmt::format("\n{}\n", group.help)
                               : fmt::format("\n{}: {}\n", group.name, group.help);
    for (const Option& option : group.options) help += HelpEntry(option);
  }
  return help;
}

}  // namespace gt
