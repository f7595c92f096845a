#include "gt/sim/shared_links.h"

#include <algorithm>

#include "gt/base/error.h"

namespace gt {

void SharedLinks::Reset() {
  now_ = -kForever;
  state_.items.clear();
  state_.resources = {};
  next_event_ = kForever;
  next_end_ = kForever;
  unreported_.clear();
  free_ids_.clear();
  ids_ = 0;
}

SharedLinks::Event SharedLinks::State::Next() const {
  Event next{.item = 0, .time = kForever, .ends = true};
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const bool waits = item.resource != LinkResource::kNone && !item.transfers;
    double time = waits ? item.transfer_begin : item.end;
    const Resource& resource = resources[static_cast<std::size_t>(item.resource)];
    if (item.transfers) {
      // Rounding may have put the end a little before the last change. Alone, an item ends exactly
      // when it would without this class.
      time = std::max(resource.changed, item.end);
      if (resource.users > 1) time = resource.changed + (time - resource.changed) * resource.users;
    }
    if (i == 0 || time < next.time) next = {.item = i, .time = time, .ends = !waits};
  }
  return next;
}

// Until now each user got 1 / users of the resource, and the rest of the time it lost.
void SharedLinks::State::ChangeUsers(LinkResource which, double time, std::int32_t by) {
  Resource& resource = resources[static_cast<std::size_t>(which)];
  if (resource.users > 1) {
    const double lost = (time - resource.changed) * (1 - 1.0 / resource.users);
    for (Item& item : items) {
      if (item.transfers && item.resource == which) item.end += lost;
    }
  }
  resource.changed = time;
  resource.users += by;
}

void SharedLinks::State::Apply(const Event& event) {
  Item& item = items[event.item];
  if (!event.ends) {
    ChangeUsers(item.resource, event.time, +1);
    item.transfers = true;
    return;
  }
  if (item.transfers) ChangeUsers(item.resource, event.time, -1);
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(event.item));
}

void SharedLinks::Run(double now) {
  GT_CHECK(now >= now_, "the time of shared links goes back from {} to {}", now_, now);
  now_ = now;
  while (next_event_ <= now) {
    const Event event = state_.Next();
    if (event.ends) {
      unreported_.emplace_back(state_.items[event.item].id, event.time);
      next_end_.reset();
    }
    state_.Apply(event);
    next_event_ = state_.items.empty() ? kForever : state_.Next().time;
  }
}

std::int32_t SharedLinks::Begin(double now, const CollectiveTime& time) {
  Run(now);
  std::int32_t id = ids_;
  if (free_ids_.empty()) {
    ++ids_;
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  const bool shares = contention_ && time.transfer_us > 0;
  state_.items.push_back({.id = id,
                          .resource = shares ? time.resource : LinkResource::kNone,
                          .transfers = false,
                          .transfer_begin = now + time.latency_us,
                          .end = now + time.total_us()});
  next_event_ = state_.Next().time;
  next_end_.reset();
  return id;
}

double SharedLinks::NextEnd() const {
  if (!unreported_.empty()) return unreported_.front().second;
  if (!next_end_) {
    next_end_ = kForever;
    if (!state_.items.empty()) {
      Event event = state_.Next();
      if (!event.ends) {
        scratch_ = state_;
        while (!event.ends) {
          scratch_.Apply(event);
          event = scratch_.Next();
        }
      }
      next_end_ = event.time;
    }
  }
  return *next_end_;
}

double SharedLinks::EndOf(std::int32_t id) const {
  for (const auto& [ended, time] : unreported_) {
    if (ended == id) return time;
  }
  scratch_ = state_;
  while (!scratch_.items.empty()) {
    const Event event = scratch_.Next();
    if (event.ends && scratch_.items[event.item].id == id) return event.time;
    scratch_.Apply(event);
  }
  GT_CHECK(false, "collective {} is not under way", id);
  return kForever;
}

void SharedLinks::AdvanceTo(double now, std::vector<std::pair<std::int32_t, double>>* ended) {
  Run(now);
  ended->assign(unreported_.begin(), unreported_.end());
  for (const auto& [id, time] : unreported_) free_ids_.push_back(id);
  unreported_.clear();
}

}  // namespace gt
