// Takes multiprocessors of a GPU away from everything else until the host says that it is enough, as
// the kernel of a collective does while it is under way.
//
// A claim is a kernel of as many blocks as multiprocessors are to be taken. Each block asks for all
// the shared memory that one may have, so that neither another block of the claim nor any other kernel
// fits beside it, and then only polls a number in host memory.
//
// Claims cannot deadlock. Blocks wait for the host alone, never for each other, so it does not matter
// how many of them are resident: those that find no free multiprocessor come later, or see that all is
// over and end at once. Claims of several streams that together ask for more multiprocessors than there
// are run one after another. The host must write its number from a thread that makes no CUDA calls,
// which may wait for the kernel. If the number does not arrive within a limit, the claim ends by itself
// and leaves a note.
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

  // Numbers in memory that host and device share.
  struct Numbers {
    std::uint32_t* begun;    // set to `number` when the first block runs
    std::uint32_t* done;     // the claim ends when it is `number` or more
    std::uint32_t* gave_up;  // set to `number` when it ended because of the limit
  };
  // Adds the kernel to the stream. `count` is at least 1.
  void Launch(void* stream, int count, const Numbers& numbers, std::uint32_t number,
              std::uint64_t limit_ns) const;

 private:
  MultiprocessorClaim(void* kernel, int multiprocessors, int shared_bytes)
      : kernel_(kernel), multiprocessors_(multiprocessors), shared_bytes_(shared_bytes) {}

  void* kernel_;
  int multiprocessors_;
  int shared_bytes_;
};

}  // namespace gt
