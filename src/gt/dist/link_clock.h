// The links of an emulated cluster in real time: SharedLinks for queues that run in threads of their
// own.
//
// No thread owns the clock. A collective that begins can only delay the ends of others, so each queue
// sleeps until the end of its own collective as known now, and asks again.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gt/sim/shared_links.h"

namespace gt {

// One collective as it went over the links.
struct LinkUse {
  std::string group;
  CollectiveTime alone;  // what it takes without others
  double begin_us = 0;   // since the clock was made
  double end_us = 0;     // as modelled; the thread that waits for it may wake up later
};

class LinkClock {
 public:
  explicit LinkClock(bool contention) : links_(contention) {}
  LinkClock(const LinkClock&) = delete;
  LinkClock& operator=(const LinkClock&) = delete;

  // A collective that begins now.
  class Passage {
   public:
    Passage(LinkClock& clock, const std::string& group, const CollectiveTime& time);
    ~Passage();
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;

    // Returns when it has ended, some microseconds late.
    void Wait();

   private:
    friend class LinkClock;
    LinkClock& clock_;
    LinkUse use_;
    std::int32_t id_;
    bool ended_ = false;
  };

  // From now on every collective that ends is kept for TakeRecord; before, none is.
  void StartRecord();
  std::vector<LinkUse> TakeRecord();

 private:
  using Clock = std::chrono::steady_clock;
  double Now() const;  // with mutex_ held: then it never goes back
  void Advance();      // with mutex_ held

  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  SharedLinks links_;
  std::vector<Passage*> passages_;  // by id; null where a passage was abandoned
  std::vector<std::pair<std::int32_t, double>> ended_;
  std::optional<std::vector<LinkUse>> record_;
};

}  // namespace gt
