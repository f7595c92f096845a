// What labellings of a step use of the memory, moment by moment. Time is cut where live ranges begin or
// end, and only the moments at which the live set is largest are kept.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/search/step_problem.h"

namespace gt::placement {

class StepMoments {
 public:
  explicit StepMoments(const StepProblem& problem);

  int32_t size() const { return static_cast<int32_t>(count_); }
  // How many copies of a variable's value are alive at a moment.
  int32_t CountAt(size_t variable, int32_t moment) const;
  std::vector<int64_t> Loads(const std::vector<int32_t>& labels) const;  // bytes by moment

 private:
  const StepProblem& problem_;
  size_t count_ = 0;
  std::vector<std::vector<LiveRange>> live_;  // by variable, in moments
};

}  // namespace gt::placement
