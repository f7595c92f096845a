// Placements as tables and pictures.
#include "gt/report/placement_report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/placement/plan.h"
#include "gt/report/placement_rows.h"
#include "gt/report/placement_svg.h"
#include "gt/testing/small_placement.h"
#include "gt/testing/temp_folder.h"

namespace gt::placement_report_test {
namespace {

using testing::SmallPlacement;
using testing::SmallStep;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Every element is closed in the reverse order of opening.
void ExpectWellFormed(const std::string& svg) {
  static const std::regex kTag("<(/?)([a-z]+)([^<>]*?)(/?)>");
  std::vector<std::string> open;
  size_t tags = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kTag), end; it != end; ++it, ++tags) {
    if ((*it)[1] == "/") {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*it)[2]);
      open.pop_back();
    } else if ((*it)[4] != "/") {
      open.push_back((*it)[2]);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(tags, Count(svg, "<"));
}

TEST(PlacementRows, LayersThatArePlacedAlikeShareARow) {
  const SmallPlacement placed(SmallStep(5, 4096, 1024), "2x2");
  const std::vector<PlacedModule> modules = PlacedModules(placed.problem(), placed.placement());
  ASSERT_EQ(modules.size(), 1u);
  EXPECT_EQ(modules[0].module, "layers.*");
  EXPECT_EQ(modules[0].count, 5);
  const placement::PlanCost& cost = placed.placement().cost;
  EXPECT_NEAR(modules[0].kernel_us, cost.forward_kernels + cost.backward_kernels, 1e-6);
  const std::vector<PlacedInput> inputs = PlacedInputs(placed.problem(), placed.placement());
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[0].name, "layers.*.weight");
  EXPECT_EQ(inputs[0].count, 5);
  EXPECT_EQ(inputs[0].type, "f32[1024, 1024]");
  EXPECT_EQ(inputs[1].name, "x");
}

TEST(PlacementRows, LayersThatArePlacedInDifferentWaysDoNot) {
  const SmallPlacement placed(SmallStep(4, 4096, 1024), "4",
                              {.pins = {{"layers.0.weight", "S(1)"},
                                        {"layers.1.weight", "R"},
                                        {"layers.2.weight", "R"},
                                        {"layers.3.weight", "R"}}});
  ASSERT_TRUE(placed.placement().feasible);
  const std::vector<PlacedInput> inputs = PlacedInputs(placed.problem(), placed.placement());
  ASSERT_EQ(inputs.size(), 4u);
  EXPECT_EQ(inputs[0].name, "layers.0.weight");
  EXPECT_EQ(inputs[0].placed.layout, "S(1)");
  EXPECT_EQ(inputs[0].bytes, 1024 * 1024);
  EXPECT_EQ(inputs[1].name, "layers.*.weight");
  EXPECT_EQ(inputs[1].count, 3);
  EXPECT_EQ(inputs[1].bytes, 3 * 4 * 1024 * 1024);
}

// The layers after the first have another name and are computed like it.
TEST(PlacementRows, ModulesOfDifferentKindsDoNotShareARow) {
  std::string step = SmallStep(6, 4096, 1024);
  for (size_t at = 0; (at = step.find("layers.5", at)) != std::string::npos;) {
    step.replace(at, 8, "head");
  }
  const SmallPlacement placed(step, "4");
  const std::vector<PlacedModule> modules = PlacedModules(placed.problem(), placed.placement());
  ASSERT_EQ(modules.size(), 2u);
  EXPECT_EQ(modules[0].module, "layers.*");
  EXPECT_EQ(modules[0].count, 5);
  EXPECT_EQ(modules[1].module, "head");
  EXPECT_EQ(modules[1].count, 1);
  EXPECT_NEAR(modules[0].kernel_us, 5 * modules[1].kernel_us, 1e-6);
  const std::vector<PlacedInput> inputs = PlacedInputs(placed.problem(), placed.placement());
  ASSERT_EQ(inputs.size(), 4u);
  EXPECT_EQ(inputs[0].count, 5);
  EXPECT_EQ(inputs[1].name, "head.weight");
}

TEST(PlacementRows, SayWhatAnAxisCuts) {
  const SmallPlacement placed(SmallStep(2, 4096, 1024), "2x4",
                              {.pins = {{"x", "S(0)R"}, {"layers.0.weight", "RS(1)"}}});
  ASSERT_TRUE(placed.placement().feasible);
  const std::vector<PlacedInput> inputs = PlacedInputs(placed.problem(), placed.placement());
  for (const PlacedInput& input : inputs) {
    if (input.name == "x") {
      EXPECT_EQ(input.placed.axes,
                (std::vector<AxisCut>{{AxisCut::Kind::kBatch, 0, 4096}, {AxisCut::Kind::kWhole}}));
    } else if (input.name == "layers.0.weight") {
      EXPECT_EQ(input.placed.axes,
                (std::vector<AxisCut>{{AxisCut::Kind::kWhole}, {AxisCut::Kind::kOther, 1, 1024}}));
    }
  }
}

TEST(PlacementTable, HasTotalsParametersAndModules) {
  const SmallPlacement placed(SmallStep(5, 4096, 1024), "2x2");
  const std::string table = PlacementTable(placed.problem(), placed.placement(), true);
  EXPECT_EQ(Count(table, "ms predicted"), 1u);
  EXPECT_EQ(Count(table, "layers.*.weight"), 1u);
  EXPECT_EQ(Count(table, "no rule"), 0u);
}

// Graphs of all kinds: with nodes without results, without inputs, with sizes that a step reads, with no
// node at all.
std::vector<std::string> GraphsOfTests() {
  std::vector<std::string> texts;
  for (const char* folder : {"/src/gt", "/tests"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(GT_SOURCE_DIR) + folder)) {
      if (entry.path().extension() != ".gtir") continue;
      const std::string text = testing::ReadText(entry.path());
      for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
        end = text.find("\n// -----", begin);
        texts.push_back(text.substr(begin, end - begin));
      }
    }
  }
  return texts;
}

TEST(PlacementTable, ShowsEveryGraphThatCanBePlaced) {
  int shown = 0, refused = 0, with_reads = 0;
  for (const std::string& text : GraphsOfTests()) {
    SCOPED_TRACE(text);
    try {
      const SmallPlacement placed(text, "2x2", {}, {.work_limit = 1e6});
      if (!placed.placement().feasible) continue;
      PlacementTable(placed.problem(), placed.placement(), true);
      PlacementSvg(placed.problem(), placed.placement(), "a job");
      const placement::Plan plan = MakePlan(placed.problem(), placed.placement(), "a job");
      placement::PlanFromJson(ToJson(plan), "plan.json");
      ++shown;
      with_reads += text.find("\n  gt::read_ints") != std::string::npos ? 1 : 0;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(shown, 500);
  EXPECT_GT(with_reads, 40);
  EXPECT_LT(refused, shown / 10);
}

TEST(ExplainPlacement, ListsEveryWayWithTheChosenOneFirst) {
  const SmallPlacement placed(SmallStep(2, 4096, 1024), "4");
  const std::string text =
      ExplainPlacement(placed.problem(), placed.placement(), "layers.0.weight", {});
  EXPECT_EQ(Count(text, "(chosen)"), 1u);
  EXPECT_LT(text.find("(chosen)"), text.find('\n', text.find("way\n") + 4));
  for (const char* way : {"  R", "  S(0)", "  S(1)"}) EXPECT_EQ(Count(text, way), 1u) << text;
  try {
    ExplainPlacement(placed.problem(), placed.placement(), "nothing", {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadPin);
  }
}

// A way that needs more memory than there is is no rival.
TEST(ExplainPlacement, RespectsTheMemory) {
  const SmallPlacement placed(SmallStep(2, 4096, 1024), "4");
  placement::SearchOptions search;
  search.memory.limit = SmallestPlacement(placed.problem(), {}).peak_bytes;
  const placement::Placement small = Search(placed.problem(), search);
  ASSERT_TRUE(small.feasible);
  const std::string free = ExplainPlacement(placed.problem(), small, "layers.0.weight", {});
  const std::string limited = ExplainPlacement(placed.problem(), small, "layers.0.weight", search);
  EXPECT_EQ(Count(free, "do not fit"), 0u) << free;
  EXPECT_EQ(Count(limited, "other ways do not fit the memory"), 1u) << limited;
}

TEST(PlacementSvg, IsWellFormedAndNamesEverything) {
  const SmallPlacement placed(SmallStep(5, 4096, 1024), "2x2");
  const std::string svg = PlacementSvg(placed.problem(), placed.placement(), "a job");
  ExpectWellFormed(svg);
  EXPECT_EQ(Count(svg, ">a job<"), 1u);
  EXPECT_EQ(Count(svg, "mesh 2x2;"), 1u);
  EXPECT_EQ(Count(svg, ">layers.* x5<"), 1u);
  EXPECT_EQ(Count(svg, "<title>layers.*.weight f32[1024, 1024]</title>"), 1u);
  EXPECT_EQ(Count(svg, ">axis 0 of 2<"), 1u);
  EXPECT_EQ(Count(svg, "class=\"row\""), 3u) << "x, dy, layers";
  EXPECT_EQ(Count(svg, "class=\"cut\""), 6u);
  EXPECT_EQ(Count(svg, "class=\"kernels\""), 1u);
  EXPECT_EQ(svg, PlacementSvg(placed.problem(), placed.placement(), "a job"));
}

TEST(PlacementSvg, EscapesNames) {
  const SmallPlacement placed(SmallStep(1, 64, 256, "a<b>&."), "2");
  const std::string svg = PlacementSvg(placed.problem(), placed.placement(), "<title> & more");
  ExpectWellFormed(svg);
  EXPECT_EQ(Count(svg, "a&lt;b&gt;&amp;.0"), 3u) << svg;
  EXPECT_EQ(Count(svg, "&lt;title&gt; &amp; more"), 1u);
}

// Rows do not overlap, and nothing is wider than the picture.
TEST(PlacementSvg, IsReadable) {
  const SmallPlacement placed(SmallStep(1, 64, 256, std::string(80, 'm') + "."), "2x2x2x2", {},
                              {.overlap = false});
  const std::string svg = PlacementSvg(placed.problem(), placed.placement(), std::string(300, 't'));
  static const std::regex kText(
      "<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" text-anchor=\"([a-z]+)\"([^>]*)>([^<]*)</text>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), kText), end; it != end; ++it) {
    const double x = std::stod((*it)[1]);
    const std::string attributes = (*it)[4];
    const double wide = attributes.find("15") != std::string::npos ? 9 : 6.2;
    const double width = wide * static_cast<double>((*it)[5].length());
    EXPECT_LE(x + ((*it)[3] == "middle" ? width / 2 : width), 1000) << (*it)[0];
  }
}

TEST(PlacementLines, HaveALineForEachLayout) {
  const std::unique_ptr<Graph> graph = Parse(R"gtir(graph @step(
    %h.0.w: param "h.0.w" f32[8, 4] placement "S(0)R",
    %h.1.w: param "h.1.w" f32[8, 4] placement "S(0)R",
    %norm: param "norm" f32[4] placement "RR",
    %tokens: input "tokens" i64[2, 8] placement "S(0)S(0)",
    %count: input "count" f32[] placement "RR") {
  return result "norm" %norm
})gtir");
  EXPECT_EQ(Join(PlacementLines(*graph), "\n"),
            "  parameters S(0)R             256 B  h.{0-1}.w\n"
            "  parameters RR                 16 B  norm\n"
            "  batch      S(0)S(0)          128 B  tokens");
}

}  // namespace
}  // namespace gt::placement_report_test
