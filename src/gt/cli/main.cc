// gt: trains language models by capturing the whole train step as one graph.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "gt/base/build_id.h"
#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/cli/commands.h"
#include "gt/cli/opt.h"
#include "gt/cli/passive_waiting.h"
#include "gt/torch_bridge/device.h"

namespace {

using gt::cli::Arguments;

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(Arguments);
  bool computes = false;  // with the threads of libtorch
};

constexpr Command kCommands[] = {
    {"train", "train a model (without flags: a small one on the text that ships with gt)",
     gt::cli::RunTrain, /*computes=*/true},
    {"launch", "run a command on several ranks of this machine, one process each",
     gt::cli::RunLaunch},
    {"generate", "continue a text with a trained model", gt::cli::RunGenerate, /*computes=*/true},
    {"models", "list the families and flavors of models", gt::cli::RunModels},
    {"info", "print what a model weighs: parameters, arithmetic, memory under a parallelism",
     gt::cli::RunInfo},
    {"trace", "capture a model's train step as a graph, without its weights", gt::cli::RunTrace,
     /*computes=*/true},
    {"memory", "print what a train step needs of the device's memory, without allocating it",
     gt::cli::RunMemory, /*computes=*/true},
    {"simulate",
     "predict how long a train step takes on a cluster, and what of it is communication",
     gt::cli::RunSimulate, /*computes=*/true},
    {"place", "find how a train step is laid out on a mesh of ranks", gt::cli::RunPlace,
     /*computes=*/true},
    {"opt", "run passes on a graph in text form",
     [](Arguments args) {
       return gt::RunOpt({args.begin(), args.end()});
     }},
    {"draw", "draw a part of a graph as a picture", gt::cli::RunDraw},
    {"docs", "print the pages of documentation that are made from the program", gt::cli::RunDocs},
};

// Commands of the script ./gt.
struct LauncherCommand {
  std::string_view name;
  std::string_view summary;
};

constexpr LauncherCommand kLauncherCommands[] = {
    {"test", "run every test (--slow: also the long ones)"},
    {"bench", "run the benchmarks"},
    {"fuzz", "run a fuzz target"},
    {"build", "build only"},
    {"format", "format the source"},
};

void PrintHelp() {
  fmt::print(
      "gt captures the train step of a language model as one graph, rewrites it and replays "
      "it.\n\n"
      "usage: gt COMMAND [ARGUMENTS]\n\n");
  for (const Command& command : kCommands)
    fmt::print("  {:<8} {}\n", command.name, command.summary);
  fmt::print("\nof the launcher ./gt, for working on gt itself:\n\n");
  for (const LauncherCommand& command : kLauncherCommands) {
    fmt::print("  {:<8} {}\n", command.name, command.summary);
  }
  fmt::print(
      "\n'gt help COMMAND' or 'gt COMMAND --help' shows the flags of a command, 'gt --version' "
      "which build this is.\n");
}

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

[[noreturn]] void FailUnknownCommand(std::string_view name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : kCommands) names.emplace_back(command.name);
  gt::Fail(gt::ErrorCode::kUnknownOption, "there is no command '{}'{}; 'gt --help' lists them",
           name, gt::DidYouMean(name, names));
}

bool AsksForHelp(std::string_view arg) { return arg == "--help" || arg == "-h" || arg == "help"; }

// gt help [COMMAND].
int Help(Arguments wanted) {
  if (wanted.size() > 1) {
    gt::Fail(gt::ErrorCode::kUnexpectedArgument, "gt help takes one command, but got {}",
             gt::Join(std::vector<std::string>(wanted.begin(), wanted.end()), " "));
  }
  if (wanted.empty() || AsksForHelp(wanted.front())) {
    PrintHelp();
    return 0;
  }
  const std::string& name = wanted.front();
  if (const Command* command = FindCommand(name)) {
    const std::vector<std::string> help = {"--help"};
    return command->run(help);
  }
  for (const LauncherCommand& command : kLauncherCommands) {
    if (command.name != name) continue;
    fmt::print("./gt {}: {}\n", name, command.summary);
    return 0;
  }
  FailUnknownCommand(name);
}

int Run(const std::vector<std::string>& args) {
  if (args.empty()) return Help({});
  if (AsksForHelp(args[0])) return Help(Arguments(args).subspan(1));
  if (args[0] == "--version") {
    fmt::print("gt {} (build {}), libtorch {}\n", GT_VERSION, gt::BuildId(), TORCH_VERSION);
    return 0;
  }
  const Command* command = FindCommand(args[0]);
  if (command == nullptr) FailUnknownCommand(args[0]);
  return command->run(Arguments(args).subspan(1));
}

// A file that is opened while a standard stream is closed would take its number, and what is printed
// would go there. Opened the wrong way round, the streams still fail when they are used.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    [[maybe_unused]] const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Not fmt::print, which throws when nobody can be told.
void Complain(const gt::Error& error) {
  std::fputs(fmt::format("gt: {}\n", error.what()).c_str(), stderr);
}

// `output_error`: why standard output could not be written, if that ended the command.
int RunReportingErrors(const std::vector<std::string>& args, int* output_error) {
  try {
    return Run(args);
  } catch (const gt::Error& error) {
    Complain(error);
    return error.code() == gt::ErrorCode::kInternal ? 70 : 1;
  } catch (const std::exception& error) {
    const auto* of_system = dynamic_cast<const std::system_error*>(&error);
    if (of_system != nullptr && std::ferror(stdout) != 0) {  // thrown by fmt::print
      *output_error = of_system->code().value();
      return 1;
    }
    Complain(gt::Error(gt::ErrorCode::kInternal, error.what()));
    return 70;
  }
}

// Of a pipe, also when it was noticed so long ago that nobody knows the reason any more.
bool OutputReaderIsGone() {
  pollfd output = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

// Output that is lost must not look like success. Network file systems report that a disk is full as
// late as when the file is closed.
int FinishOutput(int status, int output_error) {
  const bool failed = std::ferror(stdout) != 0;
  if (failed && OutputReaderIsGone()) return 128 + SIGPIPE;  // it has seen enough, such as head
  const bool closed = std::fclose(stdout) == 0;
  if (!closed) output_error = errno;
  if (!failed && closed) return status;
  if (output_error == EPIPE) return 128 + SIGPIPE;
  const std::string reason =
      output_error == 0 ? "" : ": " + std::generic_category().message(output_error);
  Complain(gt::Error(
      gt::ErrorCode::kCannotWrite,
      fmt::format("standard output could not be written{}; what was printed is not complete",
                  reason)));
  return status == 0 ? 1 : status;
}

}  // namespace

int main(int count, char** values) {
  OccupyStandardStreams();
  // A limit on file sizes is an error of the write, not the end of the program.
  std::signal(SIGXFSZ, SIG_IGN);
  if (count > 1) {
    const Command* command = FindCommand(values[1]);
    if (command != nullptr && command->computes) gt::cli::WaitPassively(values);
  }
  gt::PrepareCpu();
  int output_error = 0;
  const int status = RunReportingErrors({values + 1, values + count}, &output_error);
  return FinishOutput(status, output_error);
}
