// Turns signals into something that poll and epoll can wait for.
#pragma once

#include <signal.h>

#include <vector>

#include "gt/launch/child_process.h"

namespace gt {

// While it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD do nothing but make fd() readable,
// whichever thread they come to, and SIGPIPE is ignored: a reader of the job's log that goes away
// must not end the job. A SIGINT or SIGHUP that was ignored before (nohup, background jobs of
// scripts) still is. There can be one at a time.
class SignalRelay {
 public:
  SignalRelay();
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  int fd() const { return pipe_.read.get(); }
  // The signals that came since the last call, in order.
  std::vector<int> Take();
  // Signals have their old effect again. Those that came before can still be taken.
  void Stop();

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };

  Pipe pipe_;
  std::vector<Before> before_;
};

}  // namespace gt
