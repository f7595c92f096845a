#include "gt/placement/folding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gt/ir/text.h"
#include "gt/testing/layered_step.h"

namespace gt::folding_test {
namespace {

using namespace placement;
using gt::testing::LayeredStep;

// A graph, folded, with its classes by the name of their first member.
struct Folded {
  explicit Folded(const std::string& text, bool fold = true)
      : graph(Parse(text, "test.gtir")), folding(Fold(*graph, fold)) {}

  int32_t IndexOf(const std::string& name) const {
    for (size_t i = 0; i < folding.classes.size(); ++i) {
      if (folding.classes[i].name() == name) return static_cast<int32_t>(i);
    }
    ADD_FAILURE() << "no class begins with " << name;
    return 0;
  }
  int32_t CountOf(const std::string& name) const {
    return folding.classes[static_cast<size_t>(IndexOf(name))].count();
  }
  // Of the edge between the classes of these; 0 if there is none.
  int32_t EdgeCount(const std::string& from, const std::string& to, int32_t operand) const {
    for (const FoldedEdge& edge : folding.edges) {
      if (edge.from == IndexOf(from) && edge.to == IndexOf(to) && edge.operand == operand) {
        return edge.count;
      }
    }
    return 0;
  }

  std::unique_ptr<Graph> graph;
  Folding folding;
};

// Every node of a layer is one class for all layers, forward and backward apart.
TEST(Folding, FindsEqualLayers) {
  const Folded folded(LayeredStep{.layers = 4}.Text());
  for (const char* name : {"b0", "t0", "rows0", "mm0", "h0", "r0", "x0"}) {
    EXPECT_EQ(folded.CountOf(name), 4) << name;
  }
  for (const char* name : {"dr3", "dh3", "dw_mm3", "dw3", "dx_mm3", "dx3"}) {
    EXPECT_EQ(folded.CountOf(name), 4) << name;
  }
}

// Parameters that equal nodes take are one class, and so are their gradients.
TEST(Folding, FoldsParametersAndGradients) {
  const Folded folded(LayeredStep{.layers = 3}.Text());
  EXPECT_EQ(folded.CountOf("w0"), 3);
  EXPECT_EQ(folded.CountOf("x"), 1);
  int32_t gradients = 0;
  for (const FoldedOutput& output : folded.folding.outputs) {
    if (output.role != OutputRole::kGradient) continue;
    EXPECT_EQ(output.input, folded.IndexOf("w0"));
    gradients += output.count;
  }
  EXPECT_EQ(gradients, 3);
}

// The first layer takes what was there before and all others what the layer before made.
TEST(Folding, CountsEdgesAcrossLayers) {
  const Folded folded(LayeredStep{.layers = 4}.Text());
  EXPECT_EQ(folded.EdgeCount("first", "rows0", 0), 1);
  EXPECT_EQ(folded.EdgeCount("x0", "rows0", 0), 3);
  EXPECT_EQ(folded.EdgeCount("w0", "b0", 0), 4);
  EXPECT_EQ(folded.EdgeCount("r0", "x0", 1), 4);
  EXPECT_EQ(folded.EdgeCount("r0", "dr3", 1), 4);
}

// The last layer's result is used by nothing of a next layer, so that it is told apart.
TEST(Folding, GroupsMembersByTheirUses) {
  const Folded folded(LayeredStep{.layers = 4}.Text());
  std::vector<std::pair<size_t, int32_t>> groups;  // members, places
  for (const FoldedUses& uses : folded.folding.uses) {
    if (uses.from == folded.IndexOf("x0")) groups.emplace_back(uses.members.size(), uses.places);
  }
  std::sort(groups.begin(), groups.end());
  // The result alone; the next layer's matmul, its sum and its weight's gradient.
  EXPECT_EQ(groups, (std::vector<std::pair<size_t, int32_t>>{{1, 1}, {3, 3}}));
}

// Counts of uses are those of all members together.
TEST(Folding, UsesAddUpToEdges) {
  const Folded folded(LayeredStep{.layers = 5}.Text());
  int64_t edges = 0, uses = 0;
  for (const FoldedEdge& edge : folded.folding.edges) edges += edge.count;
  for (const FoldedUses& alike : folded.folding.uses) {
    for (const FoldedEdge& edge : alike.uses) uses += edge.count;
  }
  EXPECT_EQ(edges, uses);
}

// A layer that takes an input of the graph is told from those that take another layer's result.
TEST(Folding, LayersAtInputsAreAtTheBoundary) {
  std::string text = LayeredStep{.layers = 4}.Text();
  for (size_t at; (at = text.find("%first,")) != std::string::npos;) text.replace(at, 6, "%x");
  const Folded folded(text);
  EXPECT_EQ(folded.CountOf("rows0"), 1);
  EXPECT_EQ(folded.CountOf("x0"), 1);
  EXPECT_EQ(folded.CountOf("rows1"), 3);
  EXPECT_EQ(folded.CountOf("x1"), 3);
}

// Chunks of a sequence are alike wherever they begin, but not the last and shorter one.
TEST(Folding, FoldsChunks) {
  std::string text = "graph @g(%x: input \"x\" f32[8, 22]) {\n";
  std::string results;
  for (int i = 0; i < 5; ++i) {
    const int length = i < 4 ? 5 : 2;
    text += fmt::format(
        "  %s{0} = aten::slice.Tensor(%x, dim = 1, start = {1}, end = {2}) : f32[8, {3}]{{22, 1}} "
        "offset [{1}]\n",
        i, 5 * i, 5 * i + length, length);
    std::string last = "s";
    for (const char* op : {"relu", "neg", "exp", "tanh", "sigmoid"}) {
      text += fmt::format("  %{0}{1} = aten::{0}(%{2}{1}) : f32[8, {3}]\n", op, i, last, length);
      last = op;
    }
    results += fmt::format("{0} result \"{1}\" %sigmoid{1}", i == 0 ? "" : ",", i);
  }
  const Folded folded(text + "  return" + results + "\n}\n");
  EXPECT_EQ(folded.CountOf("s0"), 4);
  EXPECT_EQ(folded.CountOf("sigmoid0"), 4);
  EXPECT_EQ(folded.CountOf("s4"), 1);
}

TEST(Folding, KeepsWhatIsNotRepeated) {
  const Folded folded(LayeredStep{.layers = 1}.Text());
  for (const FoldedClass& of : folded.folding.classes) EXPECT_EQ(of.count(), 1) << of.name();
}

// A layer of another width is no repetition.
TEST(Folding, TellsSizesApart) {
  const Folded folded(R"(graph @g(%a: input "a" f32[8, 8], %b: input "b" f32[8, 16]) {
    %a1 = aten::relu(%a) : f32[8, 8]
    %a2 = aten::neg(%a1) : f32[8, 8]
    %a3 = aten::exp(%a2) : f32[8, 8]
    %a4 = aten::neg(%a3) : f32[8, 8]
    %a5 = aten::tanh(%a4) : f32[8, 8]
    %a6 = aten::sigmoid(%a5) : f32[8, 8]
    %b1 = aten::relu(%b) : f32[8, 16]
    %b2 = aten::neg(%b1) : f32[8, 16]
    %b3 = aten::exp(%b2) : f32[8, 16]
    %b4 = aten::neg(%b3) : f32[8, 16]
    %b5 = aten::tanh(%b4) : f32[8, 16]
    %b6 = aten::sigmoid(%b5) : f32[8, 16]
    return result "a" %a6, result "b" %b6
  })");
  for (const FoldedClass& of : folded.folding.classes) EXPECT_EQ(of.count(), 1) << of.name();
}

TEST(Folding, CanBeSwitchedOff) {
  const Folded folded(LayeredStep{.layers = 4}.Text(), /*fold=*/false);
  EXPECT_EQ(folded.folding.classes.size(),
            folded.graph->inputs().size() + static_cast<size_t>(folded.graph->node_count()));
}

}  // namespace
}  // namespace gt::folding_test
