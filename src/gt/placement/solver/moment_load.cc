#include "gt/placement/solver/moment_load.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace gt::placement {

MomentLoad::MomentLoad(const std::vector<int64_t>& room)
    : size_(static_cast<int32_t>(std::bit_ceil(room.size()))) {
  if (room.empty()) {
    size_ = 0;
    return;
  }
  constexpr int64_t kNothing = std::numeric_limits<int64_t>::min() / 4;
  const auto leaves = static_cast<size_t>(size_);
  largest_.assign(2 * leaves, kNothing);
  added_.assign(2 * leaves, 0);
  for (size_t t = 0; t < room.size(); ++t) largest_[leaves + t] = -room[t];
  for (size_t node = leaves; node-- > 1;) {
    largest_[node] = std::max(largest_[2 * node], largest_[2 * node + 1]);
  }
}

void MomentLoad::Add(int32_t begin, int32_t end, int64_t bytes) {
  if (bytes != 0 && begin < end) Add(1, 0, size_, begin, end, bytes);
}

void MomentLoad::Add(size_t node, int32_t low, int32_t high, int32_t begin, int32_t end,
                     int64_t bytes) {
  if (begin <= low && high <= end) {
    largest_[node] += bytes;
    added_[node] += bytes;
    return;
  }
  const int32_t middle = low + (high - low) / 2;
  if (begin < middle) Add(2 * node, low, middle, begin, end, bytes);
  if (end > middle) Add(2 * node + 1, middle, high, begin, end, bytes);
  largest_[node] = std::max(largest_[2 * node], largest_[2 * node + 1]) + added_[node];
}

std::vector<int64_t> MomentLoad::Loads() const {
  std::vector<int64_t> loads(static_cast<size_t>(size_));
  for (size_t t = 0; t < loads.size(); ++t) {
    size_t node = loads.size() + t;
    loads[t] = largest_[node];
    while (node >>= 1) loads[t] += added_[node];
  }
  return loads;
}

}  // namespace gt::placement
