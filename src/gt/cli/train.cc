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
  Train(config);
  return 0;
}

}  // namespace gt::cli
