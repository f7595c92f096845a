#include "gt/ops/registry.h"

#include <gtest/gtest.h>

#include <thread>

namespace gt::registry_test {
namespace {

TEST(Registry, FindsByTextAndByName) {
  const Operator* add = FindOperator("aten::add.Tensor");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(FindOperator(Name("aten::add.Tensor")), add);
  EXPECT_EQ(add->schema.args.size(), 3u);
  EXPECT_EQ(FindOperator("aten::add"), nullptr);
  EXPECT_EQ(FindOperator("aten::no_such_operator"), nullptr);
  EXPECT_EQ(FindOperator(""), nullptr);
}

TEST(Registry, ListsEveryOperatorOnce) {
  for (const Operator* op : AllOperators()) EXPECT_EQ(FindOperator(op->name), op);
}

TEST(Registry, ViewFactsFollowFromTheSchema) {
  OperatorTable table;
  EXPECT_FALSE(table.Add("t::plain(Tensor self) -> Tensor", nullptr).is_view());
  const Operator& view =
      table.Add("t::view(Tensor other, Tensor(a) self, int n) -> Tensor(a)", nullptr);
  EXPECT_TRUE(view.is_view());
  EXPECT_EQ(view.view_arg(), 1);
}

TEST(Registry, RandomAndCheckingOperatorsAreMarked) {
  EXPECT_TRUE(FindOperator("aten::native_dropout")->random);
  EXPECT_FALSE(FindOperator("aten::native_dropout_backward")->random);
  EXPECT_TRUE(FindOperator("aten::_assert_async.msg")->side_effect);
}

TEST(Registry, MayBeUsedFromSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<const Operator*> found(4);
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&found, i] { found[i] = FindOperator("aten::mul.Tensor"); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Operator* op : found) EXPECT_EQ(op, found[0]);
}

}  // namespace
}  // namespace gt::registry_test
