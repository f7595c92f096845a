// When the solver has to come to an end.
#pragma once

#include <atomic>
#include <chrono>
#include <limits>

namespace gt::placement {

class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool limited() const { return seconds_ < std::numeric_limits<double>::infinity(); }
  double left_s() const {
    if (interrupted_) return 0;
    return limited() ? seconds_ - elapsed_s() : seconds_;
  }
  bool passed() const { return interrupted_ || (limited() && elapsed_s() >= seconds_); }

  // All searches of this process end with the best that they have. May be called in a signal handler.
  static void Interrupt() { interrupted_ = true; }
  static bool interrupted() { return interrupted_; }

 private:
  static inline std::atomic<bool> interrupted_ = false;

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_;
};

}  // namespace gt::placement
