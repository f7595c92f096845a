// Timelines of single steps, for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "gt/exec/op_profiler.h"

namespace gt {

// "5-7,20" -> 5, 6, 7, 20.
std::set<int64_t> ParseSteps(const std::string& text);

// Everything from its construction to Write() on one timeline: a lane of the host, one of the
// device, every operator with its module and phase.
class StepProfile {
 public:
  explicit StepProfile(c10::Device device);
  void Write(const std::string& path);

 private:
  bool multithreaded_before_;
  OpProfiler profiler_;
};

}  // namespace gt
