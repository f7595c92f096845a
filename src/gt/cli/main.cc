// gt: trains language models by capturing the whole train step as one graph.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/cli/commands.h"
#include "gt/cli/opt.h"
#include "gt/exec/device.h"

namespace {

using gt::cli::Arguments;

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(Arguments);
};

constexpr Command kCommands[] = {
    {"train", "train a model (without flags: a small one on the text that ships with gt)",
     gt::cli::RunTrain},
    {"launch", "run a command on several ranks of this machine, one process each",
     gt::cli::RunLaunch},
    {"generate", "continue a text with a trained model", gt::cli::RunGenerate},
    {"info", "print what a model weighs: parameters, arithmetic, memory under a parallelism",
     gt::cli::RunInfo},
    {"trace", "capture a model's train step as a graph, without its weights", gt::cli::RunTrace},
    {"memory", "print what a train step needs of the device's memory, without allocating it",
     gt::cli::RunMemory},
    {"simulate",
     "predict how long a train step takes on a cluster, and what of it is communication",
     gt::cli::RunSimulate},
    {"opt", "run passes on a graph in text form",
     [](Arguments args) {
       return gt::RunOpt({args.begin(), args.end()});
     }},
    {"draw", "draw a part of a graph as a picture", gt::cli::RunDraw},
    {"docs", "print the pages of documentation that are made from the program", gt::cli::RunDocs},
};

void PrintHelp() {
  fmt::print(
      "gt captures the train step of a language model as one graph, rewrites it and replays it.\n\n"
      "usage: gt COMMAND [ARGUMENTS]\n\n");
  for (const Command& command : kCommands)
    fmt::print("  {:<8} {}\n", command.name, command.summary);
  fmt::print(
      "\nof the launcher ./gt, for working on gt itself:\n\n"
      "  test     run every test (--slow: also the long ones)\n"
      "  bench    run the benchmarks\n"
      "  fuzz     run a fuzz target\n"
      "  build    build only\n"
      "  format   format the source\n"
      "\n'gt COMMAND --help' shows the flags of a command.\n");
}

int Run(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    PrintHelp();
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name == args[0]) return command.run(Arguments(args).subspan(1));
    names.emplace_back(command.name);
  }
  gt::Fail(gt::ErrorCode::kUnknownOption, "there is no command '{}'{}; 'gt --help' lists them",
           args[0], gt::DidYouMean(args[0], names));
}

}  // namespace

int main(int count, char** values) {
  // A limit on file sizes is an error of the write, not the end of the program.
  std::signal(SIGXFSZ, SIG_IGN);
  gt::PrepareCpu();
  try {
    return Run({values + 1, values + count});
  } catch (const gt::Error& error) {
    fmt::print(stderr, "gt: {}\n", error.what());
    return error.code() == gt::ErrorCode::kInternal ? 70 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gt: {}: {}\n", gt::CodeName(gt::ErrorCode::kInternal), error.what());
    return 70;
  }
}
