// Which ways of sharding a node are looked at where there are too many. Every axis multiplies them: ten
// ways along one axis are ten thousand along four. Axes that shard something alike are what layouts are
// made of, so that ways with few kinds of axes are kept, for every node by the same rule: what one node
// makes is then what the next can take.
#pragma once

#include <cstddef>
#include <span>

namespace gt::placement {

class WayLimit {
 public:
  // Of a node with so many ways along one axis, of which the first shards nothing.
  WayLimit(size_t ways, int axes);

  bool complete() const { return kinds_ == Kinds::kAll; }  // nothing is left out
  // Ways along the first axes, by number: false if none that begins like that is looked at.
  bool Allows(std::span<const size_t> chosen) const;

 private:
  enum class Kinds { kAll, kThreeBesidesNothing, kTwoBesidesNothing, kTwo, kOneBesidesNothing };
  static constexpr Kinds kLast = Kinds::kOneBesidesNothing;
  static double CountOf(Kinds kinds, size_t ways, int axes);

  Kinds kinds_ = Kinds::kAll;
};

}  // namespace gt::placement
