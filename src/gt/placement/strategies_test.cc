#include "gt/placement/strategies.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "gt/ir/text.h"
#include "gt/sim/cluster.h"

namespace gt::strategies_test {
namespace {

using namespace placement;
using placement::Layout;

// All strategies of the last node of a graph.
class Listed {
 public:
  Listed(const std::string& text, const std::string& mesh)
      : graph_(Parse(text, "test.gtir")),
        folding_(Fold(*graph_, /*fold=*/false)),
        pieces_(FindPieces(folding_, graph_->shapes().Hints())),
        links_(ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml")),
        pricing_(DeviceMesh::Parse(mesh), links_, SpeedOf("hopper")) {
    const FoldedClass& last = folding_.classes.back();
    for (const Strategy& strategy :
         StrategiesOf(*last.node, pieces_.back(), graph_->shapes().Hints(), pricing_)) {
      by_text_.emplace(TextOf(strategy), strategy);
      ++count_;
    }
  }

  size_t count() const { return count_; }
  std::set<std::string> Texts() const {
    std::set<std::string> texts;
    for (const auto& [text, strategy] : by_text_) texts.insert(text);
    return texts;
  }
  const Strategy& At(const std::string& text) const { return by_text_.at(text); }

 private:
  // "S(0) R -> S(0)".
  std::string TextOf(const Strategy& strategy) const {
    std::string text;
    for (size_t i = 0; i < strategy.operands.size(); ++i) {
      text += ToString(strategy.operands[i], pieces_.back().operands[i], pricing_.mesh()) + " ";
    }
    return text + "-> " + ToString(strategy.results[0], pieces_.back().results[0], pricing_.mesh());
  }

  std::unique_ptr<Graph> graph_;
  Folding folding_;
  std::vector<ClassPieces> pieces_;
  LinkModel links_;
  Pricing pricing_;
  std::map<std::string, Strategy> by_text_;
  size_t count_ = 0;
};

std::string Product(int64_t m, int64_t k, int64_t n) {
  return fmt::format(
      "graph @g(%a: input \"a\" bf16[{0}, {1}], %b: input \"b\" bf16[{1}, {2}]) {{\n"
      "  %mm = aten::mm(%a, %b) : bf16[{0}, {2}]\n"
      "  return result \"mm\" %mm\n}}\n",
      m, k, n);
}

// Rows, columns, the contracted dimension, and partial sums of either factor.
TEST(Strategies, OfAProductOnOneAxis) {
  EXPECT_EQ(Listed(Product(64, 32, 16), "4").Texts(),
            (std::set<std::string>{"R R -> R", "S(0) R -> S(0)", "R S(1) -> S(1)", "S(1) S(0) -> P",
                                   "P R -> P", "R P -> P"}));
}

// Axes are independent of each other: FSDP by one and columns or rows by the other are among them.
TEST(Strategies, OfAProductOnTwoAxes) {
  const Listed listed(Product(64, 32, 16), "2x4");
  EXPECT_EQ(listed.count(), 36u);
  EXPECT_EQ(listed.Texts().size(), 36u);
  for (const char* text : {"RR RR -> RR", "S(0)R RS(1) -> S(0)S(1)", "S(0)S(1) RS(0) -> S(0)P",
                           "S(1)S(0) S(0)R -> PS(0)", "S(1)S(1) S(0)S(0) -> PP"}) {
    EXPECT_TRUE(listed.Texts().contains(text)) << text;
  }
}

// What would leave a rank without elements is no strategy.
TEST(Strategies, DropsEmptyShards) {
  const Listed listed(Product(64, 32, 4), "2x4");  // not 8 shards of the 4 columns
  EXPECT_EQ(listed.count(), 35u);
  EXPECT_FALSE(listed.Texts().contains("RR S(1)S(1) -> S(1)S(1)"));
  EXPECT_EQ(Listed(Product(3, 2, 1), "4").count(), 3u);  // whole, and partial sums
}

// A rank's time is that of its shard; partial sums of a factor divide nothing.
TEST(Strategies, PricesTheRanksShare) {
  const Listed listed(Product(8192, 8192, 8192), "4");
  const double whole = listed.At("R R -> R").kernel_us;
  EXPECT_LT(listed.At("S(0) R -> S(0)").kernel_us, whole / 3);
  EXPECT_LT(listed.At("S(1) S(0) -> P").kernel_us, whole / 3);
  EXPECT_DOUBLE_EQ(listed.At("P R -> P").kernel_us, whole);
}

// Statistics along a dimension that is cut are combined within the operator.
TEST(Strategies, PricesStatistics) {
  const Listed listed(R"(graph @g(%x: input "x" f32[256, 4096]) {
    %y = aten::_log_softmax(%x, dim = 1, half_to_float = false) : f32[256, 4096]
    return result "y" %y
  })",
                      "8");
  EXPECT_EQ(listed.At("S(0) -> S(0)").collective_us, 0);
  EXPECT_GT(listed.At("S(1) -> S(1)").collective_us, 0);
}

// An input may be anything that is no partial sum, and storing less is worth a little.
TEST(Strategies, OfInputs) {
  const DeviceMesh mesh = DeviceMesh::Parse("2x4");
  const Pieces pieces = {{0, 64, 64, true}, {1, 64, 64, true}};
  const std::vector<Strategy> strategies = InputStrategies(pieces, mesh);
  EXPECT_EQ(strategies.size(), 9u);
  const double whole = strategies.front().collective_us;
  EXPECT_EQ(strategies.front().results[0], Layout{});
  for (const Strategy& strategy : strategies) {
    EXPECT_FALSE(strategy.results[0].HasPartial());
    EXPECT_DOUBLE_EQ(strategy.collective_us,
                     whole * LocalFraction(strategy.results[0], pieces, mesh));
    EXPECT_LT(strategy.collective_us, 1e-3);
  }
}

// A mean of shards that are equally long is a sum of their means.
TEST(Strategies, MeansOfShardsAreSummed) {
  const Listed even(
      "graph @g(%x: input \"x\" f32[16, 64]) {\n  %y = aten::mean.dim(%x, dim = [1]) : f32[16]\n"
      "  return result \"y\" %y\n}",
      "8");
  EXPECT_EQ(even.Texts(), (std::set<std::string>{"R -> R", "S(0) -> S(0)", "S(1) -> P", "P -> P"}));
  const Listed uneven(
      "graph @g(%x: input \"x\" f32[16, 60]) {\n  %y = aten::mean.dim(%x, dim = [1]) : f32[16]\n"
      "  return result \"y\" %y\n}",
      "8");
  EXPECT_EQ(uneven.Texts(), (std::set<std::string>{"R -> R", "S(0) -> S(0)", "P -> P"}));
}

}  // namespace
}  // namespace gt::strategies_test
