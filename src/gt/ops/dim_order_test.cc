#include "gt/ops/dim_order.h"

#include <gtest/gtest.h>

namespace gt::dim_order_test {
namespace {

DimOrder Of(std::string_view name) { return DimOrderOf(*FindOperator(name)); }

// A new operator is unknown to passes that cut dimensions until somebody says what it does.
TEST(DimOrder, EveryOperatorIsInTheTable) {
  for (const Operator* op : AllOperators()) EXPECT_TRUE(HasDimOrder(*op)) << op->name.str();
}

TEST(DimOrder, OverloadsAndCopiesAreAsTheOperator) {
  EXPECT_EQ(Of("aten::add.Tensor"), DimOrder::kKept);
  EXPECT_EQ(Of("aten::add.Scalar"), DimOrder::kKept);
  EXPECT_EQ(Of("aten::view"), DimOrder::kRegrouped);
  EXPECT_EQ(Of("aten::view_copy"), DimOrder::kRegrouped);
  EXPECT_EQ(Of("aten::slice_copy.Tensor"), DimOrder::kKept);
  EXPECT_EQ(Of("aten::as_strided_copy"), DimOrder::kUnknown);
  // Not the copy of a view.
  EXPECT_EQ(Of("aten::index_copy"), DimOrder::kWritten);
  EXPECT_EQ(Of("aten::_to_copy"), DimOrder::kKept);
}

// Whatever the table says of collectives must agree with what they are.
TEST(DimOrder, CollectivesThatChangeDimensionZeroAreAcrossRanks) {
  for (const Operator* op : AllOperators()) {
    const bool moves = op->collective == Collective::kAllGather ||
                       op->collective == Collective::kReduceScatter ||
                       op->collective == Collective::kAllToAll;
    EXPECT_EQ(DimOrderOf(*op) == DimOrder::kAcrossRanks, moves) << op->name.str();
  }
}

}  // namespace
}  // namespace gt::dim_order_test
