// Host memory for what is moved out of the device's: page-locked where there is a GPU, so that
// copies overlap with kernels. Page-locking costs milliseconds, so buffers are kept and reused.
#pragma once

#include <c10/core/Event.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace gt {

// One piece of it. Whoever refills it must wait for `last_read`.
struct HostBuffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool page_locked = false;
  std::shared_ptr<c10::Event> last_read;  // null: nothing reads it any more

  HostBuffer() = default;
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
};

struct HostPoolUse {
  int64_t in_use = 0;  // bytes that are filled
  int64_t kept = 0;    // bytes taken from the machine, filled or free
  int64_t peak = 0;    // most bytes filled at a time
};

// Thread safe.
class HostPool {
 public:
  // The one that all ranks of a process share.
  static HostPool& Instance();

  // At least that many bytes; page-locked on request. Fails with HostMemoryExhausted, saying how
  // much is in use and what the machine has left.
  std::unique_ptr<HostBuffer> Take(size_t bytes, bool page_locked);
  void Give(std::unique_ptr<HostBuffer> buffer);

  // At most this much may be taken from the machine; 0: what it has.
  void Limit(int64_t bytes);
  HostPoolUse use() const;
  // Returns free buffers to the machine.
  void Trim();

 private:
  std::unique_ptr<HostBuffer> FindFree(size_t bytes, bool page_locked);
  std::unique_ptr<HostBuffer> Allocate(size_t bytes, bool page_locked);
  void ReleaseFree();
  int64_t Left() const;
  [[noreturn]] void FailExhausted(size_t bytes) const;

  mutable std::mutex mutex_;
  std::multimap<size_t, std::unique_ptr<HostBuffer>> free_;  // by size
  HostPoolUse use_;
  int64_t limit_ = 0;
};

}  // namespace gt
