// The arguments of one subcommand: its own flags and positional arguments, and if wanted every
// option of a configuration.
//
//   std::vector<std::string> passes;
//   std::string input;
//   CommandLine line("gt opt", "runs passes on a graph");
//   line.Flag("pass", &passes, "passes to run, in order")
//       .Positional("FILE", &input, "graph to read, as .gtir");
//   if (!line.Parse(args)) {
//     fmt::print("{}", line.Help());
//     return 0;
//   }
//
// Flags are written --name value or --name=value; booleans also --name, or --section.no-name as in
// torchtitan, and true and false in any case. Repeating a flag is an error, except for lists, which grow. `--` ends the flags. Every command also has --help and --log_level.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gt/base/logging.h"
#include "gt/config/config_binding.h"
#include "gt/config/option.h"

namespace gt {

class CommandLine {
 public:
  CommandLine(std::string program, std::string summary);
  // Flags are bound to members of this object.
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Variables are bool, int64_t, double, std::string, StringList or an enum with kEnumNames. Their
  // present values are the defaults, and they must outlive Parse.
  template <typename T>
  CommandLine& Flag(std::string name, T* variable, Limit limit, std::string help) {
    AddFlag(Option(std::move(name), variable, limit, std::move(help)));
    return *this;
  }
  template <typename T>
  CommandLine& Flag(std::string name, T* variable, std::string help) {
    return Flag(std::move(name), variable, Any(), std::move(help));
  }

  // Positional arguments are taken in the order they were added.
  CommandLine& Positional(std::string name, std::string* variable, std::string help);
  CommandLine& OptionalPositional(std::string name, std::string* variable, std::string help);
  // Takes all that remain, and so is last.
  CommandLine& Positionals(std::string name, StringList* variable, std::string help);

  // Adds every option of the config, and --config FILE (also --job.config_file FILE), which may be
  // repeated. Flags win over files wherever they are, and later files over earlier ones.
  CommandLine& WithConfig(ConfigBinding config);
  // For a struct that BindConfig(Config*), a function in the struct's namespace, describes.
  template <typename Config>
  CommandLine& WithConfig(Config* config) {
    return WithConfig(BindConfig(config));
  }

  // False when --help was given; the variables are then untouched. Otherwise sets the variables and
  // the log level and validates the config, or throws one gt::Error that lists everything wrong,
  // after which some variables may be set and others not. The arguments do not include the names of
  // program and subcommand.
  [[nodiscard]] bool Parse(std::span<const std::string> args);
  [[nodiscard]] bool Parse(int count, const char* const* args);

  // The files of --config, once parsed.
  const std::vector<std::string>& config_files() const { return config_files_; }

  std::string Help() const;

 private:
  struct PositionalArgument {
    std::string name;
    std::string help;
    bool required = false;
    std::string* one = nullptr;
    StringList* rest = nullptr;
  };
  struct GivenFlag {
    Option* option = nullptr;
    std::string value;
  };
  // One flag of the command line.
  struct WrittenFlag {
    std::string_view dashed;                // "--training.steps"
    std::string_view name;                  // "training.steps"; empty after a single dash
    std::optional<std::string_view> value;  // what follows the =
    std::optional<std::string_view> next;   // the next argument, if it is not a flag
  };
  // The arguments sorted out, before anything is set: flags apply only after the config files.
  struct Given {
    std::vector<GivenFlag> flags;
    std::vector<std::pair<std::string, std::string>> dialect_flags;
    std::vector<std::string> config_files;
    std::vector<std::string> positionals;
    bool unknown_flag = false;
  };

  void AddFlag(Option option);
  CommandLine& AddPositional(PositionalArgument positional);
  Option* Find(std::string_view name);
  std::vector<std::string> FlagNames() const;
  Given Sort(std::span<const std::string> args, Problems& problems);
  static WrittenFlag ReadFlag(std::span<const std::string> args, std::size_t at);
  std::size_t SortFlag(const WrittenFlag& flag, Given& given, Problems& problems);
  std::size_t SortDialectFlag(const WrittenFlag& flag, Given& given, Problems& problems) const;
  bool SortNegation(const WrittenFlag& flag, Given& given, Problems& problems);
  static void AddFlag(Given& given, Option& option, std::string_view value, Problems& problems);
  static void AddDialectFlag(Given& given, std::string_view name, std::string_view value,
                             Problems& problems);
  void SetFromFilesAndDialect(Given& given, Problems& problems);
  static void SetFlags(const Given& given, Problems& problems);
  void SetPositionals(const Given& given, Problems& problems) const;

  std::string program_;
  std::string summary_;
  std::vector<PositionalArgument> positionals_;
  std::vector<Option> flags_;
  log::Level log_level_;
  std::optional<ConfigBinding> config_;
  std::vector<std::string> config_files_;
  std::unique_ptr<Dialect> dialect_;  // of the arguments that are being parsed
};

}  // namespace gt
