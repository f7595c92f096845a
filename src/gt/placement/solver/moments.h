// The moments at which the memory can be full. Time is cut where live ranges begin or end; of the
// pieces only those matter in which something began and after which something ends: what is alive
// in any other piece is also alive in one of these.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/solver/label_problem.h"

namespace gt::placement {

// What a variable uses in the moments [begin, end), by label.
struct MomentUsage {
  int32_t begin = 0;
  int32_t end = 0;
  std::vector<int64_t> usage;
};

struct Moments {
  std::vector<int64_t> room;                   // left for what depends on labels, by moment
  std::vector<std::vector<MomentUsage>> used;  // by variable; what depends on its label only
  bool feasible() const;                       // false: not even the smallest labels fit
};

// Without those that cannot be full whatever the labels are.
Moments FindMoments(const LabelProblem& problem);

}  // namespace gt::placement
