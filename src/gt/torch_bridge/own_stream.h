// A stream that nobody else uses. libtorch's pool has 32 streams of each priority and then hands out the same
// ones again: where several thread ranks share a GPU, each with a few groups of collectives, the stream that
// one rank computes on would be the one that another rank copies on, and two threads would submit to it.
#pragma once

#include <c10/core/Stream.h>

namespace gt {

class OwnStream {
 public:
  OwnStream(c10::Device gpu, bool high_priority);
  // The next one to be made may take the stream over, with what is still queued on it.
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  const c10::Stream& operator*() const { return stream_; }
  const c10::Stream* operator->() const { return &stream_; }

 private:
  c10::Stream stream_;
  bool high_priority_;
};

}  // namespace gt
