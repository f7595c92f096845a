// SIGINT and SIGTERM as a question that the training loop asks between steps. A second signal ends
// the program at once.
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
