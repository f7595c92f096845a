// What tensors in the CPU's memory occupy, counted as they are allocated and freed. The resident set of
// the process, which the system counts, is no measure of it: allocators keep what was freed, and
// ranks that are threads share a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace gt {

class MemoryMeter {
 public:
  int64_t current() const { return current_; }
  int64_t peak() const { return peak_; }
  void ResetPeak() { peak_ = current_.load(); }
  // Allocations beyond it fail with libtorch's OutOfMemoryError, as on a GPU; 0: no limit.
  void Limit(int64_t bytes) { limit_ = bytes; }

  void Add(int64_t bytes);  // throws at the limit
  void Remove(int64_t bytes) { current_ -= bytes; }

 private:
  std::atomic<int64_t> current_ = 0, peak_ = 0, limit_ = 0;
};

// The meter that this thread's allocations count on: its innermost scope's, else the process's.
// Counting begins with the first call of this, or the first scope.
MemoryMeter& CurrentMeter();

// While it lives, what this thread allocates counts on a meter of its own, also when another thread
// frees it.
class MeterScope {
 public:
  MeterScope();
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  std::shared_ptr<MemoryMeter> outer_;
};

}  // namespace gt
