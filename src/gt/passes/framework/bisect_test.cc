#include "gt/passes/framework/bisect.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"

namespace gt::bisect_test {
namespace {

// Writes its own number where the predicates of these tests look.
class Stamp : public Pass {
 public:
  explicit Stamp(int number) : number_(number) {}
  const PassInfo& info() const override {
    static constexpr PassInfo kInfo = {
        .name = "stamp", .summary = "", .description = "", .reads = "", .writes = "", .never = ""};
    return kInfo;
  }
  bool RunImpl(Graph& graph, PassContext&) override {
    graph.first()->meta().sequence = number_;
    return true;
  }

 private:
  int number_;
};

PassList Stamps(int count) {
  PassList passes;
  for (int i = 0; i < count; ++i) passes.push_back(std::make_unique<Stamp>(i));
  return passes;
}

std::unique_ptr<Graph> SmallGraph() {
  return Parse(
      "graph @g(%x: input \"x\" f32[4]) {\n %y = aten::neg(%x) : f32[4]\n return result \"y\" "
      "%y\n}\n");
}

TEST(FirstBreaking, FindsThePassWithEitherSearch) {
  auto graph = SmallGraph();
  for (int count : {1, 2, 7, 16}) {
    PassList passes = Stamps(count);
    for (int culprit = 0; culprit < count; ++culprit) {
      auto holds = [culprit](Graph& g) { return g.first()->meta().sequence < culprit; };
      for (BisectSearch search : {BisectSearch::kBinary, BisectSearch::kLinear}) {
        auto breaking = FirstBreaking(passes, *graph, holds, search);
        ASSERT_TRUE(breaking.has_value());
        EXPECT_EQ(breaking->index, culprit);
        EXPECT_EQ(breaking->spec, "stamp");
      }
    }
  }
}

TEST(FirstBreaking, TestsFewGraphs) {
  auto graph = SmallGraph();
  int tests = 0;
  auto holds = [&tests](Graph& g) {
    ++tests;
    return g.first()->meta().sequence < 40;
  };
  EXPECT_EQ(FirstBreaking(Stamps(64), *graph, holds)->index, 40);
  EXPECT_LE(tests, 8);  // the start, the end, and log2(64) between
}

TEST(FirstBreaking, FindsNothingWhenAllIsWell) {
  auto graph = SmallGraph();
  auto holds = [](Graph&) { return true; };
  EXPECT_FALSE(FirstBreaking(Stamps(5), *graph, holds).has_value());
  EXPECT_FALSE(FirstBreaking(Stamps(5), *graph, holds, BisectSearch::kLinear).has_value());
  EXPECT_FALSE(FirstBreaking({}, *graph, holds).has_value());
}

TEST(FirstBreaking, SaysWhenTheGraphIsBrokenFromTheStart) {
  auto graph = SmallGraph();
  EXPECT_EQ(FirstBreaking(Stamps(5), *graph, [](Graph&) { return false; })->index, -1);
}

TEST(FirstBreaking, LeavesTheGraphAlone) {
  auto graph = SmallGraph();
  uint64_t hash = graph->Hash();
  auto holds = [](Graph& g) {
    g.first()->meta().phase = Phase::kBackward;  // the predicate has a copy of its own
    return g.first()->meta().sequence < 2;
  };
  EXPECT_EQ(FirstBreaking(Stamps(5), *graph, holds)->index, 2);
  EXPECT_EQ(graph->Hash(), hash);
}

}  // namespace
}  // namespace gt::bisect_test
