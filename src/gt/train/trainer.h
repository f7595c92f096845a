// Training a model: the ranks, the job on each of them, its compiled step, the loop.
#pragma once

#include "gt/train/summary.h"

namespace gt {

struct Config;

class World;

// Trains as configured, printing a line per step and a summary to standard output. The ranks are those
// that --ranks or a launcher asks for.
TrainSummary Train(const Config& config);

// One rank's part of that; the summary is the same on every rank, but for the path of the metrics,
// which the first rank alone has.
TrainSummary Train(const Config& config, World& world);

}  // namespace gt
