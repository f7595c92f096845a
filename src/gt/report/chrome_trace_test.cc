#include "gt/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"

namespace gt::chrome_trace_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class ChromeTraceTest : public ::testing::Test {
 protected:
  std::string Text() const { return testing::ReadText(path_); }

  testing::TempFolder folder_;
  fs::path path_ = folder_ / "trace.json";
};

// The events of one kind, in file order.
std::vector<json> OfKind(const json& trace, const std::string& kind) {
  std::vector<json> events;
  for (const json& event : trace) {
    if (event["ph"] == kind) events.push_back(event);
  }
  return events;
}

TEST_F(ChromeTraceTest, WritesEventsWithTheirLanes) {
  ChromeTrace trace(path_);
  const json args = {{"module", "layers.0.attention"}, {"node", 17}};
  trace.Add({.name = "aten::mm",
             .category = "forward",
             .process = "rank 0",
             .lane = "host",
             .start_us = 10.5,
             .duration_us = 2.25,
             .args = &args});
  trace.Add(
      {.name = "mm kernel", .process = "rank 0", .lane = "gpu", .start_us = 12, .duration_us = 90});
  trace.Add(
      {.name = "aten::add", .process = "rank 1", .lane = "host", .start_us = 13, .duration_us = 1});
  trace.Add(
      {.name = "aten::mul", .process = "rank 0", .lane = "host", .start_us = 14, .duration_us = 1});
  trace.Finish();
  const json parsed = json::parse(Text());
  const std::vector<json> events = OfKind(parsed, "X");
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["name"], "aten::mm");
  EXPECT_EQ(events[0]["cat"], "forward");
  EXPECT_EQ(events[0]["ts"], 10.5);
  EXPECT_EQ(events[0]["dur"], 2.25);
  EXPECT_EQ(events[0]["args"], args);
  EXPECT_EQ(events[3]["pid"], events[0]["pid"]);
  EXPECT_EQ(events[3]["tid"], events[0]["tid"]);
  EXPECT_NE(events[1]["tid"], events[0]["tid"]);
  EXPECT_NE(events[2]["pid"], events[0]["pid"]);
  json names;
  for (const json& event : OfKind(parsed, "M")) {
    if (event["name"] == "thread_name") {
      names[event["pid"].dump()][event["tid"].dump()] = event["args"]["name"];
    }
  }
  EXPECT_EQ(names[events[1]["pid"].dump()][events[1]["tid"].dump()], "gpu");
  EXPECT_EQ(names[events[2]["pid"].dump()][events[2]["tid"].dump()], "host");
}

TEST_F(ChromeTraceTest, CountersAreCurves) {
  ChromeTrace trace(path_);
  trace.AddCounter("memory", "rank 0", 5, 1.5e9);
  trace.AddCounter("memory", "rank 0", 6, std::numeric_limits<double>::infinity());
  trace.Finish();
  const std::vector<json> counters = OfKind(json::parse(Text()), "C");
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[0]["args"]["value"], 1.5e9);
}

TEST_F(ChromeTraceTest, NamesMayHoldAnything) {
  const std::string name = "a \"quoted\"\\ name\n\t\x01 é \xFF";
  ChromeTrace trace(path_);
  trace.Add({.name = name, .category = name, .process = name, .lane = name});
  trace.Finish();
  const json event = OfKind(json::parse(Text()), "X")[0];
  EXPECT_EQ(event["name"], "a \"quoted\"\\ name\n\t\x01 é \xEF\xBF\xBD");
}

TEST_F(ChromeTraceTest, AnEmptyTraceIsOneToo) {
  ChromeTrace(path_).Finish();
  EXPECT_EQ(json::parse(Text()), json::array());
}

// A trace that fails halfway does not cost the one that was there.
TEST_F(ChromeTraceTest, ReplacesATraceOnlyWhenItIsFinished) {
  ChromeTrace(path_).Finish();
  const std::string before = Text();
  {
    ChromeTrace trace(path_);
    for (int i = 0; i < 1000; ++i) trace.Add({.name = "x", .process = "p", .lane = "l"});
  }
  EXPECT_EQ(Text(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(ChromeTraceTest, SaysWhatCannotBeWritten) {
  try {
    ChromeTrace trace(folder_ / "missing" / "trace.json");
    FAIL() << "wrote into a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCannotWrite);
    EXPECT_NE(error.message().find("missing/trace.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace gt::chrome_trace_test
