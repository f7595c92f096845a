// How much of a step's communication is hidden behind its compute: as numbers, as a table, as a
// trace, and a prediction beside what was measured. Time is always that of unions of intervals:
// collectives of two groups that run at the same time are counted once, not twice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/report/chrome_trace.h"
#include "gt/sim/timeline.h"

namespace gt {

// Microseconds.
struct OverlapSummary {
  double step = 0;
  double compute = 0;        // while the compute stream runs kernels
  double communication = 0;  // while any group has a collective under way
  double hidden = 0;         // of communication: while kernels run, too
  double exposed = 0;        // of communication: the rest
  double idle = 0;           // of the step: while no kernel runs
  double waiting = 0;        // of idle: held up by waits
  double reading = 0;        // of idle: because the host was held up by reads
  double launching = 0;    // of idle: the rest, for which the host is to blame, and the end of the
                           // step if it is communication
  double lower_bound = 0;  // the larger of compute and communication

  // Both are 1 where there is nothing to divide by.
  double hidden_share() const { return communication > 0 ? hidden / communication : 1; }
  double times_lower_bound() const { return lower_bound > 0 ? step / lower_bound : 1; }
};
OverlapSummary SummarizeOverlap(const Timeline& timeline);

// Collectives of one kind in one group and phase, or copies in one direction and phase.
struct OverlapRow {
  std::string kind;   // "all_to_all", "offload"
  std::string queue;  // the group, or the lane of the copies
  Phase phase = Phase::kForward;
  int64_t count = 0;
  int64_t bytes = 0;   // of all together
  double busy = 0;     // while any of them is under way
  double hidden = 0;   // of it: while kernels run
  double exposed = 0;  // of it: the rest
  double stalled = 0;  // while their waits hold up the compute stream
};
// In order of first appearance.
std::vector<OverlapRow> OverlapRows(const Graph& graph, const Timeline& timeline);

// Summary, peak memory and rows. Ends in a newline.
std::string OverlapTable(const Graph& graph, const Timeline& timeline, int64_t peak_bytes);

// The numbers of both side by side, and by how much the prediction is above or below what was
// measured, in percent of that. Ends in a newline.
std::string CompareTable(const Graph& graph, const Timeline& predicted, const Timeline& measured);

// A lane for the compute stream, one for each queue, and one for what held up the compute stream.
void WriteTimeline(ChromeTrace& trace, const Graph& graph, const Timeline& timeline,
                   std::string_view process);

}  // namespace gt
