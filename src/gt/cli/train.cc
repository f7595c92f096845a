#include <fmt/format.h>

#include "gt/cli/commands.h"
#include "gt/config/command_line.h"
#include "gt/train/trainer.h"

namespace gt::cli {

int RunTrain(Arguments args) {
  Config config;
  CommandLine line(
      "gt train", "trains a language model; without flags, a small one on text that ships with gt");
  line.WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  TrainSummary summary = Train(config);
  // As shells report a signal: the job is not finished.
  return summary.signal == 0 ? 0 : 128 + summary.signal;
}

}  // namespace gt::cli
