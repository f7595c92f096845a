// Signals that ask a run to save and end, as a question that the training loop asks between steps:
// SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal or the connection is gone) and SIGUSR1 (SLURM's
// warning before the time is up, --signal=USR1@60). The first one is answered at once with a line on
// stderr that says which step the run ends after. A second one ends the program immediately. Ranks that
// are threads have one watch each; all see the signal. SIGPIPE is ignored meanwhile: a reader of the log
// that exits must not end the run.
#pragma once

#include <cstdint>

namespace gt {

class SignalWatch {
 public:
  // Signals that are ignored when the run starts (nohup) stay ignored. `answers`: this process prints the line.
  explicit SignalWatch(bool answers);
  ~SignalWatch();  // restores the previous handlers
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The signal that came, or 0.
  int received() const;

  // Ranks decide from now on whether the run ends. A signal is answered by the next SetStep.
  void Decide();
  // The step that is under way from now on, after which a signal ends the run; 0: none, the run is ending.
  void SetStep(int64_t step);
};

// Whether a run that receives the signal saves and ends.
bool IsStopSignal(int signal);

}  // namespace gt
