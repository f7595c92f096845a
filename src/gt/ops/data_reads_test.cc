#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/graph.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::data_reads_test {
namespace {

std::string FailureOf(const std::string& type, const std::string& node) {
  try {
    Verify(*Parse("graph @g(%x: input \"x\" " + type +
                  ") {\n  symbols { u0: data, hint 3; u1: data, hint 5 }\n  " + node +
                  "\n  return\n}\n"));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DataReadsTest, BindsOneSymbolForEachNumber) {
  EXPECT_EQ(FailureOf("i64[2]", "gt::read_ints(%x) binds [u0, u1]"), "");
  EXPECT_EQ(FailureOf("i32[]", "gt::read_ints(%x) binds [u0]"), "");
  EXPECT_EQ(FailureOf("i64[1]", "aten::_local_scalar_dense(%x) binds [u0]"), "");
}

// Sizes are whole numbers: others have to stay in tensors, and the message says so.
TEST(DataReadsTest, RefusesWhatIsNoInteger) {
  EXPECT_NE(FailureOf("f32[]", "aten::_local_scalar_dense(%x) binds [u0]").find("tensor of rank 0"),
            std::string::npos);
  EXPECT_NE(FailureOf("bool[]", "aten::_local_scalar_dense(%x) binds [u0]").find("where()"),
            std::string::npos);
  EXPECT_NE(FailureOf("i64[2]", "aten::_local_scalar_dense(%x) binds [u0]").find("one element"),
            std::string::npos);
  EXPECT_NE(FailureOf("i64[1, 1]", "gt::read_ints(%x) binds [u0]").find("flatten"),
            std::string::npos);
}

TEST(DataReadsTest, ReadsWaitForTheDevice) {
  for (const char* name : {"gt::read_ints", "aten::_local_scalar_dense"}) {
    EXPECT_TRUE(FindOperator(name)->reads_data) << name;
  }
}

}  // namespace
}  // namespace gt::data_reads_test
