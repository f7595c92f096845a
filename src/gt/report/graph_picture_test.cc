#include "gt/report/graph_picture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::graph_picture_test {
namespace {

constexpr std::string_view kMoe = "layers.1.moe";

// A mixture-of-experts region cut into chunks, as the producers of chunks leave it.
class ChunkedMoe {
 public:
  explicit ChunkedMoe(int chunks) : chunks_(chunks) {
    Add(R"(graph @step(%x: input "x" f32[{}, 4], %gate: param "{}.router.gate.weight" f32[4, 4],)"
        R"( %w: param "{}.experts.w1" f32[4, 4], %counts: buffer "{}.tokens_per_expert" f32[8]) {{)",
        2 * chunks, kMoe, kMoe, kMoe);
    Add(R"(%n = aten::exp(%x) : f32[{}, 4] {{module = "layers.1.ffn_norm"}})", 2 * chunks);
    Add("%g = _c10d_functional::all_gather_into_tensor(%gate, group_size = 2, group_name = "
        "\"fsdp\") : f32[8, 4] {}",
        In("router.gate"));
    Add("%gw = _c10d_functional::wait_tensor(%g) : f32[8, 4] {}", In("router.gate"));
    Add("%gt = aten::t(%gw) : f32[4, 8]{{1, 4}} {}", In("router.gate"));
    for (int i = 0; i < chunks; ++i) AddSplit(i);
    for (int i = 0; i < chunks; ++i) AddChunk(i);
    AddEnd();
  }
  const std::string& text() const { return text_; }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  static std::string In(std::string_view part, std::string_view more = "") {
    return fmt::format(R"({{module = "{}{}{}"{}}})", kMoe, part.empty() ? "" : ".", part, more);
  }
  static std::string Body(int i, std::string_view part, std::string_view more = "") {
    return In(part,
              fmt::format(R"({}, chunk = {{id = {}, region = "{}", role = body}})", more, i, kMoe));
  }
  static std::string Boundary(std::string_view role) {
    return In("", fmt::format(R"(, chunk = {{region = "{}", role = {}}})", kMoe, role));
  }

  void AddSplit(int i) {
    Add("%p{} = aten::slice.Tensor(%n, dim = 0, start = {}, end = {}) : f32[2, 4]{} {}", i, 2 * i,
        2 * i + 2, i > 0 ? fmt::format(" offset [{}]", 8 * i) : "", Boundary("split_boundary"));
  }

  void AddChunk(int i) {
    Add("%r{0} = aten::mm(%p{0}, %gt) : f32[2, 8] {1}", i, Body(i, "router"));
    Add("%s{0} = aten::sum.dim_IntList(%r{0}, dim = [0]) : f32[8] {1}", i, Body(i, "router"));
    Add("%c{0} = aten::add.Tensor(%{1}, %s{0}) : f32[8] {2}", i,
        i > 0 ? fmt::format("c{}", i - 1) : "counts", Body(i, ""));
    Add("%k{0} = aten::relu(%r{0}) : f32[2, 8] {1}", i, Body(i, "shared_experts"));
    Add("%d{0} = aten::relu(%p{0}) : f32[2, 4] {1}", i, Body(i, "", ", ep = dispatch"));
    AddExchange(i, "a", "d", ", ep = dispatch, exchange = exchange");
    Add("%e{0} = aten::mm(%aw{0}, %w) : f32[2, 4] {1}", i, Body(i, "experts"));
    Add("%f{0} = aten::silu(%e{0}) : f32[2, 4] {1}", i, Body(i, "experts"));
    AddExchange(i, "b", "f", ", ep = combine, exchange = exchange");
    Add("%m{0} = aten::cat([%bw{0}, %k{0}], dim = 1) : f32[2, 12] {1}", i,
        Body(i, "", ", ep = combine"));
  }

  void AddExchange(int i, std::string_view name, std::string_view of, std::string_view meta) {
    Add("%{0}{1} = _c10d_functional::all_to_all_single(%{2}{1}, output_split_sizes = [1, 1], "
        "input_split_sizes = [1, 1], group_name = \"ep\") : f32[2, 4] {3}",
        name, i, of, Body(i, "", meta));
    Add("%{0}w{1} = _c10d_functional::wait_tensor(%{0}{1}) : f32[2, 4] {2}", name, i,
        Body(i, "", meta));
  }

  void AddEnd() {
    std::string parts;
    for (int i = 0; i < chunks_; ++i) parts += fmt::format("{}%m{}", i > 0 ? ", " : "", i);
    Add("%y = aten::cat([{}], dim = 0) : f32[{}, 12] {}", parts, 2 * chunks_,
        Boundary("materialization"));
    Add(R"(%z = aten::relu(%y) : f32[{}, 12] {{module = "layers.2"}})", 2 * chunks_);
    Add(R"(return result "z" %z, update "{}.tokens_per_expert" %c{})", kMoe, chunks_ - 1);
    Add("}}");
  }

  int chunks_;
  std::string text_;
};

std::string Draw(const std::string& text, PictureOptions options) {
  std::unique_ptr<Graph> graph = Parse(text);
  Verify(*graph);
  return GraphPicture(*graph, options);
}

std::string DrawMoe(const std::string& text, PicturePhase phase = PicturePhase::kForward) {
  return Draw(text, {.module_fqn = std::string(kMoe), .phase = phase, .title = ""});
}

std::vector<std::smatch> Matches(const std::string& text, const std::string& pattern) {
  std::regex expression(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), expression), std::sregex_iterator()};
}

// First lines of what is shown when a box is pointed at.
std::vector<std::string> Titles(const std::string& svg) {
  std::vector<std::string> titles;
  for (const std::smatch& match : Matches(svg, "<g class=\"box\"><title>([^\n<]*)"))
    titles.push_back(match[1]);
  std::sort(titles.begin(), titles.end());
  return titles;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

struct Rectangle {
  double left, top, right, bottom;
};

std::vector<Rectangle> BoxRectangles(const std::string& svg) {
  std::vector<Rectangle> boxes;
  for (const std::smatch& match :
       Matches(svg,
               "</title>\n<rect x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" width=\"([-0-9.]+)\" "
               "height=\"([-0-9.]+)\"")) {
    double x = std::stod(match[1]), y = std::stod(match[2]);
    boxes.push_back({x, y, x + std::stod(match[3]), y + std::stod(match[4])});
  }
  return boxes;
}

// What must hold for every picture: boxes are inside it and do not overlap, and edges point
// downwards.
void ExpectReadable(const std::string& svg) {
  std::vector<std::smatch> size = Matches(svg, "<svg [^>]*viewBox=\"0 0 ([0-9]+) ([0-9]+)\"");
  ASSERT_EQ(size.size(), 1u);
  std::vector<Rectangle> boxes = BoxRectangles(svg);
  ASSERT_EQ(boxes.size(), Titles(svg).size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Rectangle& a = boxes[i];
    EXPECT_GE(a.left, 0);
    EXPECT_LE(a.right, std::stod(size[0][1]));
    EXPECT_LE(a.bottom, std::stod(size[0][2]));
    for (size_t k = 0; k < i; ++k) {
      const Rectangle& b = boxes[k];
      EXPECT_TRUE(a.right < b.left || b.right < a.left || a.bottom < b.top || b.bottom < a.top)
          << "boxes " << i << " and " << k << " overlap in\n"
          << svg;
    }
  }
  std::vector<std::smatch> edges =
      Matches(svg, "<path class=\"edge\" d=\"M[-0-9.]+ ([-0-9.]+)[^\"]*V([-0-9.]+)\"");
  EXPECT_EQ(edges.size(), Count(svg, "class=\"edge\""));
  for (const std::smatch& edge : edges) EXPECT_LT(std::stod(edge[1]), std::stod(edge[2]));
}

template <typename Function>
void ExpectFailure(Function function, ErrorCode code, const std::string& part) {
  try {
    function();
    FAIL() << "expected an error that says " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.what();
  }
}

// Every chunk has a column with the same boxes; what all share is drawn once.
TEST(GraphPicture, ChunksStandInColumns) {
  for (int chunks : {2, 3}) {
    std::string svg = DrawMoe(ChunkedMoe(chunks).text());
    ExpectReadable(svg);
    std::vector<std::string> expected = {"all_gather: router",
                                         "buffer tokens_per_expert",
                                         "concatenate chunks",
                                         "from layers.1.ffn_norm",
                                         "parameter experts.w1",
                                         "parameter router.gate.weight",
                                         "split",
                                         "to layers.2"};
    for (int i = 0; i < chunks; ++i) {
      for (const char* title :
           {"all_to_all: combine, tokens", "all_to_all: dispatch, tokens", "combine", "dispatch",
            "experts", "router", "shared_experts", "update tokens_per_expert"}) {
        expected.emplace_back(title);
      }
      EXPECT_EQ(Count(svg, fmt::format(">chunk {}<", i)), 1u);
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(Titles(svg), expected);
    EXPECT_EQ(Count(svg, "class=\"lane\""), static_cast<size_t>(chunks));
  }
}

// Columns are where their chunk's boxes are.
TEST(GraphPicture, BoxesOfAChunkStandInsideItsColumn) {
  std::string svg = DrawMoe(ChunkedMoe(3).text());
  std::vector<std::smatch> lanes =
      Matches(svg, "class=\"lane\" x=\"([-0-9.]+)\" y=\"[-0-9.]+\" width=\"([-0-9.]+)\"");
  ASSERT_EQ(lanes.size(), 3u);
  std::vector<std::smatch> experts =
      Matches(svg,
              "<title>experts\n%e([0-9])[^<]*</title>\n<rect x=\"([-0-9.]+)\" y=\"[-0-9.]+\" "
              "width=\"([-0-9.]+)\"");
  ASSERT_EQ(experts.size(), 3u);
  for (const std::smatch& match : experts) {
    const std::smatch& lane = lanes[std::stoul(match[1])];
    EXPECT_GE(std::stod(match[2]), std::stod(lane[1]));
    EXPECT_LE(std::stod(match[2]) + std::stod(match[3]), std::stod(lane[1]) + std::stod(lane[2]));
  }
}

TEST(GraphPicture, IsTheSameForTheSameGraph) {
  std::string text = ChunkedMoe(2).text();
  std::string svg = DrawMoe(text);
  EXPECT_EQ(svg, DrawMoe(text));
  EXPECT_EQ(svg, DrawMoe(Print(*Parse(text))));
}

// Boxes say what is in them, and list their nodes when pointed at.
TEST(GraphPicture, BoxesAreDescribed) {
  std::string svg = DrawMoe(ChunkedMoe(2).text());
  EXPECT_EQ(Count(svg, ">mm, silu</text>"), 2u);
  EXPECT_EQ(Count(svg, "\n%e0 f32[2, 4] = aten::mm\n%f0 f32[2, 4] = aten::silu</title>"), 1u);
  EXPECT_EQ(Count(svg, ">group fsdp</text>"), 1u);
  EXPECT_EQ(Count(svg, ">slice x2</text>"), 1u);
  EXPECT_EQ(Count(svg, ">all_to_all</text>"), 1u) << "the legend";
}

std::string InModule(std::string_view name) { return fmt::format("{{module = \"m.{}\"}}", name); }

// A path that leaves a module and returns makes two boxes of it: one would depend on itself.
TEST(GraphPicture, BoxesNeverNeedEachOther) {
  std::string svg = Draw(fmt::format("graph @g(%x: input \"x\" f32[2]) {{\n"
                                     "  %a = aten::exp(%x) : f32[2] {0}\n"
                                     "  %b = aten::neg(%a) : f32[2] {1}\n"
                                     "  %c = aten::mul.Tensor(%a, %b) : f32[2] {0}\n"
                                     "  %d = aten::neg(%c) : f32[2] {0}\n"
                                     "  return result \"d\" %d\n}}\n",
                                     InModule("one"), InModule("two")),
                         {.module_fqn = "m", .title = ""});
  ExpectReadable(svg);
  EXPECT_EQ(Titles(svg),
            (std::vector<std::string>{"input x", "one", "one", "result of the step", "two"}));
}

// What waits for nothing is in the box that uses it.
TEST(GraphPicture, NodesWithoutOperandsJoinTheirUsers) {
  std::string svg = Draw(
      fmt::format("graph @g(%x: input \"x\" f32[2]) {{\n"
                  "  %z = aten::zeros(size = [2], dtype = f32, device = \"cpu\") : f32[2] {1}\n"
                  "  %a = aten::exp(%x) : f32[2] {0}\n"
                  "  %b = aten::mul.Tensor(%a, %z) : f32[2] {1}\n"
                  "  return result \"b\" %b\n}}\n",
                  InModule("one"), InModule("two")),
      {.module_fqn = "m", .title = ""});
  EXPECT_EQ(Titles(svg), (std::vector<std::string>{"input x", "one", "result of the step", "two"}));
}

// Random graphs over few modules, where paths often leave and return.
TEST(GraphPicture, RandomGraphsCanBeDrawn) {
  std::mt19937 random(7);
  auto below = [&random](int limit) { return static_cast<int>(random() % limit); };
  for (int round = 0; round < 8; ++round) {
    std::string text = "graph @g(%n0: input \"x\" f32[2]) {\n";
    const int nodes = 1 + below(36);
    for (int i = 1; i <= nodes; ++i) {
      const bool backward = i > nodes / 2;
      std::string meta = backward ? ", phase = backward" : "";
      if (int id = below(5) - 2; id >= 0) {
        meta += fmt::format(", chunk = {{id = {}, region = \"m\", role = body{}}}", id,
                            backward ? ", backward" : "");
      }
      text +=
          fmt::format("  %n{} = aten::mul.Tensor(%n{}, %n{}) : f32[2] {{module = \"m.{}\"{}}}\n", i,
                      below(i), i - 1 - below(std::min(i, 4)), below(3), meta);
    }
    text += fmt::format("  return result \"y\" %n{}\n}}\n", nodes);
    for (PictureGroups groups :
         {PictureGroups::kModule, PictureGroups::kRole, PictureGroups::kNone}) {
      ExpectReadable(Draw(
          text, {.module_fqn = "m", .phase = PicturePhase::kAll, .groups = groups, .title = ""}));
    }
    if (::testing::Test::HasFailure()) break;
  }
}

constexpr std::string_view kBothWays =
    "graph @g(%x: input \"x\" f32[2], %w: param \"m.one.weight\" f32[2]) {\n"
    "  %a = aten::mul.Tensor(%x, %w) : f32[2] {module = \"m.one\"}\n"
    "  %b = aten::exp(%a) : f32[2] {module = \"m.two\"}\n"
    "  %l = aten::sum(%b) : f32[] {module = \"head\", phase = loss}\n"
    "  %h = aten::exp(%b) : f32[2] {module = \"head\", phase = backward}\n"
    "  %c = aten::mul.Tensor(%h, %b) : f32[2] {module = \"m.two\", phase = backward}\n"
    "  %d = aten::mul.Tensor(%c, %x) : f32[2] {module = \"m.one\", phase = backward}\n"
    "  return loss \"loss\" %l, gradient \"m.one.weight\" %d\n"
    "}\n";

// A phase can be drawn alone; what passes between the two is counted, not drawn.
TEST(GraphPicture, PhasesAreDrawnAloneOrTogether) {
  PictureOptions options = {.module_fqn = "m", .title = ""};
  std::string svg = Draw(std::string(kBothWays), options);
  EXPECT_EQ(Titles(svg),
            (std::vector<std::string>{"input x", "one", "parameter one.weight", "to head", "two"}));
  EXPECT_EQ(Count(svg, ">1 node, 1 saved for backward</text>"), 1u);

  options.phase = PicturePhase::kBackward;
  svg = Draw(std::string(kBothWays), options);
  EXPECT_EQ(Titles(svg), (std::vector<std::string>{"from head", "gradient of one.weight", "input x",
                                                   "one", "two"}));
  EXPECT_EQ(Count(svg, ">1 node, reads 1 saved value</text>"), 1u);

  options.phase = PicturePhase::kAll;
  svg = Draw(std::string(kBothWays), options);
  ExpectReadable(svg);
  EXPECT_EQ(Count(svg, "reads 1 saved"), 0u);
  EXPECT_EQ(Titles(svg).size(), 9u);
}

// Sizes that the host reads from a tensor hold up what needs them, so they are edges too.
TEST(GraphPicture, SizesReadByTheHostAreEdges) {
  std::string svg = Draw(
      "graph @g(%x: input \"x\" i64[1]) {\n"
      "  symbols { u0: data, hint 2, range [0, inf] }\n"
      "  gt::read_ints(%x) binds [u0] {module = \"m.one\"}\n"
      "  %z = aten::zeros(size = [u0], dtype = f32, device = \"cpu\") : f32[u0] {module = "
      "\"m.two\"}\n"
      "  return result \"z\" %z\n"
      "}\n",
      {.module_fqn = "m", .title = ""});
  EXPECT_EQ(Count(svg, "<title>sizes read by the host</title>"), 1u);
}

TEST(GraphPicture, GroupsFollowTheOption) {
  PictureOptions options = {.module_fqn = std::string(kMoe), .title = ""};
  options.groups = PictureGroups::kNone;
  std::string svg = Draw(ChunkedMoe(2).text(), options);
  ExpectReadable(svg);
  EXPECT_EQ(Count(svg, ">1 node<"), 3u + 2u + 2u * 12u + 1u);
  options.groups = PictureGroups::kRole;
  std::vector<std::string> titles = Titles(Draw(ChunkedMoe(2).text(), options));
  EXPECT_EQ(std::count(titles.begin(), titles.end(), "router"), 0);
}

// Names and titles may hold anything; the picture stays well formed.
TEST(GraphPicture, TextIsEscaped) {
  std::string svg = Draw(
      "graph @g(%x: input \"<x>\" f32[2]) {\n"
      "  %y = aten::neg(%x) : f32[2] {module = \"m\"}\n"
      "  return result \"y\" %y\n"
      "}\n",
      {.module_fqn = "m", .title = "a < b & \"c\""});
  EXPECT_EQ(Count(svg, "a &lt; b &amp; &quot;c&quot;"), 1u);
  EXPECT_EQ(Count(svg, "<x>"), 0u);
}

TEST(GraphPicture, SaysWhatCannotBeDrawn) {
  std::string text = ChunkedMoe(2).text();
  auto draw = [&text](std::string modules, size_t most) {
    return [&text, modules, most] {
      Draw(text, {.module_fqn = modules, .title = "", .most_boxes = most});
    };
  };
  ExpectFailure(draw("layers.1.mo", 400), ErrorCode::kBadOptionValue, "layers.1.moe");
  ExpectFailure(draw("layers..moe", 400), ErrorCode::kBadOptionValue, "layers..moe");
  ExpectFailure(draw("layers.*", 10), ErrorCode::kOptionOutOfRange, "such as layers.1");
  ExpectFailure(draw("layers.*.moe", 10), ErrorCode::kOptionOutOfRange, "--group role");
}

}  // namespace
}  // namespace gt::graph_picture_test
