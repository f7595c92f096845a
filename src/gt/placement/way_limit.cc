#include "gt/placement/way_limit.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace gt::placement {
namespace {

// What can be searched: up to three axes nearly everything, along four as much as along three.
double MostWays(int axes) {
  constexpr double kMostAlongThree = 4096, kMostAlongFour = 650;
  return axes <= 3 ? kMostAlongThree : kMostAlongFour;
}

// Different ways that are allowed, and whether the one that shards nothing counts.
struct Allowance {
  size_t different;
  bool counts_first;
};

double Choose(size_t of, size_t some) {
  double ways = 1;
  for (size_t i = 0; i < some; ++i) {
    ways *= (static_cast<double>(of) - static_cast<double>(i)) / static_cast<double>(i + 1);
  }
  return ways;
}

// Sequences along the axes in which each of `different` things is there, and nothing else but `others`.
double Covering(size_t different, size_t others, int axes) {
  double count = 0;
  for (size_t missing = 0; missing <= different; ++missing) {
    const double left = std::pow(static_cast<double>(different + others - missing), axes);
    count += (missing % 2 == 0 ? 1 : -1) * Choose(different, missing) * left;
  }
  return count;
}

Allowance AllowanceOf(int kinds) {
  constexpr Allowance kAllowances[] = {{0, false}, {3, false}, {2, false}, {2, true}, {1, false}};
  return kAllowances[kinds];
}

}  // namespace

double WayLimit::CountOf(Kinds kinds, size_t ways, int axes) {
  if (kinds == Kinds::kAll) return std::pow(static_cast<double>(ways), axes);
  const auto [different, counts_first] = AllowanceOf(static_cast<int>(kinds));
  const size_t of = counts_first ? ways : ways - 1;
  double count = 0;
  for (size_t exactly = 0; exactly <= std::min(different, of); ++exactly) {
    count += Choose(of, exactly) * Covering(exactly, counts_first ? 0 : 1, axes);
  }
  return count;
}

WayLimit::WayLimit(size_t ways, int axes) {
  while (kinds_ != kLast && CountOf(kinds_, ways, axes) > MostWays(axes)) {
    kinds_ = static_cast<Kinds>(static_cast<int>(kinds_) + 1);
  }
}

bool WayLimit::Allows(std::span<const size_t> chosen) const {
  if (complete()) return true;
  const auto [most, counts_first] = AllowanceOf(static_cast<int>(kinds_));
  std::vector<size_t> different;
  for (const size_t way : chosen) {
    if (way == 0 && !counts_first) continue;
    if (std::ranges::find(different, way) == different.end()) different.push_back(way);
  }
  return different.size() <= most;
}

}  // namespace gt::placement
