#include "gt/train/profile.h"

#include <c10/core/AutogradState.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/ir/graph.h"
#include "gt/report/chrome_trace.h"
#include "gt/report/overlap_report.h"
#include "gt/sim/queues.h"

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

double StartOf(const OpProfiler::Span& span) { return span.device_start.value_or(span.host_start); }
double EndOf(const OpProfiler::Span& span) {
  return StartOf(span) + span.device_duration.value_or(span.host_duration);
}

void WriteSpan(ChromeTrace& trace, const OpProfiler::Span& span) {
  std::string phase(Spelling(span.phase));
  nlohmann::json args = {{"module", span.module.str()}, {"phase", phase}};
  std::string name = span.module.empty() ? span.op : span.op + " (" + span.module.str() + ")";
  TraceEvent event{name, phase, "gt", "host", span.host_start, span.host_duration, &args};
  trace.Add(event);
  // Operators inside others would be above them on the device's lane without telling more.
  if (!span.device_start || span.depth > 0) return;
  event.lane = "device";
  event.start_us = *span.device_start;
  event.duration_us = *span.device_duration;
  trace.Add(event);
}

// Makes one span of two that follow each other.
void Join(OpProfiler::Span& first, const OpProfiler::Span& second) {
  first.host_duration = second.host_start + second.host_duration - first.host_start;
  if (!first.device_start || !second.device_start) return;
  first.device_duration = *second.device_start + *second.device_duration - *first.device_start;
}

// The nodes of the first of the batches that the step consists of. A fused node that no kernel computes
// runs as several operators, which are one span here.
std::vector<OpProfiler::Span> FirstRun(std::vector<OpProfiler::Span> spans) {
  std::vector<OpProfiler::Span> run;
  for (OpProfiler::Span& span : spans) {
    if (span.node == nullptr) continue;
    if (!run.empty() && span.node == run.back().node) {
      Join(run.back(), span);
      continue;
    }
    if (!run.empty() && span.node->number() < run.back().node->number()) break;
    run.push_back(std::move(span));
  }
  return run;
}

// The median of what nodes with the same work took.
CostTable CostsOf(const Graph& graph, const Timeline& timeline) {
  std::unordered_map<std::string, std::vector<double>> times;
  for (const LaneSpan& span : timeline.spans) {
    if (span.lane != Timeline::kComputeLane) continue;
    std::string key = CostTable::KeyOf(*span.node, graph.shapes().Hints());
    if (!key.empty()) times[key].push_back(span.time.length());
  }
  CostTable table;
  for (auto& [key, all] : times) {
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                     all.end());
    table.Set(key, all[all.size() / 2]);
  }
  return table;
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
    // Counted from 0: the last step may be the largest number there is.
    for (int64_t i = 0; i <= last - first; ++i) steps.insert(first + i);
  }
  return steps;
}

StepProfile::StepProfile(c10::Device device)
    : multithreaded_before_(SetAutogradThreads(false)), profiler_(device) {}

Timeline MeasuredTimeline(std::span<const OpProfiler::Span> spans,
                          std::span<const CollectiveLog::Entry> collectives) {
  Timeline timeline;
  timeline.lanes = {"compute"};
  std::unordered_map<std::string_view, int32_t> lanes;
  std::vector<double> free = {0};
  size_t next_collective = 0;
  const double origin = spans.empty() ? 0 : StartOf(spans.front());
  for (const OpProfiler::Span& span : spans) {
    const Node& node = *span.node;
    const TimeInterval time = {StartOf(span) - origin, EndOf(span) - origin};
    timeline.step = std::max(timeline.step, time.end);
    if (node.op().is_view()) continue;
    if (AwaitedBy(node) != nullptr || node.op().reads_data) {
      constexpr double kNoticeable = 2;  // an event's own time
      if (time.length() > kNoticeable) timeline.stalls.push_back({&node, 0, time, 0});
      continue;
    }
    if (node.op().collective == Collective::kNone) {
      if (node.op().transfer == Transfer::kNone) timeline.spans.push_back({&node, 0, time, 0});
      continue;
    }
    if (next_collective == collectives.size()) break;
    const CollectiveLog::Entry& entry = collectives[next_collective++];
    auto [lane, is_new] = lanes.try_emplace(entry.group.str(), timeline.lanes.size());
    if (is_new) {
      timeline.lanes.push_back(entry.group.str());
      free.push_back(0);
    }
    double& lane_free = free[static_cast<size_t>(lane->second)];
    const double start = std::max(time.start, lane_free);
    lane_free = std::max(start, entry.finished - origin);
    timeline.spans.push_back({&node, lane->second, {start, lane_free}, time.start});
    timeline.step = std::max(timeline.step, lane_free);
  }
  return timeline;
}

std::optional<StepProfile::Shown> StepProfile::Finish(const std::string& path) {
  std::vector<OpProfiler::Span> spans = profiler_.Finish();
  std::vector<CollectiveLog::Entry> collectives = log_.Finish();
  SetAutogradThreads(multithreaded_before_);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  ChromeTrace trace(path);
  for (const OpProfiler::Span& span : spans) WriteSpan(trace, span);
  std::optional<Shown> shown;
  std::vector<OpProfiler::Span> of_graph = FirstRun(std::move(spans));
  if (!of_graph.empty()) {
    shown.emplace();
    shown->graph = &of_graph.front().node->graph();
    shown->timeline = MeasuredTimeline(of_graph, collectives);
    shown->costs = CostsOf(*shown->graph, shown->timeline);
    WriteTimeline(trace, *shown->graph, shown->timeline, "step");
  }
  trace.Finish();
  return shown;
}

}  // namespace gt
