// How full each moment is, with additions over ranges and the fullest one in logarithmic time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gt::placement {

class MomentLoad {
 public:
  // Starts with nothing but minus the room: a moment is over-full if its load is above 0.
  explicit MomentLoad(const std::vector<int64_t>& room);

  void Add(int32_t begin, int32_t end, int64_t bytes);
  // The largest load of all moments; below 0 if there is room everywhere or there are no moments.
  int64_t Largest() const { return size_ == 0 ? -1 : largest_[1]; }
  std::vector<int64_t> Loads() const;  // by moment

 private:
  void Add(size_t node, int32_t low, int32_t high, int32_t begin, int32_t end, int64_t bytes);

  int32_t size_ = 0;
  std::vector<int64_t> largest_;  // by node of the tree, without what its ancestors add
  std::vector<int64_t> added_;
};

}  // namespace gt::placement
