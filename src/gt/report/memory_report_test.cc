#include "gt/report/memory_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gt/base/byte_text.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::memory_report_test {
namespace {

using Json = nlohmann::json;

// A step whose forward saves one tensor for each layer; `extra` is before the backward.
std::string Layers(int count, const std::string& extra = "") {
  std::string text = "graph @g(%x: input \"x\" f32[2, 4]";
  for (int i = 0; i < count; ++i) {
    text += fmt::format(", %w{}: param \"layers.{}.w.weight\" f32[4]", i, i);
  }
  text += ") {\n";
  std::string before = "x";
  for (int i = 0; i < count; ++i) {
    text += fmt::format(
        "  %a{0} = aten::exp(%{1}) : f32[2, 4] {{module = \"layers.{0}.ffn\", recompute = "
        "must_save}}\n",
        i, before);
    before = fmt::format("a{}", i);
  }
  text += extra;
  text +=
      fmt::format("  %l = aten::sum(%{}) : f32[] {{module = \"head\", phase = loss}}\n", before);
  before = "x";
  for (int i = count - 1; i >= 0; --i) {
    text += fmt::format(
        "  %g{0} = aten::mul.Tensor(%{1}, %a{0}) : f32[2, 4] {{module = \"layers.{0}.ffn\", phase "
        "= backward}}\n",
        i, before);
    before = fmt::format("g{}", i);
  }
  return text + fmt::format("  return loss \"loss\" %l, result \"g\" %{}\n}}\n", before);
}

struct Measured {
  explicit Measured(const std::string& text) : graph(Parse(text)) {
    Verify(*graph);
    curve = MeasureMemory(*graph);
  }
  std::unique_ptr<Graph> graph;
  MemoryCurve curve;
};

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Equal layers are one row, with the numbers of the layers and how many there are.
TEST(MemoryReportTest, FoldsLayers) {
  Measured m(Layers(12));
  std::vector<MemoryRow> rows = RowsAtPeak(*m.graph, m.curve);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0], (MemoryRow{"layers.{0-11}.ffn", "aten::exp", "f32[2, 4]",
                                std::string(Spelling(Recompute::kMustSave)), MemoryCategory::kSaved,
                                12, 12 * 32}));
  EXPECT_EQ(rows[1], (MemoryRow{"layers.{0-11}.w.weight", "param", "f32[4]", "",
                                MemoryCategory::kParameter, 12, 12 * 16}));
}

// Layers that have more of the same, or of another size, are not equal.
TEST(MemoryReportTest, FoldsOnlyWhatIsEqual) {
  Measured m(Layers(6, R"(
  %e = aten::exp(%x) : f32[2, 4] {module = "layers.3.ffn", recompute = must_save}
  %f = aten::mul.Tensor(%e, %x) : f32[2, 4] {module = "f", phase = backward}
)"));
  m.curve.alive_at_peak.clear();
  for (size_t i = 0; i < m.curve.storages.size(); ++i) {
    if (m.curve.storages[i].value->type().sizes.size() == 2 &&
        m.curve.storages[i].category == MemoryCategory::kSaved) {
      m.curve.alive_at_peak.push_back(static_cast<int32_t>(i));
    }
  }
  std::vector<MemoryRow> rows = RowsAtPeak(*m.graph, m.curve);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].module, "layers.{0-2,4-5}.ffn");
  EXPECT_EQ(rows[0].count, 5);
  EXPECT_EQ(rows[1].module, "layers.3.ffn");
  EXPECT_EQ(rows[1].count, 2);
}

// Numbers inside of numbers fold as well, and only where every combination exists.
TEST(MemoryReportTest, FoldsNestedNumbers) {
  std::string text = "graph @g(";
  for (int layer = 0; layer < 3; ++layer) {
    for (int expert = 0; expert < 4; ++expert) {
      text += fmt::format("%w{0}_{1}: param \"layers.{0}.experts.{1}.w1\" f32[4], ", layer, expert);
    }
  }
  text +=
      "%o: param \"layers.0.experts.4.w1\" f32[4], %p: param \"rows.01\" f32[4]) {\n  return\n}";
  Measured m(text);
  std::vector<std::string> modules;
  for (const MemoryRow& row : RowsAtPeak(*m.graph, m.curve)) {
    modules.push_back(fmt::format("{} x{}", row.module, row.count));
  }
  EXPECT_EQ(modules, (std::vector<std::string>{"layers.{0-2}.experts.{0-3}.w1 x12",
                                               "layers.0.experts.4.w1 x1", "rows.01 x1"}));
}

// The table says where the peak is, what it is made of, and what is left out.
TEST(MemoryReportTest, Table) {
  Measured m(Layers(12));
  std::string table = MemoryTable(*m.graph, m.curve, 2);
  EXPECT_TRUE(
      table.starts_with("peak: 644 B on the CPU, while node 14 of 25 runs: aten::mul.Tensor "
                        "in layers.11.ffn (backward)\n"))
      << table;
  EXPECT_NE(table.find("  saved activations            384 B   59.6 %\n"), std::string::npos)
      << table;
  EXPECT_EQ(Count(table, "layers.{0-11}"), 2U);
  EXPECT_NE(table.find("all others"), std::string::npos);
  EXPECT_EQ(MemoryTable(*m.graph, m.curve, 100).find("all others"), std::string::npos);
  EXPECT_EQ(MemoryTable(*m.graph, m.curve, 0).find("tensors"), std::string::npos);
}

TEST(MemoryReportTest, Sizes) {
  EXPECT_EQ(ByteText(0), "0 B");
  EXPECT_EQ(ByteText(1023), "1023 B");
  EXPECT_EQ(ByteText(1536), "1.5 KiB");
  EXPECT_EQ(ByteText(int64_t{3} << 30), "3.00 GiB");
}

TEST(MemoryReportTest, JsonHoldsTheCurve) {
  Measured m(Layers(3));
  Json json = Json::parse(MemoryJson(*m.graph, m.curve));
  EXPECT_EQ(json["peak"]["bytes"], m.curve.peak);
  EXPECT_EQ(json["peak"]["module"], "layers.2.ffn");
  EXPECT_EQ(json["peak"]["phase"], "backward");
  EXPECT_EQ(json["during"].get<std::vector<int64_t>>(), m.curve.during);
  EXPECT_EQ(json["after"].get<std::vector<int64_t>>(), m.curve.after);
  EXPECT_EQ(json["phases"], Json::parse(R"([{"phase": "forward", "first": 0, "last": 2},
      {"phase": "loss", "first": 3, "last": 3}, {"phase": "backward", "first": 4, "last": 6}])"));
  int64_t categories = 0, tensors = 0;
  for (const Json& bytes : json["categories"]) categories += bytes.get<int64_t>();
  for (const Json& row : json["tensors"]) tensors += row["bytes"].get<int64_t>();
  EXPECT_EQ(categories, m.curve.peak);
  EXPECT_EQ(tensors, m.curve.peak);
}

void ExpectWellFormed(const std::string& svg) {
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(Count(svg, "<text"), Count(svg, "</text>"));
  // In texts both are escaped.
  EXPECT_EQ(Count(svg, "<"), Count(svg, ">"));
}

TEST(MemoryReportTest, SvgShowsAreasPhasesAndThePeak) {
  Measured m(Layers(12));
  std::string svg = MemorySvg(*m.graph, m.curve, "a <small> model & more");
  ExpectWellFormed(svg);
  EXPECT_NE(svg.find("a &lt;small&gt; model &amp; more"), std::string::npos);
  EXPECT_NE(svg.find("peak 644 B: aten::mul.Tensor in layers.11.ffn (backward)"),
            std::string::npos);
  EXPECT_EQ(Count(svg, "class=\"phase\""), 3U);
  EXPECT_EQ(Count(svg, "class=\"peak\""), 1U);
  // Parameters, inputs, saved, outputs, temporaries.
  EXPECT_EQ(Count(svg, "class=\"area\""), 5U);
}

// The first area of the curve %x -> %a -> %b is the input's, from edge to edge at its height.
TEST(MemoryReportTest, SvgAreasHaveTheRightHeights) {
  Measured m(R"(graph @g(%x: input "x" f32[8]) {
  %a = aten::neg(%x) : f32[8]
  %b = aten::neg(%a) : f32[8]
  return result "b" %b
})");
  std::string svg = MemorySvg(*m.graph, m.curve, "");
  // 96 bytes are at 1 / 1.08 of 340 pixels above 410: 32 bytes take 104.9.
  EXPECT_NE(svg.find("d=\"M70.0 305.1H830.0V410.0H70.0Z\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("cy=\"95.2\""), std::string::npos) << svg;
}

// A long step is drawn in slices, and the highest node is in the picture all the same.
TEST(MemoryReportTest, SvgOfALongStepStaysSmall) {
  Graph graph("long");
  TensorType small = ContiguousType(DType::kFloat32, Device(), {Dim(8)}, graph.shapes());
  TensorType large = ContiguousType(DType::kFloat32, Device(), {Dim(8000)}, graph.shapes());
  Value* value = graph.AddInput(InputRole::kInput, "x", small);
  const Operator* neg = FindOperator("aten::neg");
  for (int i = 0; i < 20'000; ++i) {
    Graph::NodeSpec spec;
    spec.op = neg;
    spec.operands = {value};
    spec.args = {OperandRef{0}};
    Graph::Typed typed;
    typed.results = {i == 12'345 ? large : small};
    value = graph.InsertTyped(std::move(spec), std::move(typed))->result();
  }
  MemoryCurve curve = MeasureMemory(graph);
  EXPECT_EQ(curve.peak, 32 + 32 + 32000);
  std::string svg = MemorySvg(graph, curve, "long");
  ExpectWellFormed(svg);
  EXPECT_LT(svg.size(), 100'000U);
  // An area reaches up to the mark of the peak.
  EXPECT_NE(svg.find("V95.2H"), std::string::npos);
}

// Names with bytes that are not valid text are shown as text.
TEST(MemoryReportTest, LineNamesWhatMatters) {
  MemoryCurve curve;
  curve.peak = 1000 << 20;
  auto set = [&curve](MemoryCategory category, int64_t mebibytes) {
    curve.at_peak[static_cast<size_t>(category)] = mebibytes << 20;
  };
  set(MemoryCategory::kParameter, 300);
  set(MemoryCategory::kSaved, 690);
  set(MemoryCategory::kBuffer, 4);
  set(MemoryCategory::kInput, 6);
  EXPECT_EQ(MemoryLine(curve),
            "1000.0 MiB: parameters 300.0 MiB, saved activations 690.0 MiB, others 10.0 MiB");
  EXPECT_EQ(MemoryLine({}), "0 B");
}

TEST(MemoryReportTest, OddNames) {
  Measured m(R"(graph @g(%w: param "\xff<\x01" f32[4]) {
  %a = aten::neg(%w) : f32[4] {module = "\xc3(&\x02"}
  return result "a" %a
})");
  EXPECT_TRUE(Json::accept(MemoryJson(*m.graph, m.curve)));
  std::string svg = MemorySvg(*m.graph, m.curve, "\xff\x01");
  ExpectWellFormed(svg);
  EXPECT_EQ(std::count_if(svg.begin(), svg.end(), [](char c) { return c > 0 && c < ' '; }),
            std::count(svg.begin(), svg.end(), '\n'));
  EXPECT_NO_THROW((void)Json(svg).dump());  // valid UTF-8
}

TEST(MemoryReportTest, GraphWithoutNodes) {
  Measured m("graph @g() {\n  return\n}");
  EXPECT_EQ(MemoryTable(*m.graph, m.curve), "peak: 0 B on the CPU\n");
  ExpectWellFormed(MemorySvg(*m.graph, m.curve, "nothing"));
  EXPECT_EQ(Json::parse(MemoryJson(*m.graph, m.curve))["peak"]["bytes"], 0);
}

}  // namespace
}  // namespace gt::memory_report_test
