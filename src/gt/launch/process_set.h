// Runs the processes of one job on this machine: starts them, merges what they print, passes
// signals on, and sees to it that none is left when the job is over, however it ends.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "gt/launch/child_process.h"

namespace gt {

struct ProcessSetOptions {
  // How long the others may go on once one has failed. They usually end by themselves, with a
  // message that says more than that they were killed. Then comes SIGTERM.
  double grace_seconds = 15;
  // From SIGTERM to SIGKILL.
  double kill_seconds = 5;
  // Where the output goes; tests collect it.
  int stdout_fd = STDOUT_FILENO;
  int stderr_fd = STDERR_FILENO;
};

struct ProcessSetReport {
  std::vector<ProcessEnd> ends;  // by rank
  // The first that ended with anything but status 0. Of several that ended at the same moment it is
  // one that died of a signal: a crash is a cause, an exit with an error often its effect.
  std::optional<std::size_t> first_failure;
  int forwarded_signal = 0;  // by which somebody asked the job to stop, or 0

  // What a shell would see of the job: 0, or the first failure's status, or 128 + its signal.
  int ExitStatus() const;
};

// Starts one process per command, in the order of their ranks, and returns when all have ended.
// Each is the leader of its own process group and reads nothing from stdin. Rank 0's output passes
// through as it comes; of the others whole lines, each after "[rank 3] ".
//
// SIGINT, SIGTERM, SIGHUP and SIGUSR1 sent to this process are passed on to all; the second one
// kills them. If this process or the calling thread dies, the kernel kills the processes. What a
// process started itself and left behind is killed when that process ends.
//
// Throws LaunchFailed, with nothing left running, if a process cannot be started. There can be one
// call at a time.
ProcessSetReport RunProcessSet(const std::vector<Command>& commands,
                               const ProcessSetOptions& options = {});

}  // namespace gt
