// Signals that ask a run to save and end, as a question that the training loop asks between steps:
// SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal or the connection is gone) and SIGUSR1 (SLURM's
// warning before the time is up, --signal=USR1@60). A second one, more than a second later, ends the
// program at once. Ranks that are threads have one watch each; all see the signal. SIGPIPE does nothing
// meanwhile: a reader of the log that goes away must not end the run.
#pragma once

namespace gt {

class SignalWatch {
 public:
  // A SIGHUP that is ignored (nohup) still is.
  SignalWatch();
  ~SignalWatch();  // the handlers from before are in place again
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The signal that came, or 0.
  int received() const;
};

// Whether a run that receives the signal saves and ends.
bool IsStopSignal(int signal);

}  // namespace gt
