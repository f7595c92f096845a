// Takes multiprocessors of a GPU away from other kernels for a while, as the kernel of a collective
// does while it is under way.
//
// A claim is a kernel of as many blocks as multiprocessors are to be taken, of the size that NCCL's
// have, which sleep until their time is over. Matrix products, which need a multiprocessor for
// themselves, then have that many fewer. A claim ends by itself and waits for nothing, so it cannot
// block anything.
//
// Why it goes by the clock: blocks that poll a number in host memory make every other launch on the
// device wait for up to milliseconds (seen on an H200), whatever else they ask for.
#pragma once

#include <cstdint>
#include <optional>

namespace gt {

class MultiprocessorClaim {
 public:
  // For the current device. Nothing where the driver cannot load or run the kernel; the reason is
  // logged.
  static std::optional<MultiprocessorClaim> Load();

  // How many the device has.
  int multiprocessors() const { return multiprocessors_; }

  // Adds the kernel to the stream. `count` is at least 1.
  void Launch(void* stream, int count, std::uint64_t nanoseconds) const;

 private:
  MultiprocessorClaim(void* kernel, int multiprocessors)
      : kernel_(kernel), multiprocessors_(multiprocessors) {}

  void* kernel_;
  int multiprocessors_;
};

}  // namespace gt
