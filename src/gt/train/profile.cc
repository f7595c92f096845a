#include "gt/train/profile.h"

#include <c10/core/AutogradState.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/ir/graph.h"
#include "gt/report/chrome_trace.h"

namespace gt {
namespace {

constexpr int64_t kMostSteps = 10000;

int64_t StepNumber(std::string_view text, const std::string& all) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) {
    Fail(ErrorCode::kBadOptionValue,
         "--profiling.steps {}: expected steps such as 5 or 5-7,20, but '{}' is none", all, text);
  }
  return number;
}

// The backward would otherwise run GPU operators on a thread of its own, where nothing is observed.
bool SetAutogradThreads(bool on) {
  auto& state = c10::AutogradState::get_tls_state();
  bool before = state.get_multithreading_enabled();
  state.set_multithreading_enabled(on);
  return before;
}

}  // namespace

std::set<int64_t> ParseSteps(const std::string& text) {
  std::set<int64_t> steps;
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    size_t dash = item.find('-');
    int64_t first = StepNumber(item.substr(0, dash), text);
    int64_t last = dash == std::string_view::npos ? first : StepNumber(item.substr(dash + 1), text);
    if (last < first || last - first >= kMostSteps) {
      Fail(ErrorCode::kBadOptionValue, "--profiling.steps {}: '{}' is not a range of steps", text,
           item);
    }
    for (int64_t step = first; step <= last; ++step) steps.insert(step);
  }
  return steps;
}

StepProfile::StepProfile(c10::Device device)
    : multithreaded_before_(SetAutogradThreads(false)), profiler_(device) {}

void StepProfile::Write(const std::string& path) {
  std::vector<OpProfiler::Span> spans = profiler_.Finish();
  SetAutogradThreads(multithreaded_before_);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  ChromeTrace trace(path);
  for (const OpProfiler::Span& span : spans) {
    std::string phase(Spelling(span.phase));
    nlohmann::json args = {{"module", span.module.str()}, {"phase", phase}};
    std::string name = span.module.empty() ? span.op : span.op + " (" + span.module.str() + ")";
    TraceEvent event{name, phase, "gt", "host", span.host_start, span.host_duration, &args};
    trace.Add(event);
    // Operators inside others would stand above them on the device's lane without telling more.
    if (!span.device_start || span.depth > 0) continue;
    event.lane = "device";
    event.start_us = *span.device_start;
    event.duration_us = *span.device_duration;
    trace.Add(event);
  }
  trace.Finish();
}

}  // namespace gt
