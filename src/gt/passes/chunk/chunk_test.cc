// Options of chunking, and functions of attention that chunks share. What chunking makes of steps is
// in the .gtir files beside this one.
#include "gt/passes/chunk/chunk.h"

#include <gtest/gtest.h>

#include "gt/passes/chunk/chunk_test_util.h"
#include "gt/passes/framework/registry.h"

namespace gt::chunk_test {
namespace {

using testing::Cut;
using testing::StepText;

TEST(Chunk, OptionsAreReadBack) {
  Chunk pass({.module_fqn = "layers.*.moe",
              .symbol = "s1",
              .chunk_dim = ChunkDim::kSeq,
              .num_chunks = 3,
              .disable_early_grad_accumulation = true,
              .keep_chunks_across_roots = false});
  EXPECT_EQ(pass.Spec(),
            "chunk{module_fqn=layers.*.moe,symbol=s1,chunk_dim=seq,num_chunks=3,disable_early_grad_"
            "accumulation=true,"
            "keep_chunks_across_roots=false}");
  EXPECT_EQ(MakePass(pass.Spec())->Spec(), pass.Spec());
  EXPECT_EQ(Chunk().Spec(), "chunk");
  for (const char* wrong : {"chunk{num_chunks=1}", "chunk{module_fqn=}", "chunk{symbol=}"}) {
    EXPECT_THROW(MakePass(wrong), Error) << wrong;
  }
}

constexpr std::string_view kMask =
    R"(graph @mask(%b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %d: input "d" i32[s0, 16]) {
    %mine = aten::index.Tensor(%d, [%b, %i]) : i32[]
    %other = aten::index.Tensor(%d, [%b, %j]) : i32[]
    %same = aten::eq.Tensor(%mine, %other) : bool[]
    return result "keep" %same
  })";
constexpr std::string_view kScore =
    R"(graph @score(%s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %d: input "d" i32[s0, 16]) {
    %scaled = aten::mul.Tensor(%s, 2.0) : f32[]
    return result "score" %scaled
  })";

Node& FlexOf(Graph& graph, std::string_view value) { return *graph.FindValue(value)->producer(); }
GraphRef FunctionOf(Graph& graph, std::string_view value, std::string_view arg) {
  Node& node = FlexOf(graph, value);
  return std::get<GraphRef>(node.arg(node.op().schema.Find(arg)));
}

// The functions look up documents in the chunk's tensor, and layers that share functions share
// those of each chunk.
TEST(Chunk, FunctionsOfAttentionSeeTheTensorsOfTheChunk) {
  std::string nodes;
  for (int layer : {0, 1}) {
    nodes += fmt::format(
        "%a{0}, %l{0} = gt::flex_attention(%q, %q, %q, [%doc], score_mod = {1}, mask_mod = {2}, "
        "scale = 0.5) : (f32[s0, 2, 16, 8]{{256, 8, 16, 1}}, f32[s0, 2, 16]) <layers.{0}>\n",
        layer, kScore, kMask);
  }
  auto graph = Parse(StepText{nodes, R"(result "a" %a0, result "b" %a1)",
                              R"(, %q: input "q" f32[s0, 2, 16, 8], %doc: input "doc" i32[s0, 16])"}
                         .Text());
  for (const char* arg : {"score_mod", "mask_mod"}) {
    Node& second = FlexOf(*graph, "a1");
    second.SetArg(second.op().schema.Find(arg), FunctionOf(*graph, "a0", arg));
  }
  const GraphRef whole = FunctionOf(*graph, "a0", "mask_mod");
  const auto cut = Cut(std::move(graph));
  const Node& second_chunk = FlexOf(*cut, "a1_chunk1");
  EXPECT_EQ(second_chunk.operand(0)->name(), "q_split_2");
  EXPECT_EQ(second_chunk.operand(3)->name(), "doc_split_2");
  const char* const types[] = {"i32[floordiv(s0 + 1, 2), 16]", "i32[s0 - floordiv(s0 + 1, 2), 16]"};
  for (const char* arg : {"score_mod", "mask_mod"}) {
    for (int chunk : {0, 1}) {
      const GraphRef mine = FunctionOf(*cut, fmt::format("a0_chunk{}", chunk), arg);
      EXPECT_EQ(Print(mine->inputs().back()->value.type(), cut->shapes()), types[chunk]);
      EXPECT_EQ(FunctionOf(*cut, fmt::format("a1_chunk{}", chunk), arg), mine);
    }
  }
  EXPECT_EQ(Print(whole->inputs().back()->value.type(), cut->shapes()), "i32[s0, 16]");
}

// A function that looks nothing up fits every chunk.
TEST(Chunk, FunctionsWithoutTensorsAreShared) {
  std::string score(kScore);
  score.replace(score.find(", %d: input \"d\" i32[s0, 16]"), 27, "");
  const std::string node = fmt::format(
      "%a, %l = gt::flex_attention(%q, %q, %q, [], score_mod = {}, mask_mod = none, scale = 0.5) : "
      "(f32[s0, 2, 16, 8]{{256, 8, 16, 1}}, f32[s0, 2, 16]) <layers.0>",
      score);
  auto graph =
      Parse(StepText{node, R"(result "a" %a)", R"(, %q: input "q" f32[s0, 2, 16, 8])"}.Text());
  const GraphRef whole = FunctionOf(*graph, "a", "score_mod");
  const auto cut = Cut(std::move(graph));
  EXPECT_EQ(FunctionOf(*cut, "a_chunk0", "score_mod"), whole);
  EXPECT_EQ(FunctionOf(*cut, "a_chunk1", "score_mod"), whole);
}

}  // namespace
}  // namespace gt::chunk_test
