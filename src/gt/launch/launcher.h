// gt launch: all ranks of a job on one machine, as processes, restarted when one fails.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gt/launch/process_set.h"

namespace gt {

struct LaunchOptions {
  int64_t processes = 0;
  int64_t max_restarts = 0;
  int64_t master_port = 0;  // 0: a free one, another for every start
  ProcessSetOptions process_set;
  std::string program;                 // empty: the running one
  std::vector<std::string> arguments;  // without argv[0]
};

// Reads "-n 4 --max-restarts 2 -- train ...". False when --help was asked for. Errors as
// CommandLine, and MissingArgument if -n, the -- or the command after it is missing.
[[nodiscard]] bool ParseLaunch(std::span<const std::string> args, LaunchOptions* options);
std::string LaunchHelp();

// Runs the program once per rank with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT and GT_RESTART_COUNT set, and OMP_NUM_THREADS=1 if it is not: as many threads per
// rank as the machine has cores would fight for them. When a rank fails, the others are stopped and
// all are started anew, at most max_restarts times; not after somebody asked the job to stop.
// Returns the exit status of the job; says on stderr what happened.
int Launch(const LaunchOptions& options);

// Whether these arguments of gt train make it save checkpoints, which a restart continues from.
// Config files that cannot be read count for nothing here: the ranks say what is wrong with them.
bool EnablesCheckpoints(std::span<const std::string> train_arguments);

}  // namespace gt
