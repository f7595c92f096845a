#include "gt/dist/link_clock.h"

#include <thread>
#include <utility>

namespace gt {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;

// Sleeping alone is off by up to 50 us.
void WaitUntil(std::chrono::steady_clock::time_point when) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kOversleep = std::chrono::microseconds(80);
  if (when - Clock::now() > kOversleep) std::this_thread::sleep_until(when - kOversleep);
  while (Clock::now() < when) std::this_thread::yield();
}

}  // namespace

double LinkClock::Now() const { return Microseconds(Clock::now() - start_).count(); }

void LinkClock::Advance() {
  links_.AdvanceTo(Now(), &ended_);
  for (const auto& [id, time] : ended_) {
    Passage* passage = std::exchange(passages_[static_cast<size_t>(id)], nullptr);
    if (passage == nullptr) continue;
    passage->use_.end_us = time;
    passage->ended_ = true;
    if (record_) record_->push_back(passage->use_);
  }
}

LinkClock::Passage::Passage(LinkClock& clock, const std::string& group, const CollectiveTime& time)
    : clock_(clock), use_{.group = group, .alone = time} {
  std::lock_guard lock(clock_.mutex_);
  use_.begin_us = clock_.Now();
  id_ = clock_.links_.Begin(use_.begin_us, time);
  const auto slot = static_cast<size_t>(id_);
  if (slot >= clock_.passages_.size()) clock_.passages_.resize(slot + 1, nullptr);
  clock_.passages_[slot] = this;
}

LinkClock::Passage::~Passage() {
  std::lock_guard lock(clock_.mutex_);
  if (!ended_) clock_.passages_[static_cast<size_t>(id_)] = nullptr;
}

void LinkClock::Passage::Wait() {
  while (true) {
    Microseconds end{};
    {
      std::lock_guard lock(clock_.mutex_);
      if (!ended_) clock_.Advance();
      if (ended_) return;
      end = Microseconds(clock_.links_.EndOf(id_));
    }
    WaitUntil(clock_.start_ + std::chrono::ceil<Clock::duration>(end));
  }
}

void LinkClock::StartRecord() {
  std::lock_guard lock(mutex_);
  record_.emplace();
}

std::vector<LinkUse> LinkClock::TakeRecord() {
  std::lock_guard lock(mutex_);
  return record_ ? std::exchange(*record_, {}) : std::vector<LinkUse>{};
}

}  // namespace gt
