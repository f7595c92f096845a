#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/graph.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::collectives_test {
namespace {

// Every collective says what it is, and over which group it runs; waiting has no group.
TEST(CollectivesTest, CarryTheirFacts) {
  int count = 0;
  for (const Operator* op : AllOperators()) {
    if (!op->name.str().starts_with("_c10d_functional::")) continue;
    ++count;
    ASSERT_NE(op->collective, Collective::kNone) << op->name.str();
    if (op->collective == Collective::kWait) {
      EXPECT_EQ(op->group_arg, -1);
    } else {
      ASSERT_GE(op->group_arg, 0) << op->name.str();
      EXPECT_EQ(op->schema.args[static_cast<size_t>(op->group_arg)].kind, ArgKind::kString);
    }
  }
  EXPECT_EQ(count, 9);
}

std::string Exchange(const std::string& facts) {
  return R"(graph @g(%x: input "x" bf16[s0, 8], %c: input "c" i64[4]) {
  symbols { s0: input, hint 8, range [2, 64]; u0: data, hint 3; u1: data, hint 5; u2: data, hint 1; u3: data, hint 9 }
  )" + facts +
         R"(
  gt::read_ints(%c) binds [u0, u1, u2, u3]
  %y = _c10d_functional::all_to_all_single(%x, output_split_sizes = [u2, u3], input_split_sizes = [u0, u1], group_name = "ep") : bf16[u2 + u3, 8]
  %z = _c10d_functional::wait_tensor(%y) : bf16[u2 + u3, 8]
  return
}
)";
}

std::string FailureOf(const std::string& text) {
  try {
    Verify(*Parse(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// That the splits sent add up to the rows there are is declared where they are read, and used here.
TEST(CollectivesTest, SplitsMustAddUpToTheRows) {
  EXPECT_EQ(FailureOf(Exchange("facts { u0 + u1 == s0 }")), "");
  EXPECT_NE(FailureOf(Exchange("")).find("whether s0 == u0 + u1, which depends on data"),
            std::string::npos);
}

}  // namespace
}  // namespace gt::collectives_test
