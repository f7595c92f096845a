// What chunking makes of small steps: which nodes are repeated, what each copy reads, and how whole
// values are cut and put together again. chunk_bodies_test.cc goes on with what bodies contain,
// chunk_gradients_test.cc with sums; what is refused is in chunk_rejections_test.cc.
#include "gt/passes/chunk/chunk.h"

#include <gtest/gtest.h>

#include "gt/passes/chunk/chunk_test_util.h"
#include "gt/passes/framework/registry.h"

namespace gt::chunk_test {
namespace {

using testing::Chunked;
using testing::Cut;
using testing::StepText;

// A product and an activation, forward and backward, with a loss in between.
constexpr StepText kLayer = {R"(
  %h = aten::mm(%x, %w) : f32[s0, 8] <layers.0>
  %y = aten::relu(%h) : f32[s0, 8] <layers.0>
  %l = aten::sum(%y) : f32[] <head loss>
  %gy = aten::mul.Tensor(%y, %l) : f32[s0, 8] <head backward>
  %gh = aten::threshold_backward(%gy, %y, threshold = 0) : f32[s0, 8] <layers.0 backward>
  %xt = aten::t(%x) : f32[8, s0]{1, 8} <layers.0 backward>
  %gw = aten::mm(%xt, %gh) : f32[8, 8] <layers.0 backward>
  %wt = aten::t(%w) : f32[8, 8]{1, 8} <layers.0 backward>
  %gx = aten::mm(%gh, %wt) : f32[s0, 8] <layers.0 backward>)",
                             R"(loss "l" %l, gradient "w" %gw, result "gx" %gx)"};

TEST(Chunk, RepeatsTheForwardOfAModule) {
  Chunked cut = Cut({R"(
    %h = aten::mm(%x, %w) : f32[s0, 8] <layers.0>
    %y = aten::relu(%h) : f32[s0, 8] <layers.0>)",
                     R"(result "y" %y)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
h_chunk0 = mm(x_split, w)
y_chunk0 = relu(h_chunk0)
h_chunk1 = mm(x_split_2, w)
y_chunk1 = relu(h_chunk1)
y_whole = cat(y_chunk0, y_chunk1))");
  EXPECT_EQ(cut.OutputsLine(), "y_whole");
  EXPECT_EQ(cut.PrintOf("x_split"),
            "%x_split, %x_split_2 = aten::split_with_sizes(%x, split_sizes = "
            "[floordiv(s0 + 1, 2), s0 - floordiv(s0 + 1, 2)]) : (f32[floordiv(s0 + 1, 2), 8], "
            "f32[s0 - floordiv(s0 + 1, 2), 8]) offset [0, floordiv(s0 + 1, 2) * 8]");
  EXPECT_EQ(cut.TypeOf("y_whole"), "f32[s0, 8]");
  EXPECT_EQ(cut.Count("roots"), 1);
  EXPECT_EQ(cut.Count("copies"), 4);
  EXPECT_EQ(cut.Count("splits"), 1);
  EXPECT_EQ(cut.Count("joins"), 1);
  EXPECT_EQ(cut.Count("sums"), 0);
  EXPECT_EQ(cut.Count("handed_on"), 0);
}

// The last chunk is differentiated first. What the forward kept stays with its chunk, %x is cut
// once for both directions, and %wt, which no chunk changes, is not repeated.
TEST(Chunk, RepeatsTheBackwardFromTheLastChunkToTheFirst) {
  Chunked cut = Cut(kLayer);
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
h_chunk0 = mm(x_split, w)
y_chunk0 = relu(h_chunk0)
h_chunk1 = mm(x_split_2, w)
y_chunk1 = relu(h_chunk1)
y_whole = cat(y_chunk0, y_chunk1)
l = sum(y_whole)
gy = mul(y_whole, l)
wt = t(w)
gy_split, gy_split_2 = split_with_sizes(gy)
gh_chunk1 = threshold_backward(gy_split_2, y_chunk1)
xt_chunk1 = t(x_split_2)
gw_chunk1 = mm(xt_chunk1, gh_chunk1)
gx_chunk1 = mm(gh_chunk1, wt)
gh_chunk0 = threshold_backward(gy_split, y_chunk0)
xt_chunk0 = t(x_split)
gw_chunk0 = mm(xt_chunk0, gh_chunk0)
gx_chunk0 = mm(gh_chunk0, wt)
gw_sum = add(gw_chunk1, gw_chunk0)
gx_whole = cat(gx_chunk0, gx_chunk1))");
  EXPECT_EQ(cut.OutputsLine(), "l gw_sum gx_whole");
  EXPECT_EQ(cut.Count("copies"), 12);
  EXPECT_EQ(cut.Count("splits"), 2);
  EXPECT_EQ(cut.Count("joins"), 2);
  EXPECT_EQ(cut.Count("sums"), 1);
}

TEST(Chunk, MakesAsManyChunksAsAsked) {
  Chunked cut = Cut(kLayer, {.chunks = 3});
  EXPECT_EQ(cut.LineOf("x_split"), "x_split, x_split_2, x_split_3 = split_with_sizes(x)");
  EXPECT_EQ(cut.LineOf("h_chunk2"), "h_chunk2 = mm(x_split_3, w)");
  EXPECT_EQ(cut.LineOf("gh_chunk2"), "gh_chunk2 = threshold_backward(gy_split_3, y_chunk2)");
  EXPECT_EQ(cut.LineOf("y_whole"), "y_whole = cat(y_chunk0, y_chunk1, y_chunk2)");
  EXPECT_EQ(cut.LineOf("gw_sum"), "gw_sum = add(gw_chunk2, gw_chunk1)");
  EXPECT_EQ(cut.LineOf("gw_sum_2"), "gw_sum_2 = add(gw_sum, gw_chunk0)");
  EXPECT_EQ(cut.OutputsLine(), "l gw_sum_2 gx_whole");
  const std::string story = cut.Story();
  EXPECT_LT(story.find("gh_chunk2"), story.find("gh_chunk1"));
  EXPECT_LT(story.find("gh_chunk1"), story.find("gh_chunk0"));
}

// Extents differ by one at the most, larger ones first, down to chunks of a single row.
TEST(Chunk, ExtentsNeedNotDivideEvenly) {
  const auto extents = [](int64_t extent, int64_t chunks) {
    StepText step = kLayer;
    step.extent = extent;
    Chunked cut = Cut(step, {.chunks = chunks});
    std::vector<std::string> hints;
    const Node& split = cut.NodeOf("x_split");
    for (int32_t i = 0; i < split.result_count(); ++i) {
      hints.push_back(
          fmt::format("{}", cut.graph().shapes().Hint(split.result(i)->type().sizes[0])));
    }
    EXPECT_EQ(cut.TypeOf("y_whole"), "f32[s0, 8]");
    EXPECT_EQ(cut.TypeOf("gx_whole"), "f32[s0, 8]");
    return Join(hints, " ");
  };
  EXPECT_EQ(extents(4, 2), "2 2");
  EXPECT_EQ(extents(5, 2), "3 2");
  EXPECT_EQ(extents(8, 3), "3 3 2");
  EXPECT_EQ(extents(7, 3), "3 2 2");
  EXPECT_EQ(extents(7, 4), "2 2 2 1");
  EXPECT_EQ(extents(4, 4), "1 1 1 1");
  EXPECT_EQ(extents(2, 2), "1 1");
}

// What every created node says about itself. Splits, copies of inputs, concatenations and sums
// belong to the module around the root.
TEST(Chunk, MarksWhatItMakes) {
  StepText step = kLayer;
  std::string nodes(step.nodes);
  nodes.replace(
      nodes.find("<layers.0>"), 10,
      R"({module = "layers.0.ffn", seq = 7, source = "m.cc:3", recompute = must_save, ep = dispatch})");
  step.nodes = nodes;
  Chunked cut = Cut(step);
  EXPECT_EQ(cut.MetadataOf("h_chunk1"),
            R"({module = "layers.0.ffn", seq = 7, source = "m.cc:3", ep = dispatch, )"
            R"(recompute = must_save, chunk = {id = 1, region = "layers.0", role = body, )"
            R"(original = "h"}})");
  EXPECT_EQ(cut.MetadataOf("y_chunk0"),
            R"({module = "layers.0", ep = compute, chunk = {id = 0, region = "layers.0", )"
            R"(role = body, original = "y"}})");
  EXPECT_EQ(cut.MetadataOf("gx_chunk0"),
            R"({module = "layers.0", phase = backward, ep = compute, chunk = {id = 0, )"
            R"(region = "layers.0", role = body, backward, original = "gx"}})");
  EXPECT_EQ(cut.MetadataOf("x_split"),
            R"({module = "layers", chunk = {region = "layers.0", role = split_boundary}})");
  EXPECT_EQ(cut.MetadataOf("gy_split"),
            R"({module = "layers", phase = backward, chunk = {region = "layers.0", )"
            R"(role = split_boundary, backward}})");
  EXPECT_EQ(cut.MetadataOf("y_whole"),
            R"({module = "layers", chunk = {region = "layers.0", role = materialization}})");
  EXPECT_EQ(cut.MetadataOf("gx_whole"),
            R"({module = "layers", phase = backward, chunk = {region = "layers.0", )"
            R"(role = materialization, backward}})");
  EXPECT_EQ(cut.MetadataOf("gw_sum"),
            R"({module = "layers", phase = backward, chunk = {region = "layers.0", )"
            R"(role = materialization, backward, proof = output_partial_sum}})");
  EXPECT_EQ(cut.MetadataOf("l"), R"({module = "head", phase = loss, ep = compute})");
  EXPECT_EQ(cut.MetadataOf("wt"), R"({module = "layers.0", phase = backward, ep = compute})");
}

// A boundary node stands where the program made what it cuts or puts together.
TEST(Chunk, BoundariesKeepTheSource) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] {module = "embed", source = "e.cc:1"}
    %y = aten::relu(%a) : f32[s0, 8] {module = "layers.0", source = "m.cc:2", ep = compute})",
                     R"(result "y" %y)"});
  EXPECT_EQ(cut.NodeOf("a_split").meta().source.str(), "e.cc:1");
  EXPECT_EQ(cut.NodeOf("y_whole").meta().source.str(), "m.cc:2");
}

TEST(Chunk, NamesThatAreTakenAreNotTakenAgain) {
  Chunked cut = Cut({R"(
    %y_chunk0 = aten::neg(%x) : f32[s0, 8] <embed>
    %x_split = aten::neg(%y_chunk0) : f32[s0, 8] <embed>
    %y = aten::relu(%x) : f32[s0, 8] <layers.0>)",
                     R"(result "y" %y, result "e" %x_split)"});
  EXPECT_EQ(cut.Story(), R"(y_chunk0 = neg(x)
x_split = neg(y_chunk0)
x_split_1, x_split_2 = split_with_sizes(x)
y_chunk_0 = relu(x_split_1)
y_chunk_1 = relu(x_split_2)
y_whole = cat(y_chunk_0, y_chunk_1))");
}

// Which modules.

// What other modules compute is not repeated and not changed.
TEST(Chunk, OtherModulesStayAsTheyAre) {
  Chunked cut = Cut({R"(
    %e = aten::neg(%x) : f32[s0, 8] <embed>
    %a = aten::exp(%e) : f32[s0, 8] <layers.0 dense>
    %b = aten::relu(%a) : f32[s0, 8] <layers.1>
    %n = aten::neg(%b) : f32[s0, 8] <norm>)",
                     R"(result "n" %n)"});
  EXPECT_EQ(cut.Story(), R"(e = neg(x)
a = exp(e)
a_split, a_split_2 = split_with_sizes(a)
b_chunk0 = relu(a_split)
b_chunk1 = relu(a_split_2)
b_whole = cat(b_chunk0, b_chunk1)
n = neg(b_whole))");
  EXPECT_EQ(cut.Count("roots"), 1);
  EXPECT_EQ(cut.MetadataOf("a"), R"({module = "layers.0"})");
}

// Labels count only where nothing is exchanged anywhere.
TEST(Chunk, RootsAreModulesThatExchangeTokens) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %b = _c10d_functional::all_to_all_single(%a, output_split_sizes = [s0], input_split_sizes = [s0], group_name = "ep") : f32[s0, 8] <layers.1.moe>
    %c = _c10d_functional::wait_tensor(%b) : f32[s0, 8] <layers.1.moe>)",
                     R"(result "c" %c)"});
  EXPECT_EQ(cut.Count("roots"), 1);
  EXPECT_EQ(cut.Story(), R"(a = neg(x)
a_split, a_split_2 = split_with_sizes(a)
b_chunk0 = all_to_all_single(a_split)
c_chunk0 = wait_tensor(b_chunk0)
b_chunk1 = all_to_all_single(a_split_2)
c_chunk1 = wait_tensor(b_chunk1)
c_whole = cat(c_chunk0, c_chunk1))");
  EXPECT_EQ(cut.PrintOf("b_chunk1"),
            "%b_chunk1 = _c10d_functional::all_to_all_single(%a_split_2, output_split_sizes = "
            "[s0 - floordiv(s0 + 1, 2)], input_split_sizes = [s0 - floordiv(s0 + 1, 2)], "
            "group_name = \"ep\") : f32[s0 - floordiv(s0 + 1, 2), 8]");
}

TEST(Chunk, PatternsChooseTheModules) {
  const auto regions = [](const std::string& pattern) {
    Chunked cut = Cut({R"(
      %a = aten::neg(%x) : f32[s0, 8] <blocks.0.moe.experts>
      %b = aten::neg(%a) : f32[s0, 8] <blocks.0.attention>
      %c = aten::neg(%b) : f32[s0, 8] <blocks.1.moe>
      %d = aten::neg(%c) : f32[s0, 8] <moe>
      %e = aten::neg(%d) : f32[s0, 8] <blocks.10>)",
                       R"(result "e" %e)"},
                      {.modules = pattern});
    std::string regions;
    for (const Node* node : cut.graph().nodes()) {
      const auto& chunk = node->meta().chunk;
      if (chunk == nullptr || chunk->role != ChunkRole::kBody || chunk->id != 0) continue;
      regions += fmt::format("{}:{} ", chunk->original.str(), chunk->region.str());
    }
    return regions;
  };
  EXPECT_EQ(regions("blocks.*.moe"), "a:blocks.0.moe c:blocks.1.moe ");
  EXPECT_EQ(regions("**.moe"), "a:blocks.0.moe c:blocks.1.moe d:moe ");
  EXPECT_EQ(regions("blocks.1"), "c:blocks.1 ");
  EXPECT_EQ(regions("blocks.*"), "a:blocks.0 b:blocks.0 c:blocks.1 e:blocks.10 ");
  EXPECT_EQ(regions("blocks.0.attention"), "b:blocks.0.attention ");
}

TEST(Chunk, BoundariesOfATopLevelModuleHaveNoModule) {
  Chunked cut =
      Cut({R"(%y = aten::relu(%x) : f32[s0, 8] <moe>)", R"(result "y" %y)"}, {.modules = "moe"});
  EXPECT_EQ(cut.MetadataOf("x_split"), R"({chunk = {region = "moe", role = split_boundary}})");
}

// A loss that runs inside of a root is no part of it.
TEST(Chunk, NodesOfTheLossAreNotCut) {
  Chunked cut = Cut({R"(
    %y = aten::relu(%x) : f32[s0, 8] <layers.0>
    %l = aten::sum(%y) : f32[] <layers.0 loss>)",
                     R"(loss "l" %l)"});
  EXPECT_EQ(cut.LineOf("l"), "l = sum(y_whole)");
}

// Parameters do not grow with the batch: what prepares them stays single.
TEST(Chunk, PreparationOfParametersIsNotRepeated) {
  Chunked cut = Cut({R"(
    %g = _c10d_functional::all_gather_into_tensor(%p, group_size = 2, group_name = "dp") : f32[8, 8] <layers.0>
    %gw = _c10d_functional::wait_tensor(%g) : f32[8, 8] <layers.0>
    %c = aten::_to_copy(%gw, dtype = bf16) : bf16[8, 8] <layers.0>
    %z = aten::_to_copy(%x, dtype = bf16) : bf16[s0, 8] <layers.0>
    %y = aten::mm(%z, %c) : bf16[s0, 8] <layers.0>)",
                     R"(result "y" %y)", R"(, %p: param "p" f32[4, 8])"});
  EXPECT_EQ(cut.Story(), R"(g = all_gather_into_tensor(p)
gw = wait_tensor(g)
c = _to_copy(gw)
x_split, x_split_2 = split_with_sizes(x)
z_chunk0 = _to_copy(x_split)
y_chunk0 = mm(z_chunk0, c)
z_chunk1 = _to_copy(x_split_2)
y_chunk1 = mm(z_chunk1, c)
y_whole = cat(y_chunk0, y_chunk1))");
}

// From root to root.

constexpr StepText kTwoRoots = {R"(
  %a = aten::neg(%x) : f32[s0, 8] <layers.0>
  %b = aten::exp(%a) : f32[s0, 8] <layers.1>
  %l = aten::sum(%b) : f32[] <head loss>
  %g = aten::mul.Tensor(%b, %l) : f32[s0, 8] <head backward>
  %gb = aten::mul.Tensor(%g, %b) : f32[s0, 8] <layers.1 backward>
  %ga = aten::neg(%gb) : f32[s0, 8] <layers.0 backward>)",
                                R"(loss "l" %l, result "ga" %ga)"};

TEST(Chunk, ChunksAreHandedFromRootToRoot) {
  Chunked cut = Cut(kTwoRoots);
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = neg(x_split)
a_chunk1 = neg(x_split_2)
b_chunk0 = exp(a_chunk0)
b_chunk1 = exp(a_chunk1)
b_whole = cat(b_chunk0, b_chunk1)
l = sum(b_whole)
g = mul(b_whole, l)
g_split, g_split_2 = split_with_sizes(g)
gb_chunk1 = mul(g_split_2, b_chunk1)
gb_chunk0 = mul(g_split, b_chunk0)
ga_chunk1 = neg(gb_chunk1)
ga_chunk0 = neg(gb_chunk0)
ga_whole = cat(ga_chunk0, ga_chunk1))");
  EXPECT_EQ(cut.Count("roots"), 2);
  EXPECT_EQ(cut.Count("handed_on"), 4);
  EXPECT_EQ(cut.NodeOf("a_chunk0").meta().chunk->region.str(), "layers.0");
  EXPECT_EQ(cut.NodeOf("b_chunk0").meta().chunk->region.str(), "layers.1");
}

TEST(Chunk, OrPutTogetherAndCutAgain) {
  Chunked cut = Cut(kTwoRoots, {.keep_across_roots = false});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = neg(x_split)
a_chunk1 = neg(x_split_2)
a_whole = cat(a_chunk0, a_chunk1)
a_whole_split, a_whole_split_2 = split_with_sizes(a_whole)
b_chunk0 = exp(a_whole_split)
b_chunk1 = exp(a_whole_split_2)
b_whole = cat(b_chunk0, b_chunk1)
l = sum(b_whole)
g = mul(b_whole, l)
g_split, g_split_2 = split_with_sizes(g)
gb_chunk1 = mul(g_split_2, b_chunk1)
gb_chunk0 = mul(g_split, b_chunk0)
gb_whole = cat(gb_chunk0, gb_chunk1)
gb_whole_split, gb_whole_split_2 = split_with_sizes(gb_whole)
ga_chunk1 = neg(gb_whole_split_2)
ga_chunk0 = neg(gb_whole_split)
ga_whole = cat(ga_chunk0, ga_chunk1))");
  EXPECT_EQ(cut.Count("handed_on"), 0);
  EXPECT_EQ(cut.NodeOf("a_whole").meta().chunk->region.str(), "layers.0");
  EXPECT_EQ(cut.NodeOf("a_whole_split").meta().chunk->region.str(), "layers.1");
}

// Somebody else may still want the whole.
TEST(Chunk, HandedOnAndPutTogether) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %o = aten::exp(%a) : f32[s0, 8] <norm>
    %b = aten::exp(%a) : f32[s0, 8] <layers.1>
    %c = aten::neg(%b) : f32[s0, 8] <layers.2>)",
                     R"(result "c" %c, result "o" %o)"});
  EXPECT_EQ(cut.LineOf("o"), "o = exp(a_whole)");
  EXPECT_EQ(cut.LineOf("b_chunk1"), "b_chunk1 = exp(a_chunk1)");
  EXPECT_EQ(cut.LineOf("c_chunk1"), "c_chunk1 = neg(b_chunk1)");
  EXPECT_EQ(cut.CountOf("aten::cat"), 2);
  EXPECT_EQ(cut.CountOf("aten::split_with_sizes"), 1);
}

// A whole value that several roots use is cut once.
TEST(Chunk, RootsShareThePiecesOfAWhole) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %b = aten::mul.Tensor(%a, %x) : f32[s0, 8] <layers.1>)",
                     R"(result "b" %b)"});
  EXPECT_EQ(cut.LineOf("b_chunk1"), "b_chunk1 = mul(a_chunk1, x_split_2)");
  EXPECT_EQ(cut.CountOf("aten::split_with_sizes"), 1);
}

// Modules are given contiguous inputs by the eager producer too.
TEST(Chunk, AStridedChunkIsCopiedForTheNextRootOnce) {
  Chunked cut = Cut({R"(
    %a = aten::view(%x, size = [s0, 2, 4]) : f32[s0, 2, 4] <layers.0>
    %t = aten::transpose.int(%a, dim0 = 1, dim1 = 2) : f32[s0, 4, 2]{8, 1, 4} <layers.0>
    %b = aten::exp(%t) : f32[s0, 4, 2]{8, 1, 4} <layers.0>
    %c = aten::neg(%b) : f32[s0, 4, 2]{8, 1, 4} <layers.1>
    %d = aten::mul.Tensor(%c, %b) : f32[s0, 4, 2]{8, 1, 4} <layers.1>)",
                     R"(result "d" %d)"});
  EXPECT_EQ(cut.CountOf("aten::clone"), 2);
  EXPECT_EQ(cut.LineOf("b_chunk0_contiguous"), "b_chunk0_contiguous = clone(b_chunk0)");
  EXPECT_EQ(cut.LineOf("c_chunk0"), "c_chunk0 = neg(b_chunk0_contiguous)");
  EXPECT_EQ(cut.LineOf("d_chunk1"), "d_chunk1 = mul(c_chunk1, b_chunk1_contiguous)");
  EXPECT_EQ(cut.TypeOf("c_chunk0"), "f32[floordiv(s0 + 1, 2), 4, 2]");
  EXPECT_EQ(cut.MetadataOf("b_chunk0_contiguous"),
            R"({module = "layers", chunk = {id = 0, region = "layers.1", role = chunk_input}})");
}

// Layouts.

constexpr std::string_view kSequences = R"(, %q: input "q" f32[4, s0, 8])";

// Pieces of a sequence lie apart, those of a batch do not.
TEST(Chunk, OnlyStridedPiecesAreCopied) {
  Chunked cut = Cut({R"(
    %a = aten::relu(%q) : f32[4, s0, 8] <layers.0>
    %b = aten::mul.Tensor(%a, %q) : f32[4, s0, 8] <layers.0>)",
                     R"(result "b" %b)", kSequences},
                    {.dim = ChunkDim::kSeq});
  EXPECT_EQ(cut.Story(), R"(q_split, q_split_2 = split_with_sizes(q)
q_split_contiguous = clone(q_split)
a_chunk0 = relu(q_split_contiguous)
b_chunk0 = mul(a_chunk0, q_split_contiguous)
q_split_2_contiguous = clone(q_split_2)
a_chunk1 = relu(q_split_2_contiguous)
b_chunk1 = mul(a_chunk1, q_split_2_contiguous)
b_whole = cat(b_chunk0, b_chunk1))");
  EXPECT_EQ(cut.PrintOf("q_split_contiguous"),
            "%q_split_contiguous = aten::clone(%q_split, memory_format = contiguous) : "
            "f32[4, floordiv(s0 + 1, 2), 8]");
  EXPECT_EQ(cut.MetadataOf("q_split_2_contiguous"),
            R"({module = "layers", chunk = {id = 1, region = "layers.0", role = chunk_input}})");
  EXPECT_EQ(cut.PrintOf("b_whole"),
            "%b_whole = aten::cat([%b_chunk0, %b_chunk1], dim = 1) : f32[4, s0, 8]");
}

// Tokens of a sequence may be flattened inside: each chunk flattens its own.
TEST(Chunk, SequencesAreFlattenedChunkByChunk) {
  Chunked cut = Cut({R"(
    %a = aten::view(%q, size = [s0 * 4, 8]) : f32[s0 * 4, 8] <layers.0>
    %h = aten::mm(%a, %w) : f32[s0 * 4, 8] <layers.0>
    %y = aten::view(%h, size = [4, s0, 8]) : f32[4, s0, 8] <layers.0>)",
                     R"(result "y" %y)", kSequences},
                    {.dim = ChunkDim::kSeq});
  EXPECT_EQ(cut.PrintOf("a_chunk0"),
            "%a_chunk0 = aten::view(%q_split_contiguous, size = [floordiv(s0 + 1, 2) * 4, 8]) : "
            "f32[floordiv(s0 + 1, 2) * 4, 8]");
  EXPECT_EQ(cut.LineOf("y_whole"), "y_whole = cat(y_chunk0, y_chunk1)");
}

// The batch is outermost, so that a flattened batch can be cut like any other.
TEST(Chunk, AFlattenedBatchIsCut) {
  Chunked cut = Cut({R"(
    %f = aten::view(%x, size = [s0 * 8]) : f32[s0 * 8] <embed>
    %a = aten::relu(%f) : f32[s0 * 8] <layers.0>)",
                     R"(result "a" %a)"});
  EXPECT_EQ(cut.PrintOf("f_split"),
            "%f_split, %f_split_2 = aten::split_with_sizes(%f, split_sizes = "
            "[floordiv(s0 + 1, 2) * 8, s0 * 8 - floordiv(s0 + 1, 2) * 8]) : "
            "(f32[floordiv(s0 + 1, 2) * 8], f32[s0 * 8 - floordiv(s0 + 1, 2) * 8]) "
            "offset [0, floordiv(s0 + 1, 2) * 8]");
  EXPECT_EQ(cut.TypeOf("a_whole"), "f32[s0 * 8]");
}

// What is put together is contiguous: users of a value that was not are made for what they now get.
TEST(Chunk, UsersOfAStridedWholeGetAContiguousOne) {
  Chunked cut = Cut({R"(
    %t = aten::t(%x) : f32[8, s0]{1, 8} <layers.0>
    %y = aten::exp(%t) : f32[8, s0]{1, 8} <layers.0>
    %n = aten::neg(%y) : f32[8, s0]{1, 8} {module = "norm", seq = 4}
    %m = aten::relu(%n) : f32[8, s0]{1, 8} <norm>
    %z = aten::relu(%m) : f32[8, s0]{1, 8} <layers.1>)",
                     R"(result "z" %z, result "y" %y)"});
  EXPECT_EQ(cut.PrintOf("y_whole"),
            "%y_whole = aten::cat([%y_chunk0, %y_chunk1], dim = 1) : f32[8, s0]");
  EXPECT_EQ(cut.PrintOf("n"), "%n = aten::neg(%y_whole) : f32[8, s0]");
  EXPECT_EQ(cut.MetadataOf("n"), R"({module = "norm", seq = 4})");
  EXPECT_EQ(cut.PrintOf("m"), "%m = aten::relu(%n) : f32[8, s0]");
  EXPECT_EQ(cut.LineOf("z_chunk1"), "z_chunk1 = relu(m_split_2_contiguous)");
  EXPECT_EQ(cut.TypeOf("z_whole"), "f32[8, s0]");
}

// Results of an operation that nobody uses are no reason to put anything together.
TEST(Chunk, UnusedResultsAreNotPutTogether) {
  Chunked cut = Cut({R"(
    %v, %i = aten::max.dim(%x, dim = 1) : (f32[s0], i64[s0]) <layers.0>)",
                     R"(result "v" %v)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
v_chunk0, i_chunk0 = max(x_split)
v_chunk1, i_chunk1 = max(x_split_2)
v_whole = cat(v_chunk0, v_chunk1))");
}

TEST(Chunk, LaterResultsArePutTogetherToo) {
  Chunked cut = Cut({R"(
    %v, %i = aten::max.dim(%x, dim = 1) : (f32[s0], i64[s0]) <layers.0>
    %n = aten::neg(%i) : i64[s0] <norm>)",
                     R"(result "n" %n)"});
  EXPECT_EQ(cut.LineOf("i_whole"), "i_whole = cat(i_chunk0, i_chunk1)");
  EXPECT_EQ(cut.LineOf("n"), "n = neg(i_whole)");
}

TEST(Chunk, OptionsAreReadBack) {
  Chunk pass({.modules = "layers.*.moe",
              .symbol = "s1",
              .dim = ChunkDim::kSeq,
              .chunks = 3,
              .strict = true,
              .keep_across_roots = false});
  EXPECT_EQ(pass.Spec(),
            "chunk{modules=layers.*.moe,symbol=s1,dim=seq,chunks=3,strict=true,"
            "keep_across_roots=false}");
  EXPECT_EQ(MakePass(pass.Spec())->Spec(), pass.Spec());
  EXPECT_EQ(Chunk().Spec(), "chunk");
  for (const char* wrong : {"chunk{chunks=1}", "chunk{modules=}", "chunk{symbol=}"}) {
    EXPECT_THROW(MakePass(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace gt::chunk_test
