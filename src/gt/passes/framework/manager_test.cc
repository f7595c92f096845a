#include "gt/passes/framework/manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/pipeline/pipeline.h"
#include "gt/testing/temp_folder.h"

namespace gt::manager_test {
namespace {

namespace fs = std::filesystem;
using testing::ReadText;
using testing::TempFolder;

constexpr std::string_view kGraph = R"(
graph @g(%x: input "x" f32[4, 8]) {
  %d = aten::detach(%x) : f32[4, 8]
  %unused = aten::neg(%d) : f32[4, 8]
  %a = aten::relu(%d) : f32[4, 8]
  %b = aten::relu(%x) : f32[4, 8]
  %y = aten::mul.Tensor(%a, %b) : f32[4, 8]
  return result "y" %y
}
)";

// Does what the test says.
class ScriptedPass : public Pass {
 public:
  ScriptedPass(std::string_view name, std::function<bool(Graph&)> run)
      : info_{.name = name,
              .summary = "",
              .description = "",
              .reads = "",
              .writes = "",
              .never = ""},
        run_(std::move(run)) {}
  const PassInfo& info() const override { return info_; }
  bool RunImpl(Graph& graph, PassContext&) override { return run_(graph); }

 private:
  PassInfo info_;
  std::function<bool(Graph&)> run_;
};

std::unique_ptr<Pass> Script(std::string_view name, std::function<bool(Graph&)> run) {
  return std::make_unique<ScriptedPass>(name, std::move(run));
}

template <typename... Passes>
PassList ListOf(Passes... passes) {
  PassList list;
  (list.push_back(std::move(passes)), ...);
  return list;
}

bool EraseUnused(Graph& graph) {
  graph.Erase(graph.FindValue("unused")->producer());
  return true;
}

std::vector<fs::path> FilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

Error FailureOf(PassManager& manager, Graph& graph) {
  try {
    manager.Run(graph);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::kInternal, "");
}

TEST(PassManager, RunsTheDefaultPipelineAndReports) {
  auto graph = Parse(kGraph);
  PassManager manager(DefaultPipeline());
  PipelineReport report = manager.Run(*graph);
  EXPECT_TRUE(report.changed);
  EXPECT_EQ(graph->node_count(), 2);  // one relu, one mul
  ASSERT_EQ(report.runs.size(), 5u);
  EXPECT_EQ(report.runs[0].name, "dce");
  EXPECT_TRUE(report.runs[0].changed);
  EXPECT_EQ(report.runs[0].nodes_before, 5);
  EXPECT_EQ(report.runs[0].nodes_after, 4);
  EXPECT_EQ(report.runs[0].counters[0], (std::pair<std::string, int64_t>("erased", 1)));
  EXPECT_FALSE(report.runs[3].changed);
  EXPECT_NE(report.Timing().find("canonicalize"), std::string::npos);
  EXPECT_NE(report.Statistics().find("cse.merged"), std::string::npos);
}

// On a copy of the graph of the start, or on that graph made again.
TEST(PassManager, FindsTheGuiltyPassWhenItVerifiesOnlyOnce) {
  auto keep = [](Graph& g) { return EraseUnused(g); };
  auto break_type = [](Graph& g) {
    TensorType type = g.first()->result()->type();
    type.dtype = DType::kInt64;
    g.first()->result()->set_type(type);
    return true;
  };
  auto nothing = [](Graph&) { return false; };
  for (bool copied : {true, false}) {
    auto graph = Parse(kGraph);
    TempFolder folder;
    PassManagerOptions options;
    options.reproducer_folder = folder.string();
    options.check_changed = options.verify_each = false;
    if (!copied) options.make_start = [] { return Parse(kGraph); };
    PassManager manager(
        ListOf(Script("innocent", keep), Script("guilty", break_type), Script("late", nothing)),
        options);
    Error error = FailureOf(manager, *graph);
    EXPECT_EQ(error.code(), ErrorCode::kPassBrokeGraph);
    EXPECT_NE(error.message().find("pass guilty failed"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("replay it with"), std::string::npos) << error.message();
  }
}

TEST(PassManager, CountsEachRunAnew) {
  PassManager manager(ParsePipeline("dce"));
  for (int i = 0; i < 2; ++i) {
    auto graph = Parse(kGraph);
    EXPECT_EQ(manager.Run(*graph).runs[0].counters[0].second, 1);
  }
}

TEST(PassManager, NamesAPassThatDeniesItsChange) {
  auto graph = Parse(kGraph);
  TempFolder folder;
  auto deny = [](Graph& g) {
    EraseUnused(g);
    return false;
  };
  PassManager manager(ListOf(Script("liar", deny)), {.reproducer_folder = folder.string()});
  Error error = FailureOf(manager, *graph);
  EXPECT_EQ(error.code(), ErrorCode::kPassMisreported);
  EXPECT_NE(error.message().find("pass liar failed: it says that it did not change the graph"),
            std::string::npos)
      << error.message();
}

TEST(PassManager, NamesAPassThatClaimsAChange) {
  auto graph = Parse(kGraph);
  PassManager manager(ListOf(Script("boaster", [](Graph&) { return true; })),
                      {.write_reproducer = false});
  Error error = FailureOf(manager, *graph);
  EXPECT_EQ(error.code(), ErrorCode::kPassMisreported);
  EXPECT_NE(error.message().find("the same as before"), std::string::npos) << error.message();
}

TEST(PassManager, NoticesChangesOfMetadataAlone) {
  auto graph = Parse(kGraph);
  auto deny = [](Graph& g) {
    g.first()->meta().phase = Phase::kBackward;
    return false;
  };
  PassManager manager(ListOf(Script("liar", deny)), {.write_reproducer = false});
  EXPECT_EQ(FailureOf(manager, *graph).code(), ErrorCode::kPassMisreported);
}

TEST(PassManager, VerifiesAfterAChange) {
  auto graph = Parse(kGraph);
  auto break_order = [](Graph& g) {
    g.MoveBefore(g.last(), g.first());
    return true;
  };
  PassManager manager(ListOf(Script("breaker", break_order)), {.write_reproducer = false});
  Error error = FailureOf(manager, *graph);
  EXPECT_EQ(error.code(), ErrorCode::kPassBrokeGraph);
  EXPECT_NE(error.message().find("breaker"), std::string::npos) << error.message();
}

TEST(PassManager, KeepsTheCodeOfAPassesOwnError) {
  auto graph = Parse(kGraph);
  auto fail = [](Graph&) -> bool { Fail(ErrorCode::kDataDependentBranch, "cannot decide"); };
  PassManager manager(ListOf(Script("strict", fail)), {.write_reproducer = false});
  Error error = FailureOf(manager, *graph);
  EXPECT_EQ(error.code(), ErrorCode::kDataDependentBranch);
  EXPECT_EQ(error.message(), "pass strict failed: cannot decide");
}

TEST(PassManager, TurnsForeignExceptionsIntoErrors) {
  auto graph = Parse(kGraph);
  auto fail = [](Graph&) -> bool { throw std::out_of_range("vector::at"); };
  PassManager manager(ListOf(Script("careless", fail)), {.write_reproducer = false});
  EXPECT_EQ(FailureOf(manager, *graph).code(), ErrorCode::kPassFailed);
}

TEST(PassManager, WritesTheGraphThatTheFailingPassWasGiven) {
  auto graph = Parse(kGraph);
  TempFolder folder;
  std::string given;
  PassList passes = ParsePipeline("dce,canonicalize");
  passes.push_back(Script("broken", [&](Graph& g) -> bool {
    given = Print(g);
    g.MoveBefore(g.last(), g.first());
    return true;
  }));
  PassManager manager(std::move(passes), {.reproducer_folder = folder.string()});
  Error error = FailureOf(manager, *graph);

  ASSERT_EQ(FilesIn(folder).size(), 1u);
  std::string path = FilesIn(folder)[0].string();
  std::string command = fmt::format("gt opt --pass=broken {}", path);
  EXPECT_NE(error.message().find("replay it with: " + command), std::string::npos)
      << error.message();
  EXPECT_EQ(ReadText(path), fmt::format("// {}\n{}", command, given));
}

// A pass that the registry knows fails on a graph no front end makes, and the command of its
// reproducer fails alike.
TEST(PassManager, ReproducerReplaysTheFailure) {
  TempFolder folder;
  auto graph = Parse(kGraph);
  // dce is innocent: the graph is broken before it, where only verification after a change looks.
  Value* y = graph->FindValue("y");
  y->set_type(ContiguousType(DType::kFloat32, {}, {Dim(3)}, graph->shapes()));
  PassManager manager(ParsePipeline("cse{cross_phase=none},dce{drop_random=true}"),
                      {.disabled = {"cse"}, .reproducer_folder = folder.string()});
  Error error = FailureOf(manager, *graph);
  EXPECT_EQ(error.code(), ErrorCode::kPassBrokeGraph);
  EXPECT_NE(error.message().find("the graph was broken before this pass"), std::string::npos)
      << error.message();

  ASSERT_EQ(FilesIn(folder).size(), 1u);
  std::string path = FilesIn(folder)[0].string();
  std::string text = ReadText(path);
  std::string command = text.substr(0, text.find('\n'));
  EXPECT_EQ(command, fmt::format("// gt opt --pass='dce{{drop_random=true}}' {}", path));
  auto again = ParseFile(path);
  PassManager replay(ParsePipeline("dce{drop_random=true}"), {.write_reproducer = false});
  Error replayed = FailureOf(replay, *again);
  EXPECT_EQ(replayed.code(), error.code());
}

TEST(PassManager, RunsEarlierPassesInTheReproducerWhenTheyAreNotRepeatable) {
  auto graph = Parse(kGraph);
  TempFolder folder;
  int calls = 0;
  auto once = [&calls](Graph& g) { return calls++ == 0 ? EraseUnused(g) : false; };
  auto fail = [](Graph&) -> bool { Fail(ErrorCode::kInternal, "no"); };
  PassManager manager(ListOf(Script("once", once), Script("fails", fail)),
                      {.reproducer_folder = folder.string()});
  Error error = FailureOf(manager, *graph);
  EXPECT_NE(error.message().find("--pass=once,fails"), std::string::npos) << error.message();
  ASSERT_EQ(FilesIn(folder).size(), 1u);
  EXPECT_NE(ReadText(FilesIn(folder)[0]).find("%unused"), std::string::npos);
}

TEST(PassManager, KeepsTheErrorWhenTheReproducerCannotBeWritten) {
  auto graph = Parse(kGraph);
  auto fail = [](Graph&) -> bool { Fail(ErrorCode::kDataDependentBranch, "cannot decide"); };
  PassManager manager(ListOf(Script("strict", fail)), {.reproducer_folder = "/dev/null/nowhere"});
  Error error = FailureOf(manager, *graph);
  EXPECT_EQ(error.code(), ErrorCode::kDataDependentBranch);
  EXPECT_NE(error.message().find("cannot decide"), std::string::npos);
  EXPECT_NE(error.message().find("no reproducer could be written"), std::string::npos);
}

TEST(PassManager, LeavesDisabledPassesOut) {
  auto graph = Parse(kGraph);
  PassManager manager(DefaultPipeline(), {.disabled = {"dce"}});
  PipelineReport report = manager.Run(*graph);
  EXPECT_TRUE(report.runs[0].disabled);
  EXPECT_FALSE(report.runs[1].disabled);
  EXPECT_NE(graph->FindValue("unused"), nullptr);
  EXPECT_NE(report.Timing().find("disabled"), std::string::npos);
}

TEST(PassManager, RejectsUnknownNamesToDisable) {
  try {
    PassManager manager(DefaultPipeline(), {.disabled = {"canonicalise"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnknownPass);
    EXPECT_NE(error.message().find("did you mean canonicalize?"), std::string::npos);
  }
}

TEST(PassManager, DumpsGraphsAndDifferences) {
  auto graph = Parse(kGraph);
  std::string start = Print(*graph);
  TempFolder folder;
  PassManager manager(ParsePipeline("dce,cse"), {.dump_folder = folder.string()});
  manager.Run(*graph);
  std::vector<std::string> names;
  for (const auto& file : FilesIn(folder)) names.push_back(file.filename().string());
  EXPECT_EQ(names,
            (std::vector<std::string>{"00_dce.after.gtir", "00_dce.before.gtir", "00_dce.diff",
                                      "01_cse.after.gtir", "01_cse.before.gtir", "01_cse.diff"}));
  EXPECT_EQ(ReadText(FilesIn(folder)[1]), start);
  EXPECT_EQ(ReadText(FilesIn(folder)[0]), ReadText(FilesIn(folder)[4]));
  EXPECT_NE(ReadText(FilesIn(folder)[2]).find("aten::neg"), std::string::npos);
}

TEST(PassManager, CallsBackAfterEachPass) {
  auto graph = Parse(kGraph);
  std::vector<std::string> seen;
  PassManagerOptions options;
  options.disabled = {"canonicalize"};
  options.after_pass = [&](const PassRun& run, const Graph& g) {
    seen.push_back(fmt::format("{} {}", run.name, g.node_count()));
  };
  PassManager manager(ParsePipeline("dce,canonicalize,cse"), std::move(options));
  manager.Run(*graph);
  EXPECT_EQ(seen, (std::vector<std::string>{"dce 4", "cse 4"}));
}

}  // namespace
}  // namespace gt::manager_test
