// gt opt as a user runs it.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gt/passes/framework/registry.h"
#include "gt/testing/shell.h"
#include "gt/testing/temp_folder.h"

namespace gt::opt_test {
namespace {

constexpr std::string_view kGraph =
    "graph @g(%x: input \"x\" f32[4]) {\n"
    "  %dead = aten::neg(%x) : f32[4]\n"
    "  %y = aten::relu(%x) : f32[4] {module = \"layers.0\"}\n"
    "  return result \"y\" %y\n"
    "}\n";

using Outcome = testing::ShellOutcome;

class Opt : public ::testing::Test {
 protected:
  void SetUp() override { testing::WriteText(Path("in.gtir"), kGraph); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome Run(const std::string& args) const {
    return testing::RunInShell(std::string(GT_BINARY) + " opt " + args + " 2>&1");
  }

 private:
  testing::TempFolder folder_;
};

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Opt, RunsPassesAndPrints) {
  Outcome outcome = Run("--pass=dce,cse " + Path("in.gtir"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output,
            "graph @g(%x: input \"x\" f32[4]) {\n"
            "  %y = aten::relu(%x) : f32[4] {module = \"layers.0\"}\n"
            "  return result \"y\" %y\n"
            "}\n");
}

TEST_F(Opt, ReadsStdinAndWritesAFile) {
  Outcome outcome = Run("--pass='dce{drop_random=true}' --no-metadata -o " + Path("out.gtir") +
                        " - < " + Path("in.gtir"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
  std::ifstream file(Path("out.gtir"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_FALSE(Has(text, "%dead"));
  EXPECT_FALSE(Has(text, "module"));
}

TEST_F(Opt, ShowsTimesCountsAndDifferences) {
  Outcome outcome = Run("--pass=dce --timing --stats --diff " + Path("in.gtir"));
  EXPECT_TRUE(Has(outcome.output, "us/node")) << outcome.output;
  EXPECT_TRUE(Has(outcome.output, "dce.erased")) << outcome.output;
  EXPECT_TRUE(Has(outcome.output, "aten::neg")) << outcome.output;
  EXPECT_FALSE(Has(outcome.output, "graph @g")) << outcome.output;
}

TEST_F(Opt, ListsEveryPassWithItsOptions) {
  Outcome outcome = Run("--list");
  for (const std::string& name : PassNames()) EXPECT_TRUE(Has(outcome.output, name)) << name;
  EXPECT_TRUE(Has(outcome.output, "drop_random"));
}

TEST_F(Opt, VerifiesOnly) {
  EXPECT_EQ(Run("--verify-only " + Path("in.gtir")).output, "");
  std::ofstream(Path("bad.gtir"))
      << "graph @g(%x: input \"x\" f32[4]) {\n  %y = aten::relu(%x) : f32[5]\n  return\n}\n";
  Outcome outcome = Run("--verify-only " + Path("bad.gtir"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(Has(outcome.output, "GT-E0307")) << outcome.output;
}

TEST_F(Opt, TakesAPipelineAsAJobPrintsIt) {
  Outcome outcome = Run("--pipeline='dce{drop_random=true},cse' " + Path("in.gtir"));
  EXPECT_EQ(outcome.output,
            Run("--pass='dce{drop_random=true}' --pass=cse " + Path("in.gtir")).output);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(Has(Run("--pipeline=dce --pass=dce " + Path("in.gtir")).output, "GT-E0108"));
}

TEST_F(Opt, BisectsByRunningTheGraph) {
  Outcome outcome = Run("--bisect --pipeline=dce,canonicalize,cse " + Path("in.gtir"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "no pass changes the results: dce,canonicalize,cse\n");
  std::ofstream(Path("ranks.gtir")) << "graph @g(%x: input \"x\" f32[4]) {\n"
                                       "  %y = _c10d_functional::all_reduce(%x, reduce_op = "
                                       "\"sum\", group_name = \"fsdp\") : f32[4]\n"
                                       "  return result \"y\" %y\n}\n";
  outcome = Run("--bisect --pass=dce " + Path("ranks.gtir"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(Has(outcome.output, "collectives need ranks")) << outcome.output;
}

// The names of the graph are of one process group in the job, which the graph does not say.
TEST_F(Opt, ReadsWhatTheJobToldItsPasses) {
  std::ofstream(Path("groups.gtir"))
      << "graph @g(%x: input \"x\" f32[4]) {\n"
         "  %t = _c10d_functional::all_to_all_single(%x, output_split_sizes = [2, 2], "
         "input_split_sizes = [2, 2], group_name = \"ep\") : f32[4]\n"
         "  %r = _c10d_functional::all_reduce(%x, reduce_op = \"sum\", group_name = \"fsdp\") : "
         "f32[4]\n"
         "  return result \"t\" %t, result \"r\" %r\n}\n";
  std::ofstream(Path("job.context")) << R"({"groups": {"ep": {"identity": 0, "ranks": [0, 1]},
    "fsdp": {"identity": 0, "ranks": [0, 1]}}})";
  const std::string run = "--pass=isolate_ep_process_group " + Path("groups.gtir");
  EXPECT_FALSE(Has(Run(run).output, "ep.tokens"));
  EXPECT_TRUE(Has(Run("--context=" + Path("job.context") + " " + run).output, "ep.tokens"));
  std::ofstream(Path("bad.context")) << "{";
  Outcome outcome = Run("--context=" + Path("bad.context") + " " + run);
  EXPECT_TRUE(Has(outcome.output, "bad.context")) << outcome.output;
  EXPECT_TRUE(Has(outcome.output, "GT-E0101")) << outcome.output;
  EXPECT_TRUE(Has(Run("--context=" + Path("none.context") + " " + run).output, "GT-E0101"));
}

TEST_F(Opt, ExplainsBadInput) {
  EXPECT_TRUE(Has(Run("").output, "GT-E0107"));
  EXPECT_TRUE(Has(Run("--pass=dse " + Path("in.gtir")).output, "did you mean dce?"));
  EXPECT_TRUE(Has(Run("--disable_passes=dse " + Path("in.gtir")).output, "did you mean dce?"));
  EXPECT_TRUE(Has(Run("--pass=dce " + Path("missing.gtir")).output, "GT-E0200"));
  EXPECT_TRUE(Has(Run("--pass=dce -o /dev/null/x " + Path("in.gtir")).output, "GT-E0704"));
  EXPECT_TRUE(Has(Run("--passes=dce " + Path("in.gtir")).output, "did you mean --pass"));
}

}  // namespace
}  // namespace gt::opt_test
