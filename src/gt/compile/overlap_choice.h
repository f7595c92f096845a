// Which chunks a job with --compile.ep_overlap.enabled auto gets: which modules are cut, along which
// dimension, into how many chunks, or none. Every choice is captured, compiled and predicted, in a
// model of a few layers where the whole one is deep: layers repeat, so that what is fastest for some
// is fastest for all.
#pragma once

#include <string>
#include <vector>

#include "gt/compile/step_request.h"
#include "gt/job/sections/compile.h"

namespace gt {

struct OverlapChoice {
  EpOverlapSection overlap;  // as configured, but `enabled` is true or false
  // For people: what was chosen and what the runners-up would take.
  std::vector<std::string> reasons;
};

// Options that differ from their defaults are taken as wishes and kept. The first rank decides for
// all.
OverlapChoice ChooseOverlap(const StepRequest& request);

}  // namespace gt
