// When the solver has to come to an end.
#pragma once

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
  double left_s() const { return limited() ? seconds_ - elapsed_s() : seconds_; }
  bool passed() const { return limited() && elapsed_s() >= seconds_; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_;
};

}  // namespace gt::placement
