#include "gt/report/overlap_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/report/columns.h"
#include "gt/report/progress_bar.h"
#include "gt/sim/queues.h"

namespace gt {
namespace {

using Intervals = std::vector<TimeInterval>;

template <typename Wanted>
Intervals UnionOf(std::span<const LaneSpan> spans, Wanted&& wanted) {
  Intervals intervals;
  for (const LaneSpan& span : spans) {
    if (wanted(span)) intervals.push_back(span.time);
  }
  return Union(std::move(intervals));
}

Intervals ComputeUnion(const Timeline& timeline) {
  return UnionOf(timeline.spans,
                 [](const LaneSpan& span) { return span.lane == Timeline::kComputeLane; });
}

// Of one interval, with those that it can have time in common with.
double CommonWith(const TimeInterval& interval, std::span<const TimeInterval> joined) {
  auto first = std::partition_point(joined.begin(), joined.end(), [&](const TimeInterval& other) {
    return other.end <= interval.start;
  });
  double common = 0;
  for (; first != joined.end() && first->start < interval.end; ++first) {
    common += std::min(interval.end, first->end) - std::max(interval.start, first->start);
  }
  return common;
}

std::string_view KindOf(const Operator& op) {
  if (op.transfer == Transfer::kOffload) return "offload";
  if (op.transfer == Transfer::kReload) return "reload";
  switch (op.collective) {
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kNone:
    case Collective::kWait:
      break;
  }
  return "";
}

// Which row a collective or copy belongs to.
using RowKey = std::tuple<std::string_view, std::string_view, Phase>;
RowKey KeyOf(const Node& node) { return {KindOf(node.op()), QueueOf(node), node.meta().phase}; }
RowKey KeyOf(const OverlapRow& row) { return {row.kind, row.queue, row.phase}; }

std::string Ms(double us) { return fmt::format("{:.3f}", us / 1e3); }

std::string Percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

// "+3.2 %": how far a prediction is above what was measured.
std::string Deviation(double predicted, double measured) {
  if (measured > 0) return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
  return predicted > 0 ? "only predicted" : "+0.0 %";
}

void AppendLine(std::string& text, std::string_view name, double us, const std::string& remark) {
  fmt::format_to(std::back_inserter(text), "  {:<18} {:>12} ms{}{}\n", name, Ms(us),
                 remark.empty() ? "" : "  ", remark);
}

std::string SummaryText(const OverlapSummary& sum) {
  std::string text;
  auto of_step = [&sum](double us) {
    return fmt::format("{:>7} of the step", Percent(us, sum.step));
  };
  auto of_communication = [&sum](double us) {
    return fmt::format("{:>7} of communication", Percent(us, sum.communication));
  };
  AppendLine(text, "step", sum.step, "");
  AppendLine(text, "compute", sum.compute, of_step(sum.compute));
  AppendLine(text, "communication", sum.communication, of_step(sum.communication));
  AppendLine(text, "  hidden", sum.hidden, of_communication(sum.hidden));
  AppendLine(text, "  exposed", sum.exposed, of_communication(sum.exposed));
  AppendLine(text, "idle", sum.idle, of_step(sum.idle));
  AppendLine(text, "  waiting", sum.waiting, of_step(sum.waiting));
  AppendLine(text, "  reading", sum.reading, of_step(sum.reading));
  AppendLine(text, "  launching", sum.launching, of_step(sum.launching));
  AppendLine(text, "lower bound", sum.lower_bound,
             fmt::format("the step takes {:.2f} times as long", sum.times_lower_bound()));
  return text;
}

std::string RowsText(std::span<const OverlapRow> rows) {
  Columns columns(7);
  columns.Add({"count", "bytes", "busy ms", "hidden ms", "hidden", "exposed ms", "stalled ms",
               "kind", "queue", "phase"});
  for (const OverlapRow& row : rows) {
    columns.Add({fmt::format("x{}", row.count), ByteText(row.bytes), Ms(row.busy), Ms(row.hidden),
                 Percent(row.hidden, row.busy), Ms(row.exposed), Ms(row.stalled), row.kind,
                 row.queue, std::string(Spelling(row.phase))});
  }
  return columns.Text();
}

std::string SummariesText(const OverlapSummary& predicted, const OverlapSummary& measured) {
  Columns columns(3);
  columns.Add({"predicted ms", "measured ms", "deviation", "what"});
  auto add = [&](std::string name, double OverlapSummary::*member) {
    double a = predicted.*member, b = measured.*member;
    columns.Add({Ms(a), Ms(b), Deviation(a, b), std::move(name)});
  };
  add("step", &OverlapSummary::step);
  add("compute", &OverlapSummary::compute);
  add("communication", &OverlapSummary::communication);
  add("hidden", &OverlapSummary::hidden);
  add("exposed", &OverlapSummary::exposed);
  add("idle", &OverlapSummary::idle);
  return columns.Text();
}

// Rows of the first, with those of the second beside them; then rows that only the second has.
using RowPairs = std::vector<std::pair<OverlapRow, OverlapRow>>;
RowPairs Matched(const std::vector<OverlapRow>& first, const std::vector<OverlapRow>& second) {
  std::map<RowKey, size_t> places;
  for (size_t i = 0; i < second.size(); ++i) places[KeyOf(second[i])] = i;
  RowPairs pairs;
  std::vector<bool> taken(second.size(), false);
  for (const OverlapRow& row : first) {
    pairs.emplace_back(row, OverlapRow{});
    auto found = places.find(KeyOf(row));
    if (found == places.end()) continue;
    pairs.back().second = second[found->second];
    taken[found->second] = true;
  }
  for (size_t i = 0; i < second.size(); ++i) {
    if (!taken[i]) pairs.emplace_back(OverlapRow{}, second[i]);
  }
  return pairs;
}

std::string RowPairsText(const RowPairs& pairs) {
  Columns columns(9);
  columns.Add({"busy ms", "measured", "deviation", "hidden ms", "measured", "deviation",
               "exposed ms", "measured", "deviation", "kind", "queue", "phase"});
  for (const auto& [predicted, measured] : pairs) {
    std::vector<std::string> cells;
    for (double OverlapRow::*member :
         {&OverlapRow::busy, &OverlapRow::hidden, &OverlapRow::exposed}) {
      double a = predicted.*member, b = measured.*member;
      cells.insert(cells.end(), {Ms(a), Ms(b), Deviation(a, b)});
    }
    const OverlapRow& named = predicted.count > 0 ? predicted : measured;
    cells.insert(cells.end(), {named.kind, named.queue, std::string(Spelling(named.phase))});
    columns.Add(std::move(cells));
  }
  return columns.Text();
}

nlohmann::json PlaceOf(const Node& node) {
  nlohmann::json args = {{"module", node.meta().module.str()},
                         {"phase", Spelling(node.meta().phase)}};
  if (node.meta().chunk != nullptr) args["chunk"] = node.meta().chunk->id;
  return args;
}

void AddEvent(ChromeTrace& trace, std::string_view process, std::string_view lane,
              const LaneSpan& span, const nlohmann::json& args) {
  trace.Add({.name = span.node->op().name.str(),
             .category = Spelling(span.node->meta().phase),
             .process = process,
             .lane = lane,
             .start_us = span.time.start,
             .duration_us = span.time.length(),
             .args = &args});
}

}  // namespace

OverlapSummary SummarizeOverlap(const Timeline& timeline) {
  Intervals compute = ComputeUnion(timeline);
  Intervals communication = UnionOf(timeline.spans, [](const LaneSpan& span) {
    return span.node->op().collective != Collective::kNone;
  });
  auto idle_because = [&](bool reads) {
    Intervals stalls = UnionOf(timeline.stalls, [reads](const LaneSpan& stall) {
      return stall.node->op().reads_data == reads;
    });
    return Length(stalls) - CommonLength(stalls, compute);
  };
  OverlapSummary sum;
  sum.step = timeline.step;
  sum.compute = Length(compute);
  sum.communication = Length(communication);
  sum.hidden = CommonLength(communication, compute);
  sum.exposed = sum.communication - sum.hidden;
  sum.idle = sum.step - sum.compute;
  sum.waiting = idle_because(/*reads=*/false);
  sum.reading = idle_because(/*reads=*/true);
  sum.launching = std::max(0.0, sum.idle - sum.waiting - sum.reading);
  sum.lower_bound = std::max(sum.compute, sum.communication);
  return sum;
}

std::vector<OverlapRow> OverlapRows(const Graph& graph, const Timeline& timeline) {
  SymbolValues symbols = graph.shapes().Hints();
  std::vector<OverlapRow> rows;
  std::vector<Intervals> busy, stalled;
  std::map<RowKey, size_t> places;
  for (const LaneSpan& span : timeline.spans) {
    if (span.lane == Timeline::kComputeLane) continue;
    auto [place, is_new] = places.try_emplace(KeyOf(*span.node), rows.size());
    if (is_new) {
      const auto& [kind, queue, phase] = place->first;
      rows.push_back({.kind = std::string(kind), .queue = std::string(queue), .phase = phase});
      busy.emplace_back();
      stalled.emplace_back();
    }
    OverlapRow& row = rows[place->second];
    ++row.count;
    row.bytes += MovedBytes(*span.node, symbols);
    busy[place->second].push_back(span.time);
  }
  for (const LaneSpan& stall : timeline.stalls) {
    const Node* awaited = AwaitedBy(*stall.node);
    if (awaited == nullptr) continue;
    auto place = places.find(KeyOf(*awaited));
    if (place != places.end()) stalled[place->second].push_back(stall.time);
  }
  Intervals compute = ComputeUnion(timeline);
  for (size_t i = 0; i < rows.size(); ++i) {
    Intervals joined = Union(std::move(busy[i]));
    rows[i].busy = Length(joined);
    rows[i].hidden = CommonLength(joined, compute);
    rows[i].exposed = rows[i].busy - rows[i].hidden;
    rows[i].stalled = Length(Union(std::move(stalled[i])));
  }
  return rows;
}

std::string OverlapTable(const Graph& graph, const Timeline& timeline, int64_t peak_bytes) {
  std::string text = SummaryText(SummarizeOverlap(timeline));
  fmt::format_to(std::back_inserter(text), "  {:<18} {:>15}\n", "peak memory",
                 ByteText(peak_bytes));
  std::vector<OverlapRow> rows = OverlapRows(graph, timeline);
  if (rows.empty()) return text;
  return text + "collectives and copies\n" + RowsText(rows);
}

std::string CompareTable(const Graph& graph, const Timeline& predicted, const Timeline& measured) {
  std::string text = SummariesText(SummarizeOverlap(predicted), SummarizeOverlap(measured));
  std::vector<OverlapRow> predicted_rows = OverlapRows(graph, predicted);
  std::vector<OverlapRow> measured_rows = OverlapRows(graph, measured);
  if (predicted_rows.empty() && measured_rows.empty()) return text;
  return text + "collectives and copies\n" + RowPairsText(Matched(predicted_rows, measured_rows));
}

void WriteTimeline(ChromeTrace& trace, const Graph& graph, const Timeline& timeline,
                   std::string_view process) {
  SymbolValues symbols = graph.shapes().Hints();
  Intervals compute = ComputeUnion(timeline);
  // Lane by lane: viewers show lanes in the order in which they first appear.
  std::vector<std::vector<const LaneSpan*>> lanes(timeline.lanes.size());
  for (const LaneSpan& span : timeline.spans) {
    lanes[static_cast<size_t>(span.lane)].push_back(&span);
  }
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const LaneSpan* span : lanes[lane]) {
      nlohmann::json args = PlaceOf(*span->node);
      if (span->lane != Timeline::kComputeLane) {
        double hidden = CommonWith(span->time, compute);
        args["bytes"] = MovedBytes(*span->node, symbols);
        args["launched_us"] = span->launched;
        args["hidden_us"] = hidden;
        args["exposed_us"] = span->time.length() - hidden;
      }
      AddEvent(trace, process, timeline.lanes[lane], *span, args);
    }
    if (lane != Timeline::kComputeLane) continue;
    for (const LaneSpan& stall : timeline.stalls) {
      AddEvent(trace, process, "stalls", stall, PlaceOf(*stall.node));
    }
  }
}

}  // namespace gt
