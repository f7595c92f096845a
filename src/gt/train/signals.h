// SIGINT and SIGTERM as a question that the training loop asks between steps. A second one, more than a
// second later, ends the program at once. Ranks that are threads have one each; all see the signal.
#pragma once

namespace gt {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();  // the handlers from before are in place again
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The signal that came, or 0.
  int received() const;
};

}  // namespace gt
