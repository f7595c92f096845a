#include "gt/config/command_line.h"

#include <algorithm>
#include <set>

#include "gt/base/error.h"
#include "gt/config/config_file.h"

namespace gt {
namespace {

constexpr std::string_view kConfigFlag = "config";
constexpr std::string_view kConfigFlagOfDialect = "job.config_file";
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

void ReportRepeated(std::string_view name, std::string_view first, std::string_view second,
                    Problems& problems) {
  problems.Add(ErrorCode::kDuplicateKey, "--{} is given twice, as {} and as {}; keep one of them",
               name, Quoted(first), Quoted(second));
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

CommandLine& CommandLine::WithConfig(ConfigBinding config) {
  GT_CHECK(!config_, "{} has a config already", program_);
  for (const OptionGroup& group : config.groups) {
    for (const Option& option : group.options) {
      GT_CHECK(Find(option.path()) == nullptr, "{}: flag --{} is also an option of the config",
               program_, option.path());
    }
  }
  config_ = std::move(config);
  return *this;
}

Option* CommandLine::Find(std::string_view name) {
  for (Option& option : flags_) {
    if (option.path() == name) return &option;
  }
  if (!config_) return nullptr;
  for (OptionGroup& group : config_->groups) {
    for (Option& option : group.options) {
      if (option.path() == name) return &option;
    }
  }
  return nullptr;
}

std::vector<std::string> CommandLine::FlagNames() const {
  std::vector<std::string> names;
  for (const Option& option : flags_) names.push_back(option.path());
  if (config_) {
    names.emplace_back(kConfigFlag);
    for (const OptionGroup& group : config_->groups) {
      for (const Option& option : group.options) names.push_back(option.path());
    }
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
      at += SortFlag(ReadFlag(args, at), given, problems);
    } else {
      given.positionals.push_back(args[at]);
      ++at;
    }
  }
  return given;
}

// As for a duplicate key in a file, equal values are an error too.
void CommandLine::AddFlag(Given& given, Option& option, std::string_view value,
                          Problems& problems) {
  const auto first = std::find_if(given.flags.begin(), given.flags.end(),
                                  [&](const GivenFlag& flag) { return flag.option == &option; });
  if (first != given.flags.end() && !option.is_list()) {
    ReportRepeated(option.path(), first->value, value, problems);
  }
  given.flags.push_back({&option, std::string(value)});
}

void CommandLine::AddDialectFlag(Given& given, std::string_view name, std::string_view value,
                                 Problems& problems) {
  for (const auto& [known, first] : given.dialect_flags) {
    if (known == name) return ReportRepeated(name, first, value, problems);
  }
  given.dialect_flags.emplace_back(name, value);
}

CommandLine::WrittenFlag CommandLine::ReadFlag(std::span<const std::string> args, std::size_t at) {
  const std::string_view arg = args[at];
  const std::size_t equals = arg.find('=');
  WrittenFlag flag;
  flag.dashed = arg.substr(0, equals);
  if (flag.dashed.starts_with("--")) flag.name = flag.dashed.substr(2);
  if (equals != std::string_view::npos) flag.value = arg.substr(equals + 1);
  const bool has_next =
      at + 1 < args.size() && !LooksLikeFlag(args[at + 1]) && args[at + 1] != "--";
  if (has_next) flag.next = args[at + 1];
  return flag;
}

// Returns how many arguments the flag took.
std::size_t CommandLine::SortFlag(const WrittenFlag& flag, Given& given, Problems& problems) {
  const bool is_config_file =
      config_ && (flag.name == kConfigFlag || flag.name == kConfigFlagOfDialect);
  Option* option = Find(flag.name);
  if (option == nullptr && !is_config_file) {
    // Before the dialect, which may accept any name in some sections.
    if (SortNegation(flag, given, problems)) return 1;
    if (config_ && dialect_->Knows(flag.name)) return SortDialectFlag(flag, given, problems);
    problems.Add(ErrorCode::kUnknownOption, "unknown flag {}{}", flag.dashed,
                 HintFor(WithoutDashes(flag.dashed), FlagNames(), "--", dialect_.get()));
    given.unknown_flag = true;
    // What follows was most likely meant as its value; complaining about it as well would only
    // confuse.
    return !flag.value && flag.next ? 2 : 1;
  }
  if (option != nullptr && option->is_flag() && !flag.value) {
    const bool spelled_out = flag.next && option->Names(*flag.next);
    AddFlag(given, *option, spelled_out ? *flag.next : "true", problems);
    return spelled_out ? 2 : 1;
  }
  if (!flag.value && !flag.next) {
    problems.Add(ErrorCode::kMissingArgument, "{} needs a value: {}", flag.dashed,
                 is_config_file ? "the path of a TOML file" : option->Expected());
    return 1;
  }
  const std::string_view text = flag.value ? *flag.value : *flag.next;
  if (is_config_file) {
    given.config_files.emplace_back(text);
  } else {
    AddFlag(given, *option, text, problems);
  }
  return flag.value ? 1 : 2;
}

// The same for an option that the dialect calls otherwise.
std::size_t CommandLine::SortDialectFlag(const WrittenFlag& flag, Given& given,
                                         Problems& problems) const {
  const bool is_switch = dialect_->IsSwitch(flag.name, config_->groups);
  const bool takes_next =
      !flag.value && flag.next && (!is_switch || BooleanFromText(*flag.next).has_value());
  if (!flag.value && !takes_next && !is_switch) {
    problems.Add(ErrorCode::kMissingArgument, "{} needs a value", flag.dashed);
    return 1;
  }
  std::string_view text = flag.value ? *flag.value : takes_next ? *flag.next : "true";
  if (const std::optional<bool> boolean = BooleanFromText(text); is_switch && boolean) {
    text = *boolean ? "true" : "false";  // the dialect's spelling
  }
  AddDialectFlag(given, flag.name, text, problems);
  return takes_next ? 2 : 1;
}

// Handles --section.no-name for a boolean; false if the flag is not one.
bool CommandLine::SortNegation(const WrittenFlag& flag, Given& given, Problems& problems) {
  const std::size_t last = flag.name.rfind('.') + 1;
  const std::string_view component = flag.name.substr(last);
  if (!component.starts_with("no-") && !component.starts_with("no_")) return false;
  const std::string name = fmt::format("{}{}", flag.name.substr(0, last), component.substr(3));
  Option* option = Find(name);
  const bool is_ours = option != nullptr && option->is_flag();
  const bool is_dialects = option == nullptr && config_ && dialect_->Knows(name) &&
                           dialect_->IsSwitch(name, config_->groups);
  if (!is_ours && !is_dialects) return false;
  if (flag.value) {
    problems.Add(ErrorCode::kUnexpectedArgument, "{} takes no value; write --{}=true or =false",
                 flag.dashed, name);
  } else if (is_ours) {
    AddFlag(given, *option, "false", problems);
  } else {
    AddDialectFlag(given, name, "false", problems);
  }
  return true;
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

// The dialect sees all flags before any is set, to detect an option given under both names.
void CommandLine::SetFromFilesAndDialect(Given& given, Problems& problems) {
  config_files_ = given.config_files;
  for (const std::string& file : given.config_files) {
    ApplyTomlFile(file, program_, config_->groups, *dialect_, problems);
  }
  for (GivenFlag& flag : given.flags) {
    const std::string& path = flag.option->path();
    flag.value = dialect_->Read(path, flag.value, "--" + path);
  }
  for (const auto& [name, value] : given.dialect_flags) dialect_->Take(name, value, "--" + name);
  dialect_->Apply(config_->groups, problems);
}

void CommandLine::SetFlags(const Given& given, Problems& problems) {
  std::set<const Option*> seen;
  for (const GivenFlag& flag : given.flags) {
    // A list given by flags replaces that of a config file, and grows from then on.
    const bool append = !seen.insert(flag.option).second;
    flag.option->SetFromText(flag.value, "--" + flag.option->path(), append, problems);
  }
}

bool CommandLine::Parse(std::span<const std::string> args) {
  const auto flags_end = std::find(args.begin(), args.end(), "--");
  if (std::any_of(args.begin(), flags_end, IsHelp)) return false;

  if (config_) dialect_ = config_->make_dialect();
  Problems problems;
  Given given = Sort(args, problems);
  if (config_) SetFromFilesAndDialect(given, problems);
  SetFlags(given, problems);
  SetPositionals(given, problems);
  problems.ThrowIfAny();

  log::SetLevel(log_level_);
  if (config_) {
    for (const std::string& notice : dialect_->Notices()) log::Info("{}", notice);
    config_->validate();
  }
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
  if (config_) {
    help += HelpEntry("--config FILE",
                      "read options from a TOML file; may be repeated, later files win over "
                      "earlier ones and flags over all (also --job.config_file)");
  }
  help += HelpEntry(flags_.front());
  help += HelpEntry("--help", "print this text");

  if (!config_) return help;
  for (const OptionGroup& group : config_->groups) {
    help += group.name.empty() ? fmt::format("\n{}\n", group.help)
                               : fmt::format("\n{}: {}\n", group.name, group.help);
    for (const Option& option : group.options) help += HelpEntry(option);
  }
  return help;
}

}  // namespace gt
