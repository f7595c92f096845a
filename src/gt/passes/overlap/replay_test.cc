// A schedule that was made or failed in a job is replayed from files: the graph, and what the job
// told the pass.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/overlap/measure_peak.h"
#include "gt/passes/overlap/overlap_test_util.h"
#include "gt/testing/temp_folder.h"

namespace gt::replay_test {
namespace {

using testing::NamedCosts;
using testing::RandomTimedStep;
using testing::ReadText;
using testing::TempFolder;
using testing::TimedStep;

constexpr std::string_view kSchedule = "ep_overlap_schedule{memory_headroom=0}";

CostModelFor CostsOf(TimedStep& step) {
  return [&step](const Graph& graph) {
    return std::make_unique<NamedCosts>(graph, step.times(), step.host_read);
  };
}

std::filesystem::path FileIn(const std::filesystem::path& folder, std::string_view extension) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().ends_with(extension)) return entry.path();
  }
  ADD_FAILURE() << "no file *" << extension;
  return {};
}

ContextRecord ReadRecord(const std::filesystem::path& path) {
  return ContextRecord::FromJson(ReadText(path), path.string());
}

// Empty if the passes succeed.
std::string FailureOf(PassManager& manager, Graph& graph, PassContext& context) {
  try {
    manager.Run(graph, context);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// What the first rank decided does not fit this rank's step.
TEST(Replay, AFailedScheduleFailsAlike) {
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    TempFolder folder;
    auto step = RandomTimedStep(3, 4, 2, 12, true, Device{kind, 0});
    JobFacts job;
    job.costs = CostsOf(*step);
    int asked = 0;
    job.decide_for_all = [&asked](auto, const auto&) {
      ++asked;
      return std::string("0123456789abcdef 1\n0 \n000000000000");
    };
    PassContext context(std::move(job));
    PassManager manager(ParsePipeline(kSchedule), {.reproducer_folder = folder.path().string()});
    const std::string failure = FailureOf(manager, step->graph(), context);
    ASSERT_NE(failure, "");
    EXPECT_EQ(asked, 1) << "other ranks do not answer twice";
    const std::filesystem::path graph_path = FileIn(folder.path(), ".gtir"),
                                context_path = FileIn(folder.path(), ".context");
    EXPECT_NE(
        failure.find(fmt::format("--context={} {}", context_path.string(), graph_path.string())),
        std::string::npos)
        << failure;

    PassManager again(ParsePipeline(kSchedule), {.write_reproducer = false});
    auto graph = ParseFile(graph_path.string());
    PassContext recorded(ReadRecord(context_path));
    const std::string replayed = FailureOf(again, *graph, recorded);
    ASSERT_NE(replayed, "");
    EXPECT_EQ(failure.substr(0, replayed.size()), replayed);
    // The graph alone does not fail.
    graph = ParseFile(graph_path.string());
    PassContext nothing;
    EXPECT_EQ(FailureOf(again, *graph, nothing), "");
  }
}

// By what was decided, and, without that, by costs, budget and notes.
TEST(Replay, AScheduleIsFoundAgain) {
  int differs = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      TempFolder folder;
      auto step = RandomTimedStep(seed, 4, 2, 12, true, Device{kind, 0});
      JobFacts job;
      job.costs = CostsOf(*step);
      job.memory_budget = [] { return int64_t{1} << 20; };
      job.constant_bytes = [](const Graph&) { return int64_t{1} << 10; };
      PassContext context(std::move(job));
      context.Note(MeasurePeak::kNote, 1 << 12);
      PassManager manager(ParsePipeline(kSchedule), {.dump_folder = folder.path().string()});
      manager.Run(step->graph(), context);
      const std::string expected = Print(step->graph());
      ASSERT_EQ(ReadText(FileIn(folder.path(), ".after.gtir")), expected);

      const auto replayed = [&](ContextRecord record) {
        auto graph = ParseFile(FileIn(folder.path(), ".before.gtir").string());
        PassContext recorded(std::move(record));
        PassManager(ParsePipeline(kSchedule), {.write_reproducer = false}).Run(*graph, recorded);
        return Print(*graph);
      };
      const ContextRecord record = ReadRecord(FileIn(folder.path(), ".context"));
      EXPECT_EQ(record.memory_budget, 1 << 20);
      EXPECT_EQ(record.constant_bytes, 1 << 10);
      EXPECT_EQ(record.notes.at("whole_peak"), 1 << 12);
      ASSERT_EQ(record.decisions.size(), 1u);
      EXPECT_EQ(replayed(record), expected) << seed;
      ContextRecord undecided = record;
      undecided.decisions.clear();
      EXPECT_EQ(replayed(undecided), expected) << seed;
      if (replayed({}) != expected) ++differs;
    }
  }
  EXPECT_GT(differs, 0) << "the context makes no difference in any case";
}

}  // namespace
}  // namespace gt::replay_test
