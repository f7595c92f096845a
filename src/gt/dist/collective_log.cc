#include "gt/dist/collective_log.h"

#include <algorithm>

#include "gt/base/error.h"

namespace gt {
namespace {

thread_local CollectiveLog* active_log = nullptr;

// Between two looks: short beside a collective worth hiding, long beside a look.
constexpr auto kPause = std::chrono::microseconds(20);

}  // namespace

CollectiveLog* CollectiveLog::Active() { return active_log; }

CollectiveLog::CollectiveLog()
    : origin_(std::chrono::steady_clock::now()), looker_([this] { Look(); }) {
  GT_CHECK(active_log == nullptr, "two logs of collectives at once");
  active_log = this;
}

CollectiveLog::~CollectiveLog() {
  if (active_log == this) active_log = nullptr;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (looker_.joinable()) looker_.join();
}

double CollectiveLog::Now() const {
  auto elapsed = std::chrono::steady_clock::now() - origin_;
  return std::chrono::duration<double, std::micro>(elapsed).count();
}

size_t CollectiveLog::Add(Name group, c10::intrusive_ptr<c10d::Work> work) {
  size_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = entries_.size();
    entries_.push_back({group, Now(), 0});
    flights_.push_back({number, std::move(work)});
  }
  changed_.notify_all();
  return number;
}

void CollectiveLog::Landed(size_t number) {
  {
    std::lock_guard lock(mutex_);
    auto found = std::find_if(flights_.begin(), flights_.end(),
                              [number](const Flight& flight) { return flight.entry == number; });
    if (found == flights_.end()) return;  // seen before
    entries_[number].finished = Now();
    flights_.erase(found);
  }
  changed_.notify_all();
}

void CollectiveLog::Look() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !flights_.empty(); });
    if (flights_.empty() && stop_) return;
    for (auto flight = flights_.begin(); flight != flights_.end();) {
      if (!flight->work->isCompleted()) {
        ++flight;
        continue;
      }
      entries_[flight->entry].finished = Now();
      flight = flights_.erase(flight);
    }
    if (flights_.empty()) {
      changed_.notify_all();
      continue;
    }
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

std::vector<CollectiveLog::Entry> CollectiveLog::Finish() {
  active_log = nullptr;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return flights_.empty(); });
  return std::move(entries_);
}

}  // namespace gt
