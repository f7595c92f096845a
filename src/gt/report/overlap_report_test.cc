#include "gt/report/overlap_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "gt/sim/timeline_test_util.h"
#include "gt/testing/temp_folder.h"

namespace gt::overlap_report_test {
namespace {

// Forward: an exchange of 20, 12 of it hidden. Backward: another one, and a reduction in another
// group at the same time, of which nothing is hidden.
constexpr const char* kStep = R"(
  %a = aten::neg(%x) : f32[4] {module = "layers.0"}
  %c = _c10d_functional::all_reduce(%a, reduce_op = "sum", group_name = "ep") : f32[4] {module = "layers.0.moe", chunk = {id = 1, region = "layers.0", role = body}}
  %b = aten::neg(%a) : f32[4] {module = "layers.0"}
  %w = _c10d_functional::wait_tensor(%c) : f32[4] {module = "layers.0.moe"}
  %e = _c10d_functional::all_reduce(%w, reduce_op = "sum", group_name = "ep") : f32[4] {phase = backward}
  %f = _c10d_functional::reduce_scatter_tensor(%b, reduce_op = "sum", group_size = 2, group_name = "dp") : f32[2] {phase = backward}
  %g = _c10d_functional::wait_tensor(%e) : f32[4] {phase = backward}
  %h = _c10d_functional::wait_tensor(%f) : f32[2] {phase = backward}
  %d = aten::neg(%g) : f32[4] {phase = backward})";

Simulated Step() { return {kStep, Launching(0), {{"b", 12}, {"c", 20}, {"e", 30}, {"f", 40}}}; }

// Compute: [0,10] [10,22] [70,80]; ep: [10,30] [30,60]; dp: [30,70].
TEST(OverlapReportTest, Summary) {
  OverlapSummary sum = SummarizeOverlap(Step().timeline);
  EXPECT_DOUBLE_EQ(sum.step, 80);
  EXPECT_DOUBLE_EQ(sum.compute, 32);
  EXPECT_DOUBLE_EQ(sum.communication, 60);  // and not 90
  EXPECT_DOUBLE_EQ(sum.hidden, 12);
  EXPECT_DOUBLE_EQ(sum.exposed, 48);
  EXPECT_DOUBLE_EQ(sum.idle, 48);
  EXPECT_DOUBLE_EQ(sum.waiting, 48);
  EXPECT_DOUBLE_EQ(sum.reading, 0);
  EXPECT_DOUBLE_EQ(sum.launching, 0);
  EXPECT_DOUBLE_EQ(sum.lower_bound, 60);
  EXPECT_DOUBLE_EQ(sum.hidden_share(), 0.2);
}

// What makes the stream idle: launches, reads and waits are told apart.
TEST(OverlapReportTest, ReasonsForIdleness) {
  Simulated s(R"(
  %a = aten::neg(%n) : i64[4]
  gt::read_ints(%a) binds [u0, u1, u2, u3]
  %c = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "ep") : f32[4]
  %w = _c10d_functional::wait_tensor(%c) : f32[4]
  %b = aten::neg(%w) : f32[4])",
              Launching(1), {{"c", 20}});
  // [0,1] launch, [1,11] a, [11,16] read, [16,17] launch, [17,37] c, [37,47] b
  OverlapSummary sum = SummarizeOverlap(s.timeline);
  EXPECT_DOUBLE_EQ(sum.step, 47);
  EXPECT_DOUBLE_EQ(sum.idle, 27);
  EXPECT_DOUBLE_EQ(sum.reading, 5);
  EXPECT_DOUBLE_EQ(sum.waiting, 20);
  EXPECT_DOUBLE_EQ(sum.launching, 2);
}

TEST(OverlapReportTest, RowsByKindGroupAndPhase) {
  Simulated s = Step();
  std::vector<OverlapRow> rows = OverlapRows(*s.graph, s.timeline);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].kind, "all_reduce");
  EXPECT_EQ(rows[0].queue, "ep");
  EXPECT_EQ(rows[0].phase, Phase::kForward);
  EXPECT_EQ(rows[0].count, 1);
  EXPECT_EQ(rows[0].bytes, 16);
  EXPECT_DOUBLE_EQ(rows[0].busy, 20);
  EXPECT_DOUBLE_EQ(rows[0].hidden, 12);
  EXPECT_DOUBLE_EQ(rows[0].exposed, 8);
  EXPECT_DOUBLE_EQ(rows[0].stalled, 8);
  EXPECT_EQ(rows[1].phase, Phase::kBackward);
  EXPECT_DOUBLE_EQ(rows[1].busy, 30);
  EXPECT_DOUBLE_EQ(rows[1].stalled, 30);
  EXPECT_EQ(rows[2].kind, "reduce_scatter");
  EXPECT_EQ(rows[2].queue, "dp");
  EXPECT_DOUBLE_EQ(rows[2].busy, 40);
  EXPECT_DOUBLE_EQ(rows[2].stalled, 10);  // the wait before it took the first 30
}

// Measured collectives of one group may overlap, as a prediction never lets them. Their time together
// counts once.
TEST(OverlapReportTest, RowsAreUnions) {
  Simulated s = Step();
  Timeline measured = s.timeline;
  for (LaneSpan& span : measured.spans) {
    if (span.node->result()->name() == "e") span.time = {20, 50};
  }
  s.graph->FindValue("e")->producer()->meta().phase = Phase::kForward;
  std::vector<OverlapRow> rows = OverlapRows(*s.graph, measured);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].count, 2);
  EXPECT_EQ(rows[0].bytes, 32);
  EXPECT_DOUBLE_EQ(rows[0].busy, 40);  // [10,30] and [20,50]
  EXPECT_DOUBLE_EQ(rows[0].hidden, 12);
}

// Copies have rows, but are no communication.
TEST(OverlapReportTest, CopiesAreNoCommunication) {
  Simulated s(R"(
  %o = gt::offload(%x) : f32[4]
  %r = gt::reload(%o, device = "cpu") : f32[4]
  %w = gt::wait_transfer(%r, %o) : f32[4])",
              Launching(0), {{"o", 3}, {"r", 4}});
  EXPECT_EQ(SummarizeOverlap(s.timeline).communication, 0);
  EXPECT_EQ(SummarizeOverlap(s.timeline).hidden_share(), 1);
  std::vector<OverlapRow> rows = OverlapRows(*s.graph, s.timeline);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].kind, "offload");
  EXPECT_EQ(rows[0].stalled, 0);
  EXPECT_EQ(rows[1].kind, "reload");
  EXPECT_EQ(rows[1].queue, "host copies back");
  EXPECT_EQ(rows[1].stalled, 7);
}

TEST(OverlapReportTest, Table) {
  Simulated s = Step();
  EXPECT_EQ(OverlapTable(*s.graph, s.timeline, int64_t{3} << 20),
            R"(  step                      0.080 ms
  compute                   0.032 ms   40.0 % of the step
  communication             0.060 ms   75.0 % of the step
    hidden                  0.012 ms   20.0 % of communication
    exposed                 0.048 ms   80.0 % of communication
  idle                      0.048 ms   60.0 % of the step
    waiting                 0.048 ms   60.0 % of the step
    reading                 0.000 ms    0.0 % of the step
    launching               0.000 ms    0.0 % of the step
  lower bound               0.060 ms  the step takes 1.33 times as long
  peak memory                3.0 MiB
collectives and copies
  count  bytes  busy ms  hidden ms  hidden  exposed ms  stalled ms  kind            queue  phase
     x1   16 B    0.020      0.012  60.0 %       0.008       0.008  all_reduce      ep     forward
     x1   16 B    0.030      0.000   0.0 %       0.030       0.030  all_reduce      ep     backward
     x1   16 B    0.040      0.000   0.0 %       0.040       0.010  reduce_scatter  dp     backward
)");
}

TEST(OverlapReportTest, ComparesWithMeasured) {
  Simulated s = Step();
  Timeline measured = s.timeline;
  // Measured, the first exchange took 5 longer, and everything after it was later.
  for (LaneSpan& span : measured.spans) {
    if (span.time.start >= 22) span.time = {span.time.start + 5, span.time.end + 5};
    if (span.node->result()->name() == "c") span.time.end += 5;
  }
  measured.step += 5;
  EXPECT_EQ(CompareTable(*s.graph, s.timeline, measured),
            R"(  predicted ms  measured ms  deviation  what
         0.080        0.085     -5.9 %  step
         0.032        0.032     +0.0 %  compute
         0.060        0.065     -7.7 %  communication
         0.012        0.012     +0.0 %  hidden
         0.048        0.053     -9.4 %  exposed
         0.048        0.053     -9.4 %  idle
collectives and copies
  busy ms  measured  deviation  hidden ms  measured  deviation  exposed ms  measured  deviation  kind            queue  phase
    0.020     0.025    -20.0 %      0.012     0.012     +0.0 %       0.008     0.013    -38.5 %  all_reduce      ep     forward
    0.030     0.030     +0.0 %      0.000     0.000     +0.0 %       0.030     0.030     +0.0 %  all_reduce      ep     backward
    0.040     0.040     +0.0 %      0.000     0.000     +0.0 %       0.040     0.040     +0.0 %  reduce_scatter  dp     backward
)");
}

// Rows that only one side has are shown, too.
TEST(OverlapReportTest, ComparesWhatIsMissing) {
  Simulated s = Step();
  Timeline measured = s.timeline;
  std::erase_if(measured.spans, [](const LaneSpan& span) {
    return span.node->op().collective == Collective::kReduceScatter;
  });
  EXPECT_NE(CompareTable(*s.graph, s.timeline, measured).find("only predicted"), std::string::npos);
  std::string table = CompareTable(*s.graph, measured, s.timeline);
  EXPECT_NE(table.find("-100.0 %"), std::string::npos) << table;
  EXPECT_NE(table.find("reduce_scatter"), std::string::npos) << table;
}

// Whatever the step: shares of time are within what they are shares of.
TEST(OverlapReportTest, Invariants) {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    std::string nodes;
    std::map<std::string, double> costs;
    std::vector<int> open;
    int reads = 0;
    for (int i = 0; i < 30; ++i) {
      costs[fmt::format("v{}", i)] = double(random() % 40);
      unsigned what = random() % 5;
      if (what == 0 && !open.empty()) {
        size_t at = random() % open.size();
        nodes +=
            fmt::format("  %w{} = _c10d_functional::wait_tensor(%v{}) : f32[4]\n", i, open[at]);
        open.erase(open.begin() + static_cast<ptrdiff_t>(at));
      } else if (what <= 1) {
        nodes += fmt::format(
            "  %v{} = _c10d_functional::all_reduce(%x, reduce_op = \"sum\", group_name = \"g{}\") "
            ": "
            "f32[4]\n",
            i, random() % 3);
        open.push_back(i);
      } else if (what == 2 && reads < 2) {
        nodes += fmt::format("  %v{} = aten::neg(%n) : i64[4]\n", i);
        nodes += fmt::format("  gt::read_ints(%v{}) binds [u{}, u{}, u{}, u{}]\n", i, 4 * reads,
                             4 * reads + 1, 4 * reads + 2, 4 * reads + 3);
        ++reads;
      } else {
        nodes += fmt::format("  %v{} = aten::neg(%x) : f32[4]\n", i);
      }
    }
    Simulated s(nodes, Launching(double(random() % 4) * 3), costs);
    OverlapSummary sum = SummarizeOverlap(s.timeline);
    const double slack = 1e-9;
    EXPECT_LE(sum.compute, sum.step + slack);
    EXPECT_LE(sum.communication, sum.step + slack);
    EXPECT_LE(sum.lower_bound, sum.step + slack);
    EXPECT_LE(sum.hidden, std::min(sum.compute, sum.communication) + slack);
    EXPECT_NEAR(sum.hidden + sum.exposed, sum.communication, slack);
    EXPECT_NEAR(sum.waiting + sum.reading + sum.launching, sum.idle, slack);
    EXPECT_LE(sum.exposed, sum.idle + slack);
    double longest = 0, together = 0;
    for (const OverlapRow& row : OverlapRows(*s.graph, s.timeline)) {
      EXPECT_GE(row.busy, 0);
      EXPECT_GE(row.hidden, 0);
      EXPECT_NEAR(row.hidden + row.exposed, row.busy, slack);
      EXPECT_LE(row.stalled, row.busy + slack);
      longest = std::max(longest, row.busy);
      together += row.busy;
    }
    EXPECT_LE(longest, sum.communication + slack);
    EXPECT_GE(together, sum.communication - slack);
  }
}

nlohmann::json WrittenTrace(const Simulated& s) {
  testing::TempFolder folder;
  std::filesystem::path path = folder.path() / "trace.json";
  ChromeTrace trace(path);
  WriteTimeline(trace, *s.graph, s.timeline, "rank 0");
  trace.Finish();
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// A lane for each queue, compute first, and on every collective how much of it is hidden.
TEST(OverlapReportTest, Trace) {
  std::map<int, std::string> lanes;
  std::map<std::string, int> events;
  nlohmann::json exchange;
  for (const nlohmann::json& event : WrittenTrace(Step())) {
    if (event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "X") continue;
    ++events[lanes.at(event["tid"])];
    if (exchange.is_null() && event["name"] == "_c10d_functional::all_reduce") exchange = event;
  }
  std::vector<std::string> order;
  for (const auto& [id, name] : lanes) order.push_back(name);
  EXPECT_EQ(order, (std::vector<std::string>{"compute", "stalls", "ep", "dp"}));
  EXPECT_EQ(events,
            (std::map<std::string, int>{{"compute", 3}, {"stalls", 3}, {"ep", 2}, {"dp", 1}}));
  EXPECT_EQ(exchange["ts"], 10);
  EXPECT_EQ(exchange["dur"], 20);
  EXPECT_EQ(exchange["cat"], "forward");
  EXPECT_EQ(exchange["args"]["module"], "layers.0.moe");
  EXPECT_EQ(exchange["args"]["chunk"], 1);
  EXPECT_EQ(exchange["args"]["bytes"], 16);
  EXPECT_EQ(exchange["args"]["hidden_us"], 12);
  EXPECT_EQ(exchange["args"]["exposed_us"], 8);
  EXPECT_EQ(exchange["args"]["launched_us"], 10);
}

}  // namespace
}  // namespace gt::overlap_report_test
