// The plans that a placed job could train, and the fastest of them that fits.
//
// Placement counts memory by live ranges of values, before any pass. The step that a plan becomes needs
// more (communicators, packed collectives, what is moved) or less (generated kernels keep less). So where
// the plans that are found, or the fastest of them, are too large by the account that also predicts the
// step, or nothing fits by placement's alone, others are searched, with a budget that is corrected by as
// much as the two accounts differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gt/compile/prediction.h"
#include "gt/compile/single_device_step.h"
#include "gt/compile/step_request.h"
#include "gt/job/sections/compile.h"
#include "gt/placement/plan.h"

namespace gt {

// The best hand-written layout by the judge's figures, placed as well as it allows.
struct HandWritten {
  std::string name;  // empty: none was judged
  Prediction prediction;
};

struct ChosenPlan {
  placement::Plan plan;
  Prediction prediction;    // of a job without a limit of memory: of the time alone
  std::string layout = "";  // the hand-written layout that it is; empty: it was searched
};

class PlanFinder {
 public:
  enum class Kind {
    kAny,
    kSendingRows,  // every rank has rows of its own and sends them to their experts
  };
  // Both are used as long as this lives.
  PlanFinder(const StepRequest& request, SingleDeviceStep& whole, Kind kind = Kind::kAny);

  // The fastest plan with these chunks. Fails with NoPlacement if none fits and the job checks its memory,
  // and like the compiler if none can be cut like that.
  ChosenPlan Fastest(const EpOverlapSection& overlap);

  // Of all searches so far, the most promising of each first; the first search is made when they are asked for.
  const std::vector<placement::Plan>& plans();
  // Of the plans that were judged for the last chunks.
  const HandWritten& rival() const { return rival_; }
  int64_t judged() const { return judged_; }

 private:
  struct Judged {
    ChosenPlan chosen;
    ChosenPlan unlimited;  // the fastest if memory did not matter
  };

  // Adds to the plans.
  void Search();
  // Plans from this one on.
  Judged JudgeFrom(size_t first, const EpOverlapSection& overlap);
  // Allows placement's account as much as makes the step fit, going by one plan.
  void CorrectBudget(const ChosenPlan& by);
  [[noreturn]] void Refuse(const ChosenPlan& nearest) const;

  const StepRequest& request_;
  SingleDeviceStep& whole_;
  const Kind kind_;
  const int64_t capacity_;  // bytes of a rank; 0: no limit
  int64_t budget_;          // of it, by placement's account
  double seconds_left_;
  std::vector<placement::Plan> plans_;  // empty: not searched yet
  std::vector<std::string> layouts_;    // by plan: the hand-written layout that it is
  bool within_budget_ = true;  // false: the last search found none, but some that need little more
  HandWritten rival_;
  int64_t judged_ = 0;
};

}  // namespace gt
