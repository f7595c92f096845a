#include "gt/base/fold_names.h"

#include <gtest/gtest.h>

namespace gt::fold_names_test {
namespace {

using Names = std::vector<std::string>;

Names Folded(const Names& names, Names keys = {}) {
  keys.resize(names.size());
  Names folded;
  for (const FoldedName& one : FoldNames(names, keys)) folded.push_back(one.name);
  return folded;
}

TEST(FoldNames, NumbersBecomeRanges) {
  EXPECT_EQ(Folded({"layers.0.wo", "layers.2.wo", "layers.1.wo", "layers.5.wo", "norm"}),
            (Names{"layers.{0-2,5}.wo", "norm"}));
}

TEST(FoldNames, OnlyWhereAllElseIsEqual) {
  EXPECT_EQ(Folded({"layers.0.wo", "layers.1.wo", "layers.2.wo"}, {"a", "b", "a"}),
            (Names{"layers.{0,2}.wo", "layers.1.wo"}));
  EXPECT_EQ(Folded({"a.w1", "a.w2", "a.01", "a.02"}), (Names{"a.w1", "a.w2", "a.01", "a.02"}));
}

// Layers with other numbers of experts are not one.
TEST(FoldNames, FoldsAtSeveralPlaces) {
  EXPECT_EQ(Folded({"l.0.e.0", "l.0.e.1", "l.1.e.0", "l.1.e.1", "l.2.e.0"}),
            (Names{"l.{0-2}.e.0", "l.{0-1}.e.1"}));
  const std::vector<FoldedName> both =
      FoldNames(Names{"l.0.e.0", "l.0.e.1", "l.1.e.0", "l.1.e.1"}, Names(4));
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].name, "l.{0-1}.e.{0-1}");
  EXPECT_EQ(both[0].members, (std::vector<size_t>{0, 2, 1, 3}));
}

TEST(FoldNames, DeepNamesEnd) {
  std::string deep = "0";
  for (int i = 0; i < 1000; ++i) deep += ".0";
  EXPECT_EQ(Folded({deep, deep}).size(), 1u);
  EXPECT_TRUE(Folded({}).empty());
}

}  // namespace
}  // namespace gt::fold_names_test
