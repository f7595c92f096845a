#include "gt/placement/search/step_moments.h"

#include <algorithm>
#include <utility>

namespace gt::placement {

StepMoments::StepMoments(const StepProblem& problem)
    : problem_(problem), live_(problem.variables.size()) {
  std::vector<std::pair<int32_t, int32_t>> events;  // tick, 0: an end, 1: a beginning
  for (const StepVariable& variable : problem.variables) {
    if (variable.usage.empty()) continue;
    for (const LiveRange& range : variable.live) {
      if (range.begin >= range.end || range.count == 0) continue;
      events.emplace_back(range.begin, 1);
      events.emplace_back(range.end, 0);
    }
  }
  std::ranges::sort(events);
  std::vector<int32_t> ticks;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    if (events[i].second == 1 && events[i + 1].second == 0) ticks.push_back(events[i].first);
  }
  count_ = ticks.size();
  const auto first_at = [&](int32_t tick) {
    return static_cast<int32_t>(std::ranges::lower_bound(ticks, tick) - ticks.begin());
  };
  for (size_t v = 0; v < live_.size(); ++v) {
    if (problem.variables[v].usage.empty()) continue;
    for (const LiveRange& range : problem.variables[v].live) {
      const LiveRange moments{first_at(range.begin), first_at(range.end), range.count};
      if (moments.begin < moments.end && range.count > 0) live_[v].push_back(moments);
    }
  }
}

int32_t StepMoments::CountAt(size_t variable, int32_t moment) const {
  const std::vector<LiveRange>& live = live_[variable];
  const auto after =
      std::ranges::upper_bound(live, moment, {}, [](const LiveRange& range) { return range.end; });
  return after != live.end() && after->begin <= moment ? after->count : 0;
}

std::vector<int64_t> StepMoments::Loads(const std::vector<int32_t>& labels) const {
  std::vector<int64_t> loads(count_ + 1, 0);  // differences first
  for (size_t v = 0; v < live_.size(); ++v) {
    if (live_[v].empty()) continue;
    const int64_t usage = problem_.variables[v].usage[static_cast<size_t>(labels[v])];
    for (const LiveRange& range : live_[v]) {
      loads[static_cast<size_t>(range.begin)] += usage * range.count;
      loads[static_cast<size_t>(range.end)] -= usage * range.count;
    }
  }
  for (size_t t = 1; t < count_; ++t) loads[t] += loads[t - 1];
  loads.resize(count_);
  return loads;
}

}  // namespace gt::placement
