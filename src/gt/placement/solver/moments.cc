#include "gt/placement/solver/moments.h"

#include <algorithm>

namespace gt::placement {
namespace {

bool TakesMemory(const Variable& variable) {
  return !variable.usage.empty() && std::ranges::max(variable.usage) > 0;
}

bool IsReal(const LiveRange& range) { return range.begin < range.end && range.count > 0; }

// First ticks of the pieces in which the live set is largest.
std::vector<int32_t> MaximalPieces(const LabelProblem& problem) {
  std::vector<std::pair<int32_t, int32_t>> events;  // tick, 0: end, 1: begin
  for (const Variable& variable : problem.variables) {
    if (!TakesMemory(variable)) continue;
    for (const LiveRange& range : variable.live) {
      if (!IsReal(range)) continue;
      events.emplace_back(range.begin, 1);
      events.emplace_back(range.end, 0);
    }
  }
  std::ranges::sort(events);
  std::vector<int32_t> pieces;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    if (events[i].second == 1 && events[i + 1].second == 0) pieces.push_back(events[i].first);
  }
  return pieces;
}

// Each label's usage above the smallest, with the count; empty if all labels use the same.
std::vector<int64_t> AboveSmallest(const Variable& variable, int32_t count) {
  const int64_t smallest = std::ranges::min(variable.usage);
  if (std::ranges::max(variable.usage) == smallest) return {};
  std::vector<int64_t> above;
  for (const int64_t usage : variable.usage) above.push_back((usage - smallest) * count);
  return above;
}

// Moments whose room is enough for the largest labels, out; the others numbered anew.
void DropLooseMoments(Moments& moments) {
  const size_t count = moments.room.size();
  std::vector<int64_t> largest(count + 1, 0);
  for (const auto& used : moments.used) {
    for (const MomentUsage& item : used) {
      const int64_t most = std::ranges::max(item.usage);
      largest[static_cast<size_t>(item.begin)] += most;
      largest[static_cast<size_t>(item.end)] -= most;
    }
  }
  std::vector<int32_t> kept_before(count + 1, 0);
  std::vector<int64_t> room;
  int64_t most = 0;
  for (size_t t = 0; t < count; ++t) {
    most += largest[t];
    const bool keep = most > moments.room[t];
    if (keep) room.push_back(moments.room[t]);
    kept_before[t + 1] = kept_before[t] + (keep ? 1 : 0);
  }
  moments.room = std::move(room);
  for (auto& used : moments.used) {
    for (MomentUsage& item : used) {
      item.begin = kept_before[static_cast<size_t>(item.begin)];
      item.end = kept_before[static_cast<size_t>(item.end)];
    }
    std::erase_if(used, [](const MomentUsage& item) { return item.begin == item.end; });
  }
}

}  // namespace

bool Moments::feasible() const {
  return std::ranges::all_of(room, [](int64_t bytes) { return bytes >= 0; });
}

Moments FindMoments(const LabelProblem& problem) {
  const std::vector<int32_t> pieces = MaximalPieces(problem);
  const auto first_at = [&](int32_t tick) {
    return static_cast<int32_t>(std::ranges::lower_bound(pieces, tick) - pieces.begin());
  };
  Moments moments;
  std::vector<int64_t> change(pieces.size() + 1, 0);  // of the smallest usage
  moments.used.resize(problem.variables.size());
  for (size_t v = 0; v < problem.variables.size(); ++v) {
    const Variable& variable = problem.variables[v];
    if (!TakesMemory(variable)) continue;
    for (const LiveRange& range : variable.live) {
      if (!IsReal(range)) continue;
      MomentUsage item{first_at(range.begin), first_at(range.end),
                       AboveSmallest(variable, range.count)};
      const int64_t smallest = std::ranges::min(variable.usage) * range.count;
      change[static_cast<size_t>(item.begin)] += smallest;
      change[static_cast<size_t>(item.end)] -= smallest;
      if (!item.usage.empty()) moments.used[v].push_back(std::move(item));
    }
  }
  int64_t smallest = 0;
  for (size_t t = 0; t < pieces.size(); ++t) {
    smallest += change[t];
    moments.room.push_back(problem.usage_limit - smallest);
  }
  // A limit of nothing at all must show even where no label makes a difference.
  if (moments.feasible()) DropLooseMoments(moments);
  return moments;
}

}  // namespace gt::placement
