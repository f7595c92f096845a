#include "gt/ir/text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "gt/base/error.h"
#include "gt/ir/verifier.h"
#include "gt/testing/random_graph.h"
#include "gt/testing/temp_folder.h"
#include "gt/testing/text_property.h"

namespace gt::text_test {
namespace {

using testing::RandomGraph;

std::string WithBody(const std::string& body) {
  return "graph @g(%w: param \"w\" f32[2, 8], %x: input \"x\" f32[s0, 8]) {\n"
         "  symbols { s0: input, hint 4, range [2, 64] }\n" +
         body + "\n}\n";
}

// The text prints as it was written.
void ExpectFixedPoint(const std::string& text) { EXPECT_EQ(Print(*Parse(text)), text); }

struct Failure {
  ErrorCode code = ErrorCode::kInternal;
  std::string message = "no error";
};

Failure FailureOf(const std::string& text) {
  try {
    Parse(text, "f.gtir");
  } catch (const Error& error) {
    return {error.code(), error.message()};
  }
  return {};
}

// Parsing fails with this code at this place, with a message that contains `part`.
void ExpectFailure(const std::string& text, ErrorCode code, const std::string& place,
                   const std::string& part) {
  const Failure failure = FailureOf(text);
  EXPECT_EQ(CodeName(failure.code), CodeName(code)) << failure.message;
  EXPECT_TRUE(failure.message.starts_with("f.gtir:" + place + ": ")) << failure.message;
  EXPECT_NE(failure.message.find(part), std::string::npos) << failure.message;
}

// As above for a line of the body, which is line 3 of the file.
void ExpectNodeFailure(const std::string& line, ErrorCode code, int column,
                       const std::string& part) {
  ExpectFailure(WithBody(line + "\n  return"), code, "3:" + std::to_string(column), part);
}

// One graph with a bit of everything reads as documented and prints exactly as it was written.
TEST(TextTest, PrintsWhatItReads) {
  ExpectFixedPoint(R"(graph @step(%w: param "w" f32[2, 8], %x: input "x" f32[s0, 8]) {
  symbols { s0: input, hint 4, range [2, 64] }
  guards { s0 != 3 by "layers.0" "aten::view" }
  %t = aten::t(%w) : f32[8, 2]{1, 8} {module = "layers.0", seq = 3, source = "llama3.cc:12"}
  %mm = aten::mm(%x, %t) : f32[s0, 2] {module = "layers.0", seq = 3}
  %n = aten::neg(%mm) : f32[s0, 2] {module = "layers.0", phase = backward, seq = 3}
  %slice = aten::slice.Tensor(%n, dim = 1, start = 1) : f32[s0, 1]{2, 1} offset [1]
  %a, %b = aten::split.Tensor(%n, split_size = 1, dim = 1) : (f32[s0, 1]{2, 1}, f32[s0, 1]{2, 1}) offset [0, 1]
  %cat = aten::cat([%a, %b, %a]) : f32[s0 * 3, 1]
  aten::_assert_async.msg(%cat, assert_msg = "a \"quoted\" text\n") {phase = loss}
  %l = aten::sum(%cat) : f32[]
  return loss "loss" %l, saved "n" %n
}
)");
}

TEST(TextTest, PrintsSymbolsFactsAndBinding) {
  ExpectFixedPoint(R"(graph @g(%counts: input "counts" i64[2]) {
  symbols { u0: data, hint 3, range [0, inf]; u1: data, hint 5, range [-2, 12] }
  facts { u0 + u1 == 8 }
  gt::read_ints(%counts) binds [u0, u1] {ep = dispatch, exchange = count_sync}
  %z = aten::zeros(size = [u0, max(u0, u1), u0 * u1 + floordiv(u0, 2) * 4 - 1]) : f32[u0, max(u0, u1), u0 * u1 + floordiv(u0, 2) * 4 - 1]
  %e = aten::zeros(size = []) : f32[]
  return
}
)");
}

// Lists that do not fit on a line are printed one entry per line, so that dumps of long lists can
// be compared.
TEST(TextTest, BreaksLongLists) {
  ExpectFixedPoint(R"(graph @g(
    %layers.0.attention.wq.weight: param "layers.0.attention.wq.weight" f32[2, 8],
    %x: input "x" f32[s0, s1]) {
  symbols {
    s0: input, hint 4, range [2, 64]
    s1: input, hint 8, range [2, 64]
    u0: data, hint 2, range [0, inf]
  }
  facts {
    u0 == s0 * s0 * s0 * s0 * s0 * s0 * s0 * s0 * s0 * s0
    -s0 + s1 == s0 * s0 * s0 * s0 * s0 * s0 * s0 * s0 * s0
  }
  %y = aten::neg(%x) : f32[s0, s1]
  return
      result "the first of two results with a long name" %y,
      result "the second of two results with a long name" %x
}
)");
}

TEST(TextTest, PrintsEveryMetadataField) {
  ExpectFixedPoint(R"(graph @g(%x: input "x" f32[2]) {
  %a = aten::neg(%x) : f32[2] {module = "m", phase = backward, seq = 12, source = "a.cc:3", ep = combine, exchange = exchange, recompute = must_save, bucket = "b", placement = "S(0)R", chunk = {id = 0, region = "r", role = body, producer = eager, backward, original = "o", proof = symbolic_size}}
  %b = aten::neg(%a) : f32[2] {chunk = {}}
  return
}
)");
}

// Roles are listed in one order, modules in the order in which they were declared; a list that is too
// long for a line does not end one.
TEST(TextTest, PrintsModulesByRole) {
  ExpectFixedPoint(R"(graph @g(%x: input "x" f32[2]) {
  modules { block: "h.0", "h.1"; experts: "h.1.moe.experts"; head: "a \"head\"" }
  return
}
)");
  ExpectFixedPoint(R"(graph @g(%x: input "x" f32[2]) {
  modules {
    block: "decoder.blocks.0", "decoder.blocks.1", "decoder.blocks.2", "decoder.blocks.3", "decoder.blocks.4"
    attention: "decoder.blocks.0.attention"
  }
  return
}
)");
  const auto graph = Parse(R"(graph @g() {
  modules { head: "out"; block: "h.1"; block:
    "h.0" }
  return
})");
  EXPECT_EQ(Print(*graph),
            "graph @g() {\n  modules { block: \"h.1\", \"h.0\"; head: \"out\" }\n  return\n}\n");
  EXPECT_EQ(graph->modules().RoleOf("h.1"), ModuleRole::kBlock);
  EXPECT_EQ(graph->modules().RoleOf("h"), std::nullopt);
  EXPECT_EQ(Print(*graph->Clone()), Print(*graph));
  EXPECT_EQ(Parse("graph @g() {\n  return\n}\n")->Hash(), graph->Hash());
}

TEST(TextTest, ErrorsInModules) {
  auto expect = [](const std::string& modules, int column, const std::string& part) {
    ExpectFailure("graph @g() {\n  modules { " + modules + " }\n  return\n}\n",
                  ErrorCode::kGtirSyntax, "2:" + std::to_string(column), part);
  };
  expect("blok: \"h.0\"", 13, "expected the role of modules (block, attention,");
  expect("block \"h.0\"", 19, "expected ':'");
  expect("block: h.0", 20, "expected a module, in quotes");
  expect("block: \"h.0\", ", 28, "expected a module, in quotes");
  expect("block: \"h.0\" \"h.1\"", 26, "';', a new line or '}' behind a role");
  expect("block: \"h.0\"; head: \"h.0\"", 33, "module 'h.0' has a role already");
  // They are declared once, for the whole step.
  const Failure nested = FailureOf(R"(graph @g(%q: input "q" f32[2, 2, 16, 8]) {
  %out, %lse = gt::flex_attention(%q, %q, %q, [], score_mod = graph @score() {
    modules { block: "h.0" }
    return
  }, mask_mod = none, scale = 0.125) : (f32[2, 2, 16, 8], f32[2, 2, 16])
  return
})");
  EXPECT_NE(nested.message.find("modules have their roles in the outermost graph"),
            std::string::npos)
      << nested.message;
}

TEST(TextTest, PrintsNestedGraphsInline) {
  ExpectFixedPoint(R"(graph @g(%q: input "q" f32[2, 2, 16, 8]) {
  %out, %lse = gt::flex_attention(%q, %q, %q, [], score_mod = graph @score(
      %score: input "score" f32[],
      %b: input "b" i32[],
      %h: input "h" i32[],
      %i: input "i" i32[],
      %j: input "j" i32[]) {
    %mul = aten::mul.Tensor(%score, 2.0) : f32[]
    return result "score" %mul
  }, mask_mod = none, scale = 0.125) : (f32[2, 2, 16, 8]{256, 8, 16, 1}, f32[2, 2, 16])
  return result "out" %out
}
)");
}

TEST(TextTest, NamesThatNeedQuotesGetThem) {
  ExpectFixedPoint(R"(graph @"my graph"(%"a b": input "" f32[2], %x: input "\x00\xff\t" f32[]) {
  %"\"" = aten::neg(%"a b") : f32[2]
  return result "β" %"\""
}
)");
}

TEST(TextTest, DevicesAndUndefinedResults) {
  ExpectFixedPoint(R"(graph @g(
    %x: input "x" f32[2] @cuda:1,
    %y: constant "y" bf16[2, 0]{2, 7} @cuda,
    %z: buffer "z" f32[] @cpu:0) {
  %c = aten::_to_copy(%x, dtype = f64, device = "cuda:1", non_blocking = true, memory_format = preserve) : f64[2] @cuda:1
  %a, %b, %d = aten::native_layer_norm_backward(%x, %x, normalized_shape = [2], mean = %z, rstd = %z, weight = none, bias = none, output_mask = [true, false, false]) : (f32[2] @cuda:1, none, none)
  return
}
)");
}

TEST(TextTest, NumbersKeepTheirKindAndTheirBits) {
  struct Case {
    Argument value;
    std::string text;
  };
  const double kInfinity = std::numeric_limits<double>::infinity();
  for (const Case& c :
       std::vector<Case>{{Dim(2), "2"},
                         {Dim(-2), "-2"},
                         {Dim(std::numeric_limits<int64_t>::min()), "-9223372036854775808"},
                         {Dim(std::numeric_limits<int64_t>::max()), "9223372036854775807"},
                         {2.0, "2.0"},
                         {-0.0, "-0.0"},
                         {1e-05, "1e-05"},
                         {1e22, "1e+22"},
                         {0.1, "0.1"},
                         {5e-324, "5e-324"},
                         {1.7976931348623157e308, "1.7976931348623157e+308"},
                         {kInfinity, "inf"},
                         {-kInfinity, "-inf"},
                         {std::nan(""), "nan"},
                         {true, "true"},
                         {false, "false"}}) {
    Graph graph("g");
    Value* x = graph.AddInput(InputRole::kInput, "x",
                              ContiguousType(DType::kFloat32, {}, {2}, graph.shapes()));
    Node* node =
        NodeBuilder(graph, "aten::mul.Tensor").Set("self", x).Set("other", c.value).Insert();
    EXPECT_EQ(Print(*node), "%mul = aten::mul.Tensor(%x, " + c.text + ") : f32[2]");
    const auto again = Parse(Print(graph));
    EXPECT_EQ(again->first()->arg(1).index(), c.value.index()) << c.text;
    EXPECT_EQ(again->Hash(), graph.Hash()) << c.text;
  }
}

// A default of 0.0 does not swallow -0.0, nor an integer default a float.
TEST(TextTest, OmitsOnlyArgumentsThatEqualTheirDefault) {
  const std::string text = WithBody(R"(
  %a = aten::add.Tensor(%x, %x, alpha = 1.0) : f32[s0, 8]
  %b = aten::normal_functional(%x, mean = -0.0) : f32[s0, 8]
  %c = aten::add.Tensor(%x, %x, alpha = 1) : f32[s0, 8]
  return)");
  const std::string printed = Print(*Parse(text));
  EXPECT_NE(printed.find("alpha = 1.0"), std::string::npos);
  EXPECT_NE(printed.find("mean = -0.0"), std::string::npos);
  EXPECT_NE(printed.find("%c = aten::add.Tensor(%x, %x) "), std::string::npos);
}

// What people write by hand: comments, blank lines, arguments out of order or by position, infix
// division.
TEST(TextTest, ReadsRelaxedInput) {
  const auto graph = Parse(R"(
// A comment.
graph @g(%x: input "x" f32[s0, 8],   // CHECK: behind an input
         // before the next
         %y: input "y" f32[s0 // 2 + s0 % 2, (s0 + 1) * 2 - -3,  // behind a comma
                           s0 %3]) {
  symbols { s0: input, hint 4 }  // no range: from 2 on

  %add = aten::add.Tensor(other = %y, self = %x)
      : f32[s0, 8]  // CHECK: %add
  %t = aten::transpose.int(%x, 1, 0) : f32[8, s0]{1, 8}
  %u = aten::roll(%x, 1) : (f32[s0, 8]) {}
  return result "t" %t
}
// The end.)");
  EXPECT_EQ(Print(*graph), R"(graph @g(
    %x: input "x" f32[s0, 8],
    %y: input "y" f32[s0 - floordiv(s0, 2), s0 * 2 + 5, s0 - floordiv(s0, 3) * 3]) {
  symbols { s0: input, hint 4, range [2, inf] }
  %add = aten::add.Tensor(%x, %y) : f32[s0, 8]
  %t = aten::transpose.int(%x, dim0 = 1, dim1 = 0) : f32[8, s0]{1, 8}
  %u = aten::roll(%x, shifts = [1]) : f32[s0, 8]
  return result "t" %t
}
)");
  EXPECT_EQ(graph->first()->operand(0)->name(), "x");
}

TEST(TextTest, ExpressionsBindAsInPython) {
  const auto read = [](const std::string& expression) {
    const auto graph = Parse("graph @g(%x: input \"x\" f32[" + expression +
                             "]{1}) { symbols { a: input, hint 7; b: input, hint 3 } return }");
    return graph->shapes().Print(graph->inputs()[0]->value.type().sizes[0]);
  };
  EXPECT_EQ(read("a - b - 1"), "a - b - 1");
  EXPECT_EQ(read("a - (b - 1)"), "a - b + 1");
  EXPECT_EQ(read("2 + 3 * a"), "a * 3 + 2");
  EXPECT_EQ(read("-a // 2"), "floordiv(-a, 2)");
  EXPECT_EQ(read("b - a // 2"), "b - floordiv(a, 2)");
  EXPECT_EQ(read("-(a // 2)"), "-floordiv(a, 2)");
  EXPECT_EQ(read("a * -2 // 4"), "floordiv(-a, 2)");
  EXPECT_EQ(read("a // -2"), "floordiv(-a, 2)");
  EXPECT_EQ(read("a * b // b"), "a");
  EXPECT_EQ(read("a % b"), "-b * floordiv(a, b) + a");
  EXPECT_EQ(read("min(b, max(a, 3)) + min(a, a)"), "a + min(b, max(3, a))");
  EXPECT_EQ(read("a - 9223372036854775808"), "a - 9223372036854775808");
  EXPECT_EQ(read("-a * 9223372036854775808"), "-a * 9223372036854775808");
  EXPECT_EQ(read("b - a * 9223372036854775808"), "-a * 9223372036854775808 + b");
}

// Every comparison has one spelling, whichever way it is written.
TEST(TextTest, GuardsAreNormalized) {
  const auto graph = Parse(R"(graph @g(%x: input "x" f32[s0, s1]) {
  symbols { s0: input, hint 4; s1: input, hint 9 }
  guards {
    6 != s0 * 2
    s1 > s0 by "m" "aten::mm"
    s1 <= 9; s0 - 1 < 8
    s0 >= 2
    16 * s1 == 144
  }
  return
})");
  EXPECT_NE(
      Print(*graph).find("  guards { s0 != 3; s0 < s1 by \"m\" \"aten::mm\"; 9 >= s1; s0 < 9; "
                         "s0 >= 2; s1 == 9 }\n"),
      std::string::npos)
      << Print(*graph);
}

TEST(TextTest, ErrorsShowPlaceLineAndCaret) {
  EXPECT_EQ(
      FailureOf("graph @g(%x: input \"x\" f32[2]) {\n\t%y = aten::neg(%z) : f32[2]\n}").message,
      "f.gtir:2:17: %z is not defined: neither an input nor an earlier node of graph @g has "
      "that name\n"
      "   %y = aten::neg(%z) : f32[2]\n"
      "                  ^");
  EXPECT_EQ(FailureOf("graph @g() {\n  \xce\xb2\xff\n}").message,
            "f.gtir:2:3: byte 0xce is not part of the .gtir form\n"
            "    \xce\xb2?\n"
            "    ^");
  EXPECT_EQ(FailureOf("").message,
            "f.gtir:1:1: expected 'graph', found the end of the text\n  \n  ^");
  const Failure failure =
      FailureOf("graph @g(" + std::string(1000, ' ') + "?" + std::string(1000, ' '));
  EXPECT_EQ(failure.message, "f.gtir:1:1010: '?' is not part of the .gtir form\n  ..." +
                                 std::string(72, ' ') + "?" + std::string(47, ' ') + "...\n  " +
                                 std::string(75, ' ') + "^");
}

TEST(TextTest, ErrorsInTheHeader) {
  const ErrorCode kSyntax = ErrorCode::kGtirSyntax;
  ExpectFailure("grph @g() {}", kSyntax, "1:1", "expected 'graph', found 'grph'");
  ExpectFailure("graph g() {}", kSyntax, "1:7", "the graph's name");
  ExpectFailure("graph @\"\"() { return }", kSyntax, "1:7", "empty");
  ExpectFailure("graph @g {}", kSyntax, "1:10", "'(' and the inputs");
  ExpectFailure("graph @g(", kSyntax, "1:10", "expected an input");
  ExpectFailure("graph @g(x) {}", kSyntax, "1:10", "expected an input");
  ExpectFailure("graph @g(%x) {}", kSyntax, "1:12", "expected ':'");
  ExpectFailure("graph @g(%x: foo) {}", kSyntax, "1:14", "(param, buffer, input or constant)");
  ExpectFailure("graph @g(%x: input x f32[2]) {}", kSyntax, "1:20", "in quotes");
  ExpectFailure("graph @g(%x: input \"x\" f33[2]) {}", kSyntax, "1:24", "expected a type");
  ExpectFailure("graph @g(%x: input \"x\" f32) {}", kSyntax, "1:27",
                "'[' and the sizes behind f32");
  ExpectFailure("graph @g(%x: input \"x\" f32[2) {}", kSyntax, "1:29", "an operator, ',' or ']'");
  ExpectFailure("graph @g(%x: input \"x\" f32[2]{1, 2}) {}", kSyntax, "1:30",
                "1 sizes but 2 strides");
  ExpectFailure("graph @g(%x: input \"x\" f32[2] @tpu) {}", kSyntax, "1:31", "unknown device");
  ExpectFailure("graph @g(%x: input \"x\" f32[2], %x: input \"y\" f32[2]) {return}",
                ErrorCode::kDuplicateValue, "1:32", "a second input is called %x");
  ExpectFailure("graph @g() { return } graph", kSyntax, "1:23", "the end of the text");
  ExpectFailure("graph @g() {", kSyntax, "1:13", "a node or 'return'");
  ExpectFailure("graph @g() { symbols { s0: input } return }", kSyntax, "1:34", "expected ','");
  ExpectFailure("graph @g() { symbols { s0: output, hint 3 } }", kSyntax, "1:28",
                "'input' or 'data'");
  ExpectFailure("graph @g() { symbols { min: input, hint 3 } }", ErrorCode::kBadSymbol, "1:24",
                "'min'");
  ExpectFailure("graph @g() { symbols { s0: input, hint 3 s1: input, hint 3 } }", kSyntax, "1:42",
                "';', a new line or '}'");
  ExpectFailure("graph @g() { symbols { s: input, hint 3; s: data, hint 3 } }",
                ErrorCode::kDuplicateSymbol, "1:42", "declared twice");
  ExpectFailure("graph @g() { facts { 1 = 1 } return }", kSyntax, "1:24", "'=='");
  ExpectFailure("graph @g() { guards { 1 ! 1 } return }", kSyntax, "1:25", "== != < <= > >=");
}

// A symbol may be used before the block that declares it; one that is never declared is reported
// where it is first used.
TEST(TextTest, UnboundSymbolsPointAtTheirFirstUse) {
  ExpectFailure(
      "graph @g(%x: input \"x\" f32[2, batch]) {\n symbols { bach: input, hint 3 } return }",
      ErrorCode::kUnboundSymbol, "1:31", "unbound symbol 'batch'");
  EXPECT_NE(
      FailureOf("graph @g(%x: input \"x\" f32[batch]) { symbols { bach: input, hint 3 } return }")
          .message.find("did you mean bach?"),
      std::string::npos);
  ExpectNodeFailure("%y = aten::zeros(size = [u0]) : f32[u0]", ErrorCode::kUnboundSymbol, 26,
                    "'u0'");
}

TEST(TextTest, ErrorsInNodes) {
  const ErrorCode kSyntax = ErrorCode::kGtirSyntax;
  const ErrorCode kArgument = ErrorCode::kGtirBadArgument;
  ExpectNodeFailure("%y aten::neg(%x)", kSyntax, 4, "'=' and an operator");
  ExpectNodeFailure("%y = %x", kSyntax, 6, "an operator, such as");
  ExpectNodeFailure("%y = aten::neg : f32[2]", kSyntax, 16, "the arguments of aten::neg");
  ExpectNodeFailure("%y = aten::neg(%x) return", kSyntax, 20, "':' and the types");
  ExpectNodeFailure("%x = aten::neg(%x) : f32[2]", ErrorCode::kDuplicateValue, 1, "%x is already");
  ExpectNodeFailure("%a, %a = aten::max.dim(%x, dim = 0) : (f32[8], i64[8])",
                    ErrorCode::kDuplicateValue, 5, "%a is already");
  ExpectNodeFailure("%y = aten::neg(%q) : f32[2]", ErrorCode::kGtirUndefinedValue, 16, "%q is not");
  ExpectNodeFailure("%y = aten::neg(%y) : f32[2]", ErrorCode::kGtirUndefinedValue, 16, "%y is not");
  ExpectNodeFailure("%y = aten::neg(x) : f32[2]", kSyntax, 16, "expected %x for argument 'self'");
  ExpectNodeFailure("%y = aten::neg([%x]) : f32[2]", kSyntax, 16, "for argument 'self'");
  ExpectNodeFailure("%y = aten::neg() : f32[2]", kArgument, 16, "'self' of aten::neg is missing");
  ExpectNodeFailure("%y = aten::neg(none) : f32[2]", kArgument, 16, "cannot be none");
  ExpectNodeFailure("%y = aten::neg(%x, %x) : f32[2]", kArgument, 20, "takes only 1 arguments");
  ExpectNodeFailure("%y = aten::sum(%x, dtpye = f32) : f32[]", kArgument, 20,
                    "did you mean dtype?");
  ExpectNodeFailure("%y = aten::sum(%x, dtype = f32, dtype = f32) : f32[]", kArgument, 33, "twice");
  ExpectNodeFailure("%y = aten::sum(self = %x, f32) : f32[]", kSyntax, 27, "with its name");
  ExpectNodeFailure("%y = aten::sum(%x, dtype = f31) : f32[]", kSyntax, 28, "a dtype");
  ExpectNodeFailure("%y = aten::topk(%x, k = %x) : (f32[2], f32[2])", kSyntax, 25, "an integer");
  ExpectNodeFailure("%y = aten::flip(%x, dims = 1) : f32[2]", kSyntax, 28, "a list of integers");
  ExpectNodeFailure("%y = aten::mul.Scalar(%x, %x) : f32[2]", kSyntax, 27,
                    "a number for argument 'other'");
  ExpectNodeFailure("%y = aten::cat(%x) : f32[2]", kSyntax, 16, "a list of values");
  ExpectNodeFailure("%y = aten::cat([%x, none]) : f32[2]", kSyntax, 21, "a value");
  ExpectNodeFailure("%y = aten::cat([%x) : f32[2]", kSyntax, 19, "',' or ']'");
  ExpectNodeFailure("%y = aten::gelu(%x, approximate = none) : f32[2]", kArgument, 35,
                    "cannot be none");
  ExpectNodeFailure("%y = aten::gelu(%x, approximate = tanh) : f32[2]", kSyntax, 35, "in quotes");
  ExpectNodeFailure("%y = aten::clone(%x, memory_format = any) : f32[2]", kSyntax, 38, "preserve");
  ExpectNodeFailure("%y = aten::_to_copy(%x, device = \"tpu\") : f32[2]", kSyntax, 34,
                    "unknown device");
  ExpectNodeFailure("%y = aten::rand(size = [2], generator = 1) : f32[2]", kArgument, 29,
                    "no argument");
  ExpectNodeFailure("%y = aten::cumsum(%x, dim = 0, dtype = none) : f32[s0, 8]{8}", kSyntax, 58,
                    "strides");
  ExpectNodeFailure("%y, %z = aten::neg(%x) : (f32[2], f32[2])", kArgument, 1,
                    "has 1 results, but 2");
  ExpectNodeFailure("%y = aten::neg(%x) : (f32[2], f32[2])", kSyntax, 1,
                    "names 1 results but has 2");
  ExpectNodeFailure("aten::neg(%x)", kArgument, 1, "has 1 results, but 0");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] offset [1]", kSyntax, 29, "not a view");
  ExpectNodeFailure("%y = aten::t(%x) : f32[2] offset [1, 2]", kSyntax, 27,
                    "1 results but 2 offsets");
  ExpectNodeFailure("gt::read_ints(%x) binds [s0]", kSyntax, 26, "bound by an input");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] {modul = \"a\"}", kSyntax, 30,
                    "one of module, phase");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] {phase = up}", kSyntax, 38,
                    "(forward, loss or backward)");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] {seq = 1, seq = 2}", kSyntax, 39, "given twice");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] {chunk = {id = 3000000000}}",
                    ErrorCode::kGtirNumberRange, 44, "32 bits");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] {module = \"a\\q\"}", kSyntax, 41,
                    "unknown escape");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] {module = \"a}", kSyntax, 39, "no closing quote");
  ExpectNodeFailure("%y = aten::neg(%x) : f32[2] {module = \"a\xff\"}", kSyntax, 41,
                    "not valid UTF-8");
  ExpectNodeFailure("return loss %x", kSyntax, 13, "in quotes");
  ExpectNodeFailure("return profit \"x\" %x", kSyntax, 8,
                    "(loss, gradient, update, saved or result)");
}

TEST(TextTest, UnknownOperatorsSuggestTheNearest) {
  const auto suggestion = [](const std::string& op) {
    const Failure failure = FailureOf(WithBody("%y = " + op + "(%x) : f32[2]"));
    EXPECT_EQ(failure.code, ErrorCode::kGtirUnknownOperator);
    return failure.message.substr(0, failure.message.find('\n'));
  };
  EXPECT_EQ(suggestion("aten::ng"),
            "f.gtir:3:6: there is no operator aten::ng; did you mean aten::neg?");
  EXPECT_NE(suggestion("aten::add.Tnsor").find("did you mean aten::add.Tensor?"),
            std::string::npos);
  EXPECT_NE(suggestion("aten::add").find("did you mean aten::add."), std::string::npos);
  EXPECT_NE(suggestion("relu").find("did you mean aten::relu?"), std::string::npos);
  EXPECT_EQ(suggestion("xyz::qqqqqqqqqqqqqqqq").find("did you mean"), std::string::npos);
  EXPECT_EQ(suggestion("a::" + std::string(100000, 'b')).find("did you mean"), std::string::npos);
}

TEST(TextTest, NumbersOutOfRange) {
  const ErrorCode kRange = ErrorCode::kGtirNumberRange;
  ExpectNodeFailure("%y = aten::zeros(size = [9223372036854775808]) : f32[]", kRange, 26,
                    "64 bits");
  ExpectNodeFailure("%y = aten::zeros(size = [99999999999999999999999]) : f32[]", kRange, 26,
                    "64 bits");
  ExpectNodeFailure("%y = aten::mul.Tensor(%x, 1e999) : f32[]", kRange, 27, "double");
  ExpectNodeFailure("%y = aten::zeros(size = [s0 * 9223372036854775807 * 2]) : f32[]",
                    ErrorCode::kSizeOverflow, 26, "64 bits");
  ExpectNodeFailure("%y = aten::zeros(size = [floordiv(s0, 0)]) : f32[]",
                    ErrorCode::kDivisionByZero, 26, "zero");
  ExpectNodeFailure(
      "%y = aten::zeros(size = [1]) : f32[1, 9223372036854775807, 9223372036854775807]",
      ErrorCode::kSizeOverflow, 35, "64 bits");
  ExpectNodeFailure("%y = aten::zeros(size = [12ab]) : f32[]", ErrorCode::kGtirSyntax, 28,
                    "behind a number");
}

std::string Repeat(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

// Input made to hurt ends in an error, quickly and without exhausting the stack or the memory.
TEST(TextTest, HostileInputIsRefused) {
  const auto sizes = [](const std::string& expression) {
    return "graph @g(%x: input \"x\" f32[" + expression +
           "]) {\n symbols { a: input, hint 4; b: input, hint 4; c: input, hint 4 } return }";
  };
  EXPECT_EQ(FailureOf(sizes(Repeat("(", 100000))).code, ErrorCode::kGtirTooDeep);
  EXPECT_EQ(FailureOf(sizes(Repeat("floordiv(", 100000))).code, ErrorCode::kGtirTooDeep);
  EXPECT_EQ(FailureOf(sizes("a" + Repeat(" // 7", 100))).code, ErrorCode::kExpressionTooLarge);
  EXPECT_EQ(FailureOf(sizes("a" + Repeat(" % b % c", 100000))).code,
            ErrorCode::kExpressionTooLarge);
  EXPECT_EQ(FailureOf(sizes("a" + Repeat(" * a", 100000))).code, ErrorCode::kExpressionTooLarge);
  EXPECT_EQ(FailureOf(sizes("1" + Repeat(" * (a + b + c + 1)", 1000))).code,
            ErrorCode::kExpressionTooLarge);
  EXPECT_EQ(FailureOf(sizes(Repeat("-", 100000) + "a")).message, "no error");
  EXPECT_EQ(FailureOf(sizes("a" + Repeat(" + a", 100000))).message, "no error");

  std::string nested = "graph @g(%q: input \"q\" f32[2]) {\n";
  EXPECT_EQ(
      FailureOf(Repeat(nested + "%o, %l = gt::flex_attention(%q, %q, %q, [], score_mod = ", 10000))
          .code,
      ErrorCode::kGtirTooDeep);
  EXPECT_EQ(FailureOf("graph @g(" + Repeat("(", 100000)).code, ErrorCode::kGtirSyntax);
  EXPECT_EQ(FailureOf(WithBody("%y = aten::cat(" + Repeat("[", 100000))).code,
            ErrorCode::kGtirSyntax);

  // Each fact squares the one before.
  std::string facts, symbols = "u0: data, hint 2\n";
  for (int i = 1; i < 100; ++i) {
    symbols += fmt::format("u{}: data, hint 2\n", i);
    facts += fmt::format("u{} == (u{} + 1) * (u{} + 1)\n", i, i - 1, i - 1);
  }
  EXPECT_NE(
      FailureOf("graph @g() { symbols {" + symbols + "} facts {" + facts + "} return }").message,
      "no error");
}

// Inputs that once broke something, and those that fuzzing starts from.
TEST(TextTest, KeptFuzzInputs) {
  int files = 0;
  const auto folder = std::filesystem::path(GT_SOURCE_DIR) / "tests" / "fuzz" / "text";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(testing::ProblemWithText(text), "") << entry.path();
    ++files;
  }
  EXPECT_GT(files, 10);
}

TEST(TextTest, EveryPrefixAndEveryDamagedByteIsHandled) {
  const std::string text = Print(*RandomGraph(7, 6));
  for (size_t length = 0; length < text.size() - 1; ++length) {
    EXPECT_EQ(testing::ProblemWithText(text.substr(0, length)), "");
  }
  for (size_t at = 0; at < text.size(); ++at) {
    for (char c : {'"', '%', '(', '}', '9', '\xff'}) {
      std::string damaged = text;
      damaged[at] = c;
      EXPECT_EQ(testing::ProblemWithText(damaged), "");
    }
  }
}

// Printing and reparsing loses nothing that the hash or the text shows, and the graph still
// verifies.
TEST(TextTest, RandomGraphsRoundTrip) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto graph = RandomGraph(seed);
    const std::string text = Print(*graph);
    const auto again = Parse(text);
    ASSERT_EQ(Print(*again), text) << "seed " << seed;
    ASSERT_EQ(again->Hash(), graph->Hash()) << "seed " << seed << "\n" << text;
    ASSERT_NO_THROW(Verify(*again)) << "seed " << seed << "\n" << text;
  }
}

TEST(TextTest, WithoutMetadataTheGraphIsTheSameButForIt) {
  const auto graph = RandomGraph(3);
  const std::string text = Print(*graph, {.metadata = false});
  EXPECT_EQ(text.find("phase ="), std::string::npos);
  const auto again = Parse(text);
  EXPECT_EQ(again->node_count(), graph->node_count());
  EXPECT_EQ(Print(*again), text);
}

// A graph that breaks every rule still prints: that is how it gets reported.
TEST(TextTest, PrintsBrokenGraphs) {
  Graph graph("g");
  TensorType type{DType::kFloat32, {}, {Dim::Symbol(7), 2, 3}, {1}};
  Value* x = graph.AddInput(InputRole::kInput, "x", type);
  Graph::NodeSpec spec;
  spec.op = FindOperator("aten::cat");
  spec.args = {OperandList{{0, -1, 5}}, Dim::Symbol(9) * Dim(2)};
  spec.operands = {x};
  graph.InsertTyped(
      std::move(spec),
      {.results = {type}, .view_offsets = {}, .bound_symbols = {3}, .result_names = {}});
  EXPECT_EQ(Print(graph), R"(graph @g(%x: input "x" f32[undeclared_7, 2, 3]{1}) {
  %cat = aten::cat([%x, none, %<no such operand>], dim = undeclared_9 * 2) binds [undeclared_3] : f32[undeclared_7, 2, 3]{1}
  return
}
)");
}

TEST(TextTest, ReadsFiles) {
  const testing::TempFolder folder;
  const std::string path = folder / "step.gtir";
  const std::string text = Print(*RandomGraph(1, 2000));
  testing::WriteText(path, text);
  EXPECT_EQ(Print(*ParseFile(path)), text);
  std::filesystem::remove(path);
  for (const std::string& bad : {path, folder.string()}) {
    try {
      ParseFile(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kGtirUnreadable);
      EXPECT_NE(error.message().find(bad), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace gt::text_test
