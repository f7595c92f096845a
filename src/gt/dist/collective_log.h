// When the collectives of a stretch of a run were launched and when they were done, for timelines.
// Backend neutral: a thread looks again and again which of them have completed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "gt/base/name.h"

namespace gt {

class CollectiveLog {
 public:
  // Of the collectives that this thread launches until Finish; one at a time.
  CollectiveLog();
  ~CollectiveLog();
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;
  static CollectiveLog* Active();

  // Returns the number by which Landed knows it.
  size_t Add(Name group, c10::intrusive_ptr<c10d::Work> work);
  // Somebody has waited for it on the host. Some backends never say of a collective that it is done.
  void Landed(size_t number);

  struct Entry {
    Name group;
    double launched = 0, finished = 0;  // microseconds since the log began, by the host's clock
  };
  // In the order they were launched; waits until all are done.
  std::vector<Entry> Finish();

 private:
  struct Flight {
    size_t entry;
    c10::intrusive_ptr<c10d::Work> work;
  };
  void Look();
  double Now() const;

  std::chrono::steady_clock::time_point origin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  std::deque<Flight> flights_;
  bool stop_ = false;
  std::thread looker_;
};

}  // namespace gt
