// Signals that ask a run to save and end, as a question that the training loop asks between steps:
// SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal or the connection is gone) and SIGUSR1 (SLURM's
// warning before the time is up, --signal=USR1@60). A second one, more than a second later, ends the
// program immediately. Ranks that are threads have one watch each; all see the signal. SIGPIPE is
// ignored meanwhile: a reader of the log that exits must not end the run.
#pragma once

namespace gt {

class SignalWatch {
 public:
  // A SIGHUP that is ignored (nohup) still is.
  SignalWatch();
  ~SignalWatch();  // restores the previous handlers
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The signal that came, or 0.
  int received() const;
};

// Whether a run that receives the signal saves and ends.
bool IsStopSignal(int signal);

}  // namespace gt
