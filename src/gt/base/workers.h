// Work that is cut into items, on all cores. at::parallel_for cannot do it in our files: it is a
// template that runs on one thread wherever OpenMP is not switched on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

namespace gt {

// The numbers 0, 1, ... up to a count, each given out once. Thread safe.
class WorkItems {
 public:
  explicit WorkItems(int64_t count) : count_(count) {}
  // Nothing when all are given out, or when another worker has failed.
  std::optional<int64_t> Next();
  void Stop() { next_ = count_; }

 private:
  const int64_t count_;
  std::atomic<int64_t> next_ = 0;
};

// Calls `worker` on as many threads as there are cores, or items if those are fewer; one of them is
// the caller's. Each takes items until there are none. Returns when all have returned; the first
// exception ends the work and is thrown here.
//
// Callers at the same time, such as ranks that are threads, each bring their own workers: the system
// shares the cores out among them, and who is done first leaves them to the others.
void RunWorkers(int64_t items, const std::function<void(WorkItems& items)>& worker);

// At most so many threads for each call from now on; 0: as many as there are cores. For tests and
// measurements.
void LimitWorkers(int64_t threads);

}  // namespace gt
