#include "gt/placement/solver/iopddl.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "gt/base/error.h"
#include "gt/data/data_test_util.h"
#include "gt/testing/temp_folder.h"

namespace gt::iopddl_test {
namespace {

using placement::kForbidden;
using placement::LabelProblem;
using placement::LabelSolution;
using placement::ParseIopddl;

constexpr const char* kSmall = R"({"problem": {
  "name": "small",
  "nodes": {"intervals": [[0, 2], [1, 3], [3, 3]],
            "costs": [[1, 5], [2, 1, 1000000000000000000], [7]],
            "usages": [[40, 10], [40, 30, 0], [99]]},
  "edges": {"nodes": [[0, 1], [2, 1]],
            "costs": [[0, 4, 0, 4, 0, 0], [1, 1, 1]]},
  "usage_limit": 60}})";

std::string Replaced(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string Refusal(const std::string& text) {
  try {
    ParseIopddl(text, "small.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadPlacementProblem);
    return error.message();
  }
  return "accepted";
}

TEST(Iopddl, ReadsNodesEdgesAndLimit) {
  const LabelProblem problem = ParseIopddl(kSmall, "small.json");
  ASSERT_EQ(problem.variables.size(), 3U);
  EXPECT_EQ(problem.variables[1].costs, (std::vector<double>{2, 1, kForbidden}));
  EXPECT_EQ(problem.variables[0].usage, (std::vector<int64_t>{40, 10}));
  EXPECT_EQ(problem.variables[1].live.front().begin, 1);
  EXPECT_EQ(problem.variables[1].live.front().end, 3);
  EXPECT_TRUE(problem.variables[2].live.empty());
  ASSERT_EQ(problem.edges.size(), 2U);
  EXPECT_EQ(problem.matrices[0].At(1, 0), 4);
  EXPECT_EQ(problem.usage_limit, 60);
}

TEST(Iopddl, IsSolved) {
  const LabelProblem problem = ParseIopddl(kSmall, "small.json");
  const LabelSolution solution = Solve(problem);
  ASSERT_TRUE(solution.feasible);
  EXPECT_EQ(solution.labels, (std::vector<int32_t>{1, 1, 0}));  // the cheapest would need 80
  EXPECT_EQ(solution.cost, 14);
  EXPECT_NEAR(solution.lower_bound, 14, 1e-6);
}

TEST(Iopddl, StoresEqualMatricesOnce) {
  const LabelProblem problem =
      ParseIopddl(Replaced("[[0, 1], [2, 1]]", "[[0, 1], [0, 1]]")
                      .replace(std::string(kSmall).find("[1, 1, 1]"), 9, "[0, 4, 0, 4, 0, 0]"),
                  "small.json");
  EXPECT_EQ(problem.edges.size(), 2U);
  EXPECT_EQ(problem.matrices.size(), 1U);
}

TEST(Iopddl, SkipsWhatItDoesNotKnow) {
  const std::string text =
      Replaced("\"name\": \"small\"", R"("notes": {"nodes": [[1, {"costs": [[1]]}], null]})");
  EXPECT_EQ(ParseIopddl(text, "small.json").variables.size(), 3U);
}

TEST(Iopddl, NamesThePlaceOfWhatIsWrong) {
  EXPECT_NE(Refusal("{").find("small.json: byte 2"), std::string::npos);
  EXPECT_NE(Refusal("[]").find("'problem.edges.costs' is missing"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("usage_limit", "limit")).find("'problem.usage_limit' is missing"),
            std::string::npos);
  EXPECT_NE(Refusal(Replaced("[7]", "[]")).find("problem.nodes.costs[2]"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("[7]", "[-7]")).find("problem.nodes.costs[2]"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("[7]", "[[7]]")).find("problem.nodes.costs[2]"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("[7]", "{}")).find("problem.nodes.costs[2]"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("[7]", "7")).find("problem.nodes.costs[2]"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("[99]", "[1, 2]")).find("problem.nodes.usages[2]"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("[99]", "[1e30]")).find("problem.nodes.usages[2]"), std::string::npos);
  EXPECT_NE(Refusal(Replaced("[1, 3]", "[3, 1]")).find("problem.nodes.intervals[1]"),
            std::string::npos);
  EXPECT_NE(Refusal(Replaced("[2, 1]]", "[3, 1]]")).find("problem.edges.nodes[1]"),
            std::string::npos);
  EXPECT_NE(Refusal(Replaced("[2, 1]]", "[1, 1]]")).find("problem.edges.nodes[1]"),
            std::string::npos);
  EXPECT_NE(Refusal(Replaced("[1, 1, 1]", "[1, 1]")).find("problem.edges.costs[1]"),
            std::string::npos);
}

TEST(Iopddl, ReadsFilesAndSaysWhyItCannot) {
  const testing::TempFolder folder;
  std::ofstream(folder.path() / "small.json") << kSmall;
  EXPECT_EQ(placement::ReadIopddl(folder.path() / "small.json").variables.size(), 3U);
  EXPECT_THROW(placement::ReadIopddl(folder.path() / "missing.json"), Error);
  EXPECT_THROW(placement::ReadIopddl(folder.path() / "missing.json.gz"), Error);
#ifdef GT_HAVE_ZLIB
  std::ofstream(folder.path() / "small.json.gz", std::ios::binary) << testing::Gzip(kSmall);
  EXPECT_EQ(placement::ReadIopddl(folder.path() / "small.json.gz").variables.size(), 3U);
#endif
}

}  // namespace
}  // namespace gt::iopddl_test
