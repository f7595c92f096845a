// gt launch: the ranks of a job as processes of this machine.
#include <fmt/format.h>

#include "gt/cli/commands.h"
#include "gt/launch/launcher.h"

namespace gt::cli {

int RunLaunch(Arguments args) {
  LaunchOptions options;
  if (!ParseLaunch(args, &options)) {
    fmt::print("{}", LaunchHelp());
    return 0;
  }
  return Launch(options);
}

}  // namespace gt::cli
