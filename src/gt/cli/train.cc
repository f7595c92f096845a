#include <fmt/format.h>

#include "gt/cli/commands.h"
#include "gt/config/command_line.h"
#include "gt/job/config.h"
#include "gt/train/trainer.h"

namespace gt::cli {
namespace {

constexpr const char* kSignals =
    "SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR1 let the step under way finish, save a checkpoint "
    "and\n"
    "end the run; a second one ends it at once. With SLURM: #SBATCH --signal=USR1@120\n";

}  // namespace

int RunTrain(Arguments args) {
  Config config;
  CommandLine line(
      "gt train", "trains a language model; without flags, a small one on text that ships with gt");
  line.WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}\n{}", line.Help(), kSignals);
    return 0;
  }
  config.config_files = line.config_files();
  TrainSummary summary = Train(config);
  // As shells report a signal: the job is not finished.
  return summary.signal == 0 ? 0 : 128 + summary.signal;
}

}  // namespace gt::cli
