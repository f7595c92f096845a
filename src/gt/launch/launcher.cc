#include "gt/launch/launcher.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/config/command_line.h"
#include "gt/config/toml.h"

namespace gt {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr int64_t kMaxProcesses = 4096;
constexpr const char* kExample = "gt launch -n 4 -- train --config FILE";

// The command line has long flags only; everybody expects this one to have a short form.
std::string WithLongName(const std::string& arg) {
  if (arg == "-n") return "--processes";
  const bool with_number = arg.starts_with("-n") && arg.size() > 2;
  if (!with_number) return arg;
  return "--processes=" + arg.substr(arg[2] == '=' ? 3 : 2);
}

void AddFlags(CommandLine& line, LaunchOptions* options) {
  line.Flag("processes", &options->processes, Within(1, static_cast<double>(kMaxProcesses)),
            "how many to start, usually one for each GPU; also -n N; must be given")
      .Flag(
          "max-restarts", &options->max_restarts, AtLeast(0),
          "how often to start all ranks again after one has failed; with --checkpoint.enable they "
          "continue from the last checkpoint")
      .Flag("master-port", &options->master_port, Within(0, 65535),
            "port of 127.0.0.1 where the ranks meet; 0 takes a free one")
      .Flag("grace-seconds", &options->process_set.grace_seconds, Within(0, 1e6),
            "how long the other ranks may go on once one has failed, before they are stopped")
      .Positionals("COMMAND", &options->arguments,
                   "what each process runs, behind a --: gt is put in front of it");
}

constexpr const char* kSummary = "starts the ranks of a job on this machine";

// The path that it was started from tells more in a list of processes than /proc/self/exe. But
// after a build another program is there, and a restart must run the one that began the job.
std::string ThisProgram() {
  struct stat running;
  struct stat named;
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(kThisProgram, error);
  const bool same = !error && stat(kThisProgram, &running) == 0 &&
                    stat(path.c_str(), &named) == 0 && running.st_dev == named.st_dev &&
                    running.st_ino == named.st_ino;
  return same ? path : kThisProgram;
}

// The port that was bound, which is `port` unless that is 0; or why it cannot be. The socket is
// closed: rank 0 listens on the port a moment later.
std::optional<int64_t> TryPort(int64_t port, std::string* problem) {
  const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Connections of the last run that are still being forgotten do not matter to the ranks either.
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, size) != 0 || getsockname(fd.get(), generic, &size) != 0) {
    *problem = std::generic_category().message(errno);
    return std::nullopt;
  }
  return ntohs(address.sin_port);
}

int64_t ChoosePort(int64_t wanted) {
  std::string problem;
  if (const auto port = TryPort(wanted, &problem)) return *port;
  if (wanted == 0) Fail(ErrorCode::kLaunchFailed, "no free port was found: {}", problem);
  Fail(ErrorCode::kBadOptionValue,
       "--master-port {} cannot be used: {}; choose another, or leave the flag out and a free one "
       "is "
       "taken",
       wanted, problem);
}

std::vector<Command> CommandsOfRanks(const LaunchOptions& options, int64_t restarts) {
  const std::string world = std::to_string(options.processes);
  Command command;
  command.program = options.program.empty() ? ThisProgram() : options.program;
  command.arguments = {command.program};
  command.arguments.insert(command.arguments.end(), options.arguments.begin(),
                           options.arguments.end());
  command.environment = {
      {"WORLD_SIZE", world},
      {"LOCAL_WORLD_SIZE", world},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(ChoosePort(options.master_port))},
      {"GT_RESTART_COUNT", std::to_string(restarts)},
  };
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    command.environment.emplace_back("OMP_NUM_THREADS", "1");
  }
  std::vector<Command> commands(static_cast<std::size_t>(options.processes), command);
  for (std::size_t rank = 0; rank < commands.size(); ++rank) {
    commands[rank].environment.emplace_back("RANK", std::to_string(rank));
    commands[rank].environment.emplace_back("LOCAL_RANK", std::to_string(rank));
  }
  return commands;
}

std::string DescribeFailure(const ProcessSetReport& report) {
  const std::size_t rank = *report.first_failure;
  return fmt::format("rank {} was the first to fail: it {}", rank, Describe(report.ends[rank]));
}

void SayFailed(const ProcessSetReport& report, int64_t restarts) {
  std::string message = DescribeFailure(report) + "; look for its messages above";
  if (restarts > 0) message += fmt::format("; the job was restarted {} times before", restarts);
  fmt::print(stderr, "gt: {}\n", Error(ErrorCode::kLaunchFailed, message).what());
}

void WarnWithoutCheckpoints(const LaunchOptions& options) {
  const bool trains = options.arguments.front() == "train";
  if (options.max_restarts == 0 || !trains || EnablesCheckpoints(options.arguments)) return;
  log::Warn(
      "--max-restarts {} without --checkpoint.enable: after a failure the run begins anew, since "
      "no "
      "checkpoints are saved that it could continue from",
      options.max_restarts);
}

std::optional<bool> CheckpointsInFile(const std::string& path) {
  try {
    for (const toml::Entry& entry : toml::Parse(ReadWholeFile(path), path).entries) {
      const bool* value = std::get_if<bool>(&entry.value.data);
      if (entry.path == "checkpoint.enable" && value != nullptr) return *value;
    }
  } catch (const std::exception&) {
    // The ranks read the file as well and say what is wrong with it.
  }
  return std::nullopt;
}

}  // namespace

bool EnablesCheckpoints(std::span<const std::string> train_arguments) {
  std::optional<bool> by_flag;
  std::optional<bool> by_file;
  for (std::size_t i = 0; i < train_arguments.size(); ++i) {
    const std::string& arg = train_arguments[i];
    const std::size_t equals = arg.find('=');
    const std::string flag = arg.substr(0, equals);
    const std::string next = i + 1 < train_arguments.size() ? train_arguments[i + 1] : "";
    const std::string value = equals == std::string::npos ? next : arg.substr(equals + 1);
    if (flag == "--checkpoint.enable") by_flag = BooleanFromText(value).value_or(true);
    if (flag == "--checkpoint.no-enable") by_flag = false;
    if (flag == "--config" || flag == "--job.config_file") {
      if (const std::optional<bool> found = CheckpointsInFile(value)) by_file = found;
    }
  }
  return by_flag.value_or(by_file.value_or(false));
}

bool ParseLaunch(std::span<const std::string> args, LaunchOptions* options) {
  const auto separator = std::find(args.begin(), args.end(), "--");
  std::vector<std::string> long_args;
  std::transform(args.begin(), separator, std::back_inserter(long_args), WithLongName);
  if (separator == args.end() && std::find(args.begin(), args.end(), "--help") == args.end() &&
      std::find(args.begin(), args.end(), "-h") == args.end()) {
    Fail(ErrorCode::kMissingArgument,
         "a -- is missing between the flags of gt launch and the command that each rank runs; "
         "example: {}",
         kExample);
  }
  CommandLine line("gt launch", kSummary);
  AddFlags(line, options);
  long_args.insert(long_args.end(), separator, args.end());
  if (!line.Parse(long_args)) return false;

  const auto behind = static_cast<std::size_t>(args.end() - separator) - 1;
  if (options->arguments.size() > behind) {
    Fail(ErrorCode::kUnexpectedArgument, "{} stands before the --; the command comes behind it: {}",
         Quoted(options->arguments.front()), kExample);
  }
  if (options->arguments.empty()) {
    Fail(ErrorCode::kMissingArgument, "no command behind the --; example: {}", kExample);
  }
  if (options->processes == 0) {
    Fail(ErrorCode::kMissingArgument,
         "-n is missing: how many processes to start, usually one for each GPU; example: {}",
         kExample);
  }
  return true;
}

std::string LaunchHelp() {
  LaunchOptions options;
  CommandLine line("gt launch", kSummary);
  AddFlags(line, &options);
  return line.Help() +
         fmt::format(
             "\nExample: {}\n\n"
             "Every process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,\n"
             "MASTER_PORT and GT_RESTART_COUNT in its environment, and OMP_NUM_THREADS=1 unless "
             "it\n"
             "is set. Rank 0's output is shown as it comes, the lines of the others behind\n"
             "\"[rank 3] \". Ctrl-C and SIGTERM are passed on to all ranks, which stop after the "
             "step\n"
             "and save a checkpoint; the second one kills them. The exit status is that of the "
             "rank\n"
             "that failed first, 128 + N if signal N killed it.\n",
             kExample);
}

int Launch(const LaunchOptions& options) {
  WarnWithoutCheckpoints(options);
  for (int64_t restarts = 0;; ++restarts) {
    const ProcessSetReport report =
        RunProcessSet(CommandsOfRanks(options, restarts), options.process_set);
    const int status = report.ExitStatus();
    const int stop_signal = report.forwarded_signal;
    if (status == 0 || (stop_signal != 0 && status == 128 + stop_signal)) return status;
    if (stop_signal != 0 || restarts == options.max_restarts) {
      SayFailed(report, restarts);
      return status;
    }
    log::Warn("{}; restart {} of {}", DescribeFailure(report), restarts + 1, options.max_restarts);
  }
}

}  // namespace gt
