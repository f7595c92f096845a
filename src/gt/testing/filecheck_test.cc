// The runner of text tests, and all text tests of this folder.
#include "gt/testing/filecheck.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "gt/base/error.h"
#include "gt/passes/framework/registry.h"

namespace gt {

// What googletest shows of a parameter.
void PrintTo(const CheckCase& test, std::ostream* out) { *out << test.sentence; }

namespace {

std::vector<CheckCase> AllCases() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(GT_SOURCE_DIR "/src/gt")) {
    if (entry.path().extension() == ".gtir") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<CheckCase> cases;
  for (const std::string& path : paths) {
    for (CheckCase& test : ReadCheckFile(path)) cases.push_back(std::move(test));
  }
  return cases;
}

class PassTextCase : public ::testing::TestWithParam<CheckCase> {};

TEST_P(PassTextCase, Holds) {
  std::optional<std::string> failure = RunCheckCase(GetParam());
  EXPECT_FALSE(failure.has_value()) << *failure;
}

std::string TestName(const ::testing::TestParamInfo<CheckCase>& info) {
  std::string name = std::filesystem::path(info.param.file).stem().string();
  return name + "_line_" + std::to_string(info.param.line);
}

INSTANTIATE_TEST_SUITE_P(PassText, PassTextCase, ::testing::ValuesIn(AllCases()), TestName);

// A pass without a text test is one whose contract nobody wrote down.
TEST(PassText, CoversEveryPass) {
  std::set<std::string> covered;
  for (const CheckCase& test : AllCases()) {
    try {
      for (const auto& pass : ParsePipeline(test.passes)) covered.insert(pass->name());
    } catch (const Error&) {
      // A case about wrong options.
    }
  }
  for (const std::string& name : PassNames()) {
    EXPECT_TRUE(covered.contains(name)) << name << " has no case in any .gtir file";
  }
}

// A case around directives, for the runner's own tests; `output` stands for what the passes
// printed.
CheckCase CaseWith(std::string_view directives) {
  std::string text =
      "// Proves something.\n// RUN: gt opt --pass=dce %s\n" + std::string(directives);
  return ReadCheckCases(text, "case.gtir").at(0);
}

bool Matches(std::string_view directives, const std::string& output) {
  return !MatchDirectives(CaseWith(directives), output).has_value();
}

TEST(FileCheck, FindsTextsInOrder) {
  EXPECT_TRUE(Matches("// CHECK: b\n// CHECK: c", "a\nb\nx\nc\n"));
  EXPECT_FALSE(Matches("// CHECK: c\n// CHECK: b", "a\nb\nx\nc\n"));
  EXPECT_TRUE(Matches("// CHECK: b\n// CHECK: d", "a b c d\n"));
  EXPECT_FALSE(Matches("// CHECK: d\n// CHECK: b", "a b c d\n"));
}

TEST(FileCheck, NextMeansTheNextLine) {
  EXPECT_TRUE(Matches("// CHECK: a\n// CHECK-NEXT: b", "a\nb\n"));
  EXPECT_FALSE(Matches("// CHECK: a\n// CHECK-NEXT: b", "a\nx\nb\n"));
  EXPECT_FALSE(Matches("// CHECK: a\n// CHECK-NEXT: b", "a b\n"));
  EXPECT_FALSE(Matches("// CHECK: a\n// CHECK-NEXT: b", "a"));
  EXPECT_FALSE(Matches("// CHECK-NEXT: a", "a\n"));
}

TEST(FileCheck, NotLooksBetweenMatches) {
  EXPECT_TRUE(Matches("// CHECK: a\n// CHECK-NOT: x\n// CHECK: c", "x\na\nb\nc\nx\n"));
  EXPECT_FALSE(Matches("// CHECK: a\n// CHECK-NOT: x\n// CHECK: c", "a\nx\nc\n"));
  EXPECT_FALSE(Matches("// CHECK-NOT: x\n// CHECK: a", "x\na\n"));
  EXPECT_FALSE(Matches("// CHECK: a\n// CHECK-NOT: x", "a\nb\nx\n"));
  EXPECT_TRUE(Matches("// CHECK: a\n// CHECK-NOT: x", "x\na\nb\n"));
}

TEST(FileCheck, CountsLines) {
  EXPECT_TRUE(Matches("// CHECK-COUNT-2: mm", "mm mm\nmm\n"));
  EXPECT_FALSE(Matches("// CHECK-COUNT-2: mm", "mm\nmm\nmm\n"));
  EXPECT_TRUE(Matches("// CHECK-COUNT-0: mm", "add\n"));
}

std::optional<std::string> Nodes(std::string_view directives,
                                 const std::vector<std::string>& names) {
  return MatchNodes(CaseWith(directives), names);
}

TEST(FileCheck, NodesAreAllNodes) {
  EXPECT_EQ(Nodes("// CHECK-NODES: %a %b\n// CHECK-NODES: %c", {"%a", "%b", "%c"}), std::nullopt);
  EXPECT_NE(Nodes("// CHECK-NODES: %a %b", {"%a", "%b", "%c"}), std::nullopt);
  EXPECT_NE(Nodes("// CHECK-NODES: %b %a", {"%a", "%b"}), std::nullopt);
}

TEST(FileCheck, OrderAllowsOthersInBetween) {
  EXPECT_EQ(Nodes("// CHECK-ORDER: %a  %c", {"%a", "%b", "%c"}), std::nullopt);
  EXPECT_EQ(Nodes("// CHECK-ORDER: %a %c\n// CHECK-ORDER: %b %c", {"%a", "%b", "%c"}),
            std::nullopt);
  EXPECT_NE(Nodes("// CHECK-ORDER: %c %a", {"%a", "%b", "%c"})->find("%a is too early"),
            std::string::npos);
  EXPECT_NE(Nodes("// CHECK-ORDER: %a %d", {"%a", "%b"})->find("there is no node %d"),
            std::string::npos);
}

TEST(FileCheck, KnowsPatternsAndVariables) {
  EXPECT_TRUE(Matches("// CHECK: %{{[a-z]+}} = f(x)", "%abc = f(x)\n"));
  EXPECT_FALSE(Matches("// CHECK: f(x.y)", "f(xzy)\n"));  // outside {{}} nothing is special
  EXPECT_TRUE(Matches("// CHECK: [[V:%[a-z]+]] = f\n// CHECK: g([[V]])", "%a = f\ng(%b)\ng(%a)\n"));
  EXPECT_FALSE(Matches("// CHECK: [[V:%[a-z]+]] = f\n// CHECK-NEXT: g([[V]])", "%a = f\ng(%b)\n"));
  EXPECT_THROW(Matches("// CHECK: [[V]]", "a\n"), Error);
  EXPECT_THROW(Matches("// CHECK: {{a", "a\n"), Error);
}

TEST(FileCheck, TreatsRunsOfSpacesAsOne) {
  EXPECT_TRUE(Matches("// CHECK: a   b", "a b\n"));
  EXPECT_TRUE(Matches("// CHECK: a b", "a \t b\n"));
}

TEST(FileCheck, ReportsExpectedActualAndPosition) {
  std::string failure =
      *MatchDirectives(CaseWith("// CHECK: one\n// CHECK-NEXT: three"), "zero\none\ntwo\n");
  EXPECT_EQ(failure,
            "case.gtir:4: not found on this line\n"
            "  expected: three\n"
            "  output:\n"
            "      1 | zero\n"
            "      2 | one\n"
            "->    3 | two\n"
            "      4 | \n");
}

TEST(FileCheck, SplitsCasesAndKeepsTheirLines) {
  auto cases = ReadCheckCases(
      "// First.\n// RUN: gt opt --pass=dce %s\n// CHECK: a\n// -----\n"
      "// Second.\n// RUN: gt opt --pass='cse{cross_phase=all}' --no-metadata %s\nx \"//\" y  // "
      "CHECK: b\n",
      "f.gtir");
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[1].sentence, "Second.");
  EXPECT_EQ(cases[1].line, 5);
  EXPECT_EQ(cases[1].passes, "cse{cross_phase=all}");
  EXPECT_FALSE(cases[1].metadata);
  ASSERT_EQ(cases[1].directives.size(), 1u);
  EXPECT_EQ(cases[1].directives[0].line, 7);
  EXPECT_EQ(cases[1].directives[0].text, "b");
  EXPECT_TRUE(cases[1].text.starts_with("\n\n\n\n// Second."));
}

TEST(FileCheck, RejectsCasesThatProveNothing) {
  const std::string run = "// RUN: gt opt --pass=dce %s\n";
  for (const std::string& text :
       {std::string("// RUN: gt opt --pass=dce\n// CHECK: a\n"),
        std::string("// Sentence.\n// CHECK: a\n"), "// Sentence.\n" + run,
        "// Sentence.\n" + run + "// CHECK-LATER: a\n", "// Sentence.\n" + run + "// CHECK:\n",
        "// Sentence.\n" + run + "// CHECK-COUNT-x: a\n",
        "// Sentence.\n" + run + "// CHECK-COUNTER: a = b\n",
        "// Sentence.\n" + run + "// CHECK-COUNTER: a\n",
        std::string("// Sentence.\n// RUN: gt train\n// CHECK: a\n"),
        std::string("// Sentence.\n// RUN: gt opt --wrong\n// CHECK: a\n"), std::string("")}) {
    EXPECT_THROW(ReadCheckCases(text, "f.gtir"), Error) << text;
  }
}

constexpr std::string_view kDeadNode = R"(
graph @g(%x: input "x" f32[4]) {
  %dead = aten::neg(%x) : f32[4]
  %y = aten::relu(%x) : f32[4]
  return result "y" %y
}
)";

std::optional<std::string> RunOn(std::string_view directives, std::string_view graph) {
  return RunCheckCase(CaseWith(std::string(directives) + "\n" + std::string(graph)));
}

TEST(FileCheck, RunsPasses) {
  EXPECT_EQ(RunOn("// CHECK-NOT: neg", kDeadNode), std::nullopt);
  EXPECT_NE(RunOn("// CHECK: neg", kDeadNode), std::nullopt);
}

TEST(FileCheck, ReportsAChangeThatWasNotExpected) {
  EXPECT_NE(RunOn("// CHECK-UNCHANGED", kDeadNode)->find("expected no change"), std::string::npos);
}

// A node is called by its first result, or by what it binds, or by its operator.
TEST(FileCheck, NamesNodes) {
  EXPECT_EQ(RunOn("// CHECK-NODES: aten::_assert_async u0 %y", R"(
graph @g(%x: input "x" i64[1]) {
  symbols { u0: data, hint 1 }
  aten::_assert_async(%x)
  gt::read_ints(%x) binds [u0]
  %y = aten::zeros(size = [u0]) : f32[u0]
  return result "y" %y
}
)"),
            std::nullopt);
}

TEST(FileCheck, ReadsCounters) {
  EXPECT_EQ(RunOn("// CHECK-COUNTER: erased = 1", kDeadNode), std::nullopt);
  EXPECT_NE(RunOn("// CHECK-COUNTER: erased = 2", kDeadNode)->find("erased is 1, not 2"),
            std::string::npos);
  EXPECT_NE(RunOn("// CHECK-COUNTER: lost = 2", kDeadNode)->find("no pass of the case counts"),
            std::string::npos);
}

TEST(FileCheck, NotIdempotentMustBeTrue) {
  EXPECT_NE(RunOn("// CHECK-NOT-IDEMPOTENT", kDeadNode)->find("changes nothing"),
            std::string::npos);
}

TEST(FileCheck, ExpectsErrors) {
  std::string_view broken =
      "graph @g(%x: input \"x\" f32[4]) {\n  return result \"y\" %nowhere\n}\n";
  EXPECT_EQ(RunOn("// CHECK-ERROR: GT-E0203", broken), std::nullopt);
  EXPECT_NE(RunOn("// CHECK-ERROR: GT-E0999", broken)->find("another error"), std::string::npos);
  EXPECT_NE(RunOn("// CHECK: x", broken)->find("failed with GT-E0203"), std::string::npos);
  EXPECT_NE(RunOn("// CHECK-ERROR: GT-E0203", kDeadNode)->find("expected an error"),
            std::string::npos);
}

}  // namespace
}  // namespace gt
