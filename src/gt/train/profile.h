// Timelines of single steps, for ui.perfetto.dev and chrome://tracing, and what they say about
// communication and costs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "gt/dist/collective_log.h"
#include "gt/exec/op_profiler.h"
#include "gt/sim/cost_model.h"
#include "gt/sim/timeline.h"

namespace gt {

// "5-7,20" -> 5, 6, 7, 20.
std::set<int64_t> ParseSteps(const std::string& text);

// Everything from its construction to Finish() on one timeline: a lane of the host, one of the
// device, every operator with its module and phase, and of a captured step the collectives of each
// group.
class StepProfile {
 public:
  explicit StepProfile(c10::Device device);

  // What a captured step has shown; looks into its graph.
  struct Shown {
    const Graph* graph = nullptr;
    Timeline timeline;
    CostTable costs;  // of its operators
  };
  // Writes the file; returns nothing for an eager step.
  std::optional<Shown> Finish(const std::string& path);

 private:
  bool multithreaded_before_;
  CollectiveLog log_;
  OpProfiler profiler_;
};

// A captured step as it ran, from what was seen of its operators and collectives. A collective is
// taken to start when the compute stream came to it and the one before it in its group was done.
Timeline MeasuredTimeline(std::span<const OpProfiler::Span> spans,
                          std::span<const CollectiveLog::Entry> collectives);

}  // namespace gt
