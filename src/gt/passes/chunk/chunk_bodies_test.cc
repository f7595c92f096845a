// What bodies contain, and what chunking makes of it: sizes in arguments, tensors made of sizes,
// nodes of other passes, collectives, buffers, sizes that data decides, and attention.
#include <gtest/gtest.h>

#include "gt/passes/chunk/chunk.h"
#include "gt/passes/chunk/chunk_test_util.h"

namespace gt::chunk_bodies_test {
namespace {

using testing::Chunked;
using testing::Cut;
using testing::StepText;

constexpr std::string_view kSequences = R"(, %q: input "q" f32[4, s0, 8])";

// Sizes in arguments.

TEST(ChunkBodies, ExpressionsOfTheExtentAreThoseOfTheChunk) {
  Chunked cut = Cut({R"(
    %v = aten::view(%x, size = [s0 * 2, 4]) : f32[s0 * 2, 4] <layers.0>
    %p = aten::constant_pad_nd(%v, pad = [0, 0, 0, floordiv(s0, 2)]) : f32[s0 * 2 + floordiv(s0, 2), 4] <layers.0>
    %c = aten::sum.dim_IntList(%p, dim = [0]) : f32[4] <layers.0>
    %m = aten::mul.Tensor(%v, %c) : f32[s0 * 2, 4] <layers.0>
    %u = aten::view(%m, size = [-1, 2, 4]) : f32[s0, 2, 4] <layers.0>
    %q = aten::slice.Tensor(%u, dim = 1, end = 1) : f32[s0, 1, 4]{8, 4, 1} <layers.0>
    %y = aten::squeeze.dims(%q, dim = [1]) : f32[s0, 4]{8, 1} <layers.0>
    %z = aten::exp(%y) : f32[s0, 4] <layers.0>)",
                     R"(result "z" %z)"});
  EXPECT_EQ(cut.PrintOf("v_chunk0"),
            "%v_chunk0 = aten::view(%x_split, size = [floordiv(s0 + 1, 2) * 2, 4]) : "
            "f32[floordiv(s0 + 1, 2) * 2, 4]");
  EXPECT_EQ(cut.PrintOf("p_chunk0"),
            "%p_chunk0 = aten::constant_pad_nd(%v_chunk0, pad = [0, 0, 0, "
            "floordiv(floordiv(s0 + 1, 2), 2)]) : "
            "f32[floordiv(s0 + 1, 2) * 2 + floordiv(floordiv(s0 + 1, 2), 2), 4]");
  EXPECT_EQ(cut.PrintOf("u_chunk0"),
            "%u_chunk0 = aten::view(%m_chunk0, size = [-1, 2, 4]) : "
            "f32[floordiv(s0 + 1, 2), 2, 4]");
  EXPECT_EQ(cut.PrintOf("y_chunk1"),
            "%y_chunk1 = aten::squeeze.dims(%q_chunk1, dim = [1]) : "
            "f32[s0 - floordiv(s0 + 1, 2), 4]{8, 1}");
  EXPECT_EQ(cut.TypeOf("z_whole"), "f32[s0, 4]");
}

// A size that is a multiple of the extent only for this step is taken as one, under a guard.
TEST(ChunkBodies, AnExtentThatIsNotSpelledAsAMultiple) {
  Chunked cut = Cut({R"(
    %y = aten::zeros(size = [floordiv(s0 + 1, 2) * 4, 8], dtype = f32) : f32[floordiv(s0 + 1, 2) * 4, 8] <embed>
    %z = aten::relu(%y) : f32[floordiv(s0 + 1, 2) * 4, 8] <layers.0>
    %l = aten::sum(%z) : f32[] <head loss>)",
                     R"(loss "l" %l)"});
  EXPECT_EQ(cut.LineOf("z_chunk0"), "z_chunk0 = relu(y_split)");
  EXPECT_EQ(cut.graph().shapes().Hint(cut.graph().FindValue("y_split")->type().sizes[0]), 4);
  ASSERT_FALSE(cut.graph().shapes().guards().empty());
  const Dim size = FloorDiv(Dim::Symbol(0) + 1, 2) * 4;
  EXPECT_EQ(cut.graph().shapes().guards()[0].predicate, Predicate::Equal(size, Dim::Symbol(0) * 2));
}

// What is made of sizes alone is made for each chunk from its own: positions count from 0.
TEST(ChunkBodies, TensorsMadeOfSizesAreMadeForEachChunk) {
  Chunked cut = Cut({R"(
    %r = aten::arange(s0) : i64[s0] <layers.0>
    %f = aten::flip(%r, dims = [0]) : i64[s0] <layers.0>
    %i = aten::index.Tensor(%x, [%f]) : f32[s0, 8] <layers.0>
    %z = aten::zeros(size = [s0 + 2, 8], dtype = f32) : f32[s0 + 2, 8] <layers.0>
    %e = aten::empty_strided(size = [s0, 8], stride = [8, 1], dtype = f32) : f32[s0, 8] <layers.0>
    %n = aten::new_zeros(%w, size = [s0, 8]) : f32[s0, 8] <layers.0>
    %s = aten::slice.Tensor(%z, start = 2) : f32[s0, 8] offset [16] <layers.0>
    %a = aten::add.Tensor(%i, %e) : f32[s0, 8] <layers.0>
    %b = aten::add.Tensor(%s, %n) : f32[s0, 8] <layers.0>
    %y = aten::add.Tensor(%a, %b) : f32[s0, 8] <layers.0>)",
                     R"(result "y" %y)"});
  EXPECT_EQ(cut.PrintOf("r_chunk0"),
            "%r_chunk0 = aten::arange(end = floordiv(s0 + 1, 2)) : i64[floordiv(s0 + 1, 2)]");
  EXPECT_EQ(cut.LineOf("f_chunk1"), "f_chunk1 = flip(r_chunk1)");
  EXPECT_EQ(cut.LineOf("i_chunk1"), "i_chunk1 = index(x_split_2, f_chunk1)");
  EXPECT_EQ(cut.PrintOf("z_chunk0"),
            "%z_chunk0 = aten::zeros(size = [floordiv(s0 + 1, 2) + 2, 8], dtype = f32) : "
            "f32[floordiv(s0 + 1, 2) + 2, 8]");
  EXPECT_EQ(cut.TypeOf("e_chunk0"), "f32[floordiv(s0 + 1, 2), 8]");
  EXPECT_EQ(cut.LineOf("n_chunk0"), "n_chunk0 = new_zeros(w)");
  EXPECT_EQ(cut.TypeOf("n_chunk0"), "f32[floordiv(s0 + 1, 2), 8]");
  EXPECT_EQ(cut.CountOf("aten::split_with_sizes"), 1);
}

// Equal ones of several roots may have become one.
TEST(ChunkBodies, TensorsMadeOfSizesAreSharedByRoots) {
  for (bool keep : {true, false}) {
    Chunked cut = Cut({R"(
      %r = aten::arange(s0) : i64[s0] <layers.0>
      %a = aten::index.Tensor(%x, [%r]) : f32[s0, 8] <layers.0>
      %b = aten::index.Tensor(%x, [%r]) : f32[s0, 8] <layers.1>)",
                       R"(result "a" %a, result "b" %b)"},
                      {.keep_across_roots = keep});
    EXPECT_EQ(cut.LineOf("b_chunk0"), "b_chunk0 = index(x_split, r_chunk0)");
    EXPECT_EQ(cut.LineOf("b_chunk1"), "b_chunk1 = index(x_split_2, r_chunk1)");
    EXPECT_EQ(cut.CountOf("aten::arange"), 2);
  }
}

// Also when the one that is left belongs to a layer that is not cut itself.
TEST(ChunkBodies, TensorsMadeOfSizesByADenseLayerAreMadeAnew) {
  Chunked cut = Cut({R"(
    %r = aten::arange(s0) : i64[s0] <layers.0 dense>
    %f = aten::flip(%r, dims = [0]) : i64[s0] <layers.0 dense>
    %a = aten::index.Tensor(%x, [%f]) : f32[s0, 8] <layers.0 dense>
    %b = aten::index.Tensor(%a, [%f]) : f32[s0, 8] <layers.1>
    %c = aten::index.Tensor(%b, [%f]) : f32[s0, 8] <layers.2>)",
                     R"(result "c" %c)"});
  EXPECT_EQ(cut.Story(), R"(r = arange()
f = flip(r)
a = index(x, f)
a_split, a_split_2 = split_with_sizes(a)
arange = arange()
flip = flip(arange)
b_chunk0 = index(a_split, flip)
arange_2 = arange()
flip_2 = flip(arange_2)
b_chunk1 = index(a_split_2, flip_2)
c_chunk0 = index(b_chunk0, flip)
c_chunk1 = index(b_chunk1, flip_2)
c_whole = cat(c_chunk0, c_chunk1))");
  EXPECT_EQ(
      cut.PrintOf("arange_2"),
      "%arange_2 = aten::arange(end = s0 - floordiv(s0 + 1, 2)) : i64[s0 - floordiv(s0 + 1, 2)]");
  EXPECT_EQ(cut.MetadataOf("flip_2"),
            R"({module = "layers", chunk = {id = 1, region = "layers.1", role = chunk_input}})");
}

// Another module's are data that it hands over, such as positions.
TEST(ChunkBodies, TensorsMadeOfSizesByOtherModulesAreCut) {
  Chunked cut = Cut({R"(
    %r = aten::arange(s0) : i64[s0] <embed>
    %a = aten::index.Tensor(%x, [%r]) : f32[s0, 8] <layers.0>)",
                     R"(result "a" %a)"});
  EXPECT_EQ(cut.LineOf("a_chunk1"), "a_chunk1 = index(x_split_2, r_split_2)");
  EXPECT_EQ(cut.CountOf("aten::arange"), 1);
}

// Positions of the chunks put together are not the positions of the whole.
TEST(ChunkBodies, OthersKeepWhatWasMadeOfTheWholeSizes) {
  Chunked cut = Cut({R"(
    %r = aten::arange(s0) : i64[s0] <layers.0>
    %a = aten::index.Tensor(%x, [%r]) : f32[s0, 8] <layers.0>
    %b = aten::index.Tensor(%a, [%r]) : f32[s0, 8] <norm>)",
                     R"(result "b" %b, result "r" %r)"});
  EXPECT_EQ(cut.LineOf("a_chunk1"), "a_chunk1 = index(x_split_2, r_chunk1)");
  EXPECT_EQ(cut.PrintOf("r"), "%r = aten::arange(end = s0) : i64[s0]");
  EXPECT_EQ(cut.LineOf("b"), "b = index(a_whole, r)");
  EXPECT_EQ(cut.OutputsLine(), "b r");
}

// Nodes of other passes.

// Recomputed and offloaded values are cut like any others, and keep their tags.
TEST(ChunkBodies, RecomputedAndOffloadedNodesAreRepeated) {
  Chunked cut = Cut({R"(
    %a = aten::exp(%x) : f32[s0, 8] {module = "layers.0", ep = compute, recompute = offload}
    %b = aten::relu(%x) : f32[s0, 8] {module = "layers.0", recompute = prefer_recompute}
    %out = gt::offload(%a) : f32[s0, 8] <layers.0>
    %host = gt::wait_transfer(%out, %a) : f32[s0, 8] <layers.0>
    %l = aten::sum(%b) : f32[] <head loss>
    %in = gt::reload(%host, device = "cpu") : f32[s0, 8] <layers.0 backward>
    %b_recomputed = aten::relu(%x) : f32[s0, 8] {module = "layers.0", phase = backward, recompute = prefer_recompute}
    %back = gt::wait_transfer(%in, %host) : f32[s0, 8] <layers.0 backward>
    %g = aten::mul.Tensor(%b_recomputed, %back) : f32[s0, 8] <layers.0 backward>)",
                     R"(loss "l" %l, result "g" %g)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = exp(x_split)
b_chunk0 = relu(x_split)
out_chunk0 = offload(a_chunk0)
host_chunk0 = wait_transfer(out_chunk0, a_chunk0)
a_chunk1 = exp(x_split_2)
b_chunk1 = relu(x_split_2)
out_chunk1 = offload(a_chunk1)
host_chunk1 = wait_transfer(out_chunk1, a_chunk1)
b_whole = cat(b_chunk0, b_chunk1)
l = sum(b_whole)
in_chunk1 = reload(host_chunk1)
b_recomputed_chunk1 = relu(x_split_2)
back_chunk1 = wait_transfer(in_chunk1, host_chunk1)
g_chunk1 = mul(b_recomputed_chunk1, back_chunk1)
in_chunk0 = reload(host_chunk0)
b_recomputed_chunk0 = relu(x_split)
back_chunk0 = wait_transfer(in_chunk0, host_chunk0)
g_chunk0 = mul(b_recomputed_chunk0, back_chunk0)
g_whole = cat(g_chunk0, g_chunk1))");
  EXPECT_EQ(cut.NodeOf("a_chunk1").meta().recompute, Recompute::kOffload);
  EXPECT_EQ(cut.NodeOf("b_recomputed_chunk0").meta().recompute, Recompute::kPreferRecompute);
}

// Sequences are gathered from the ranks of a tensor-parallel group and reduced back inside of a
// block whose batch is cut: every chunk gathers its own rows.
TEST(ChunkBodies, CollectivesAlongOtherDimensionsAreRepeated) {
  Chunked cut = Cut({R"(
    %g = _c10d_functional::all_gather_into_tensor(%q, group_size = 2, group_name = "tp") : f32[s0 * 2, 16, 8] <layers.0>
    %a = _c10d_functional::wait_tensor(%g) : f32[s0 * 2, 16, 8] <layers.0>
    %b, %c = aten::split.Tensor(%a, split_size = s0) : (f32[s0, 16, 8], f32[s0, 16, 8]) offset [0, s0 * 128] <layers.0>
    %d = aten::cat([%b, %c], dim = 1) : f32[s0, 32, 8] <layers.0>
    %e, %f = aten::split.Tensor(%d, split_size = 16, dim = 1) : (f32[s0, 16, 8]{256, 8, 1}, f32[s0, 16, 8]{256, 8, 1}) offset [0, 128] <layers.0>
    %h = aten::cat([%e, %f]) : f32[s0 * 2, 16, 8] <layers.0>
    %i = _c10d_functional::reduce_scatter_tensor(%h, reduce_op = "sum", group_size = 2, group_name = "tp") : f32[s0, 16, 8] <layers.0>
    %y = _c10d_functional::wait_tensor(%i) : f32[s0, 16, 8] <layers.0>)",
                     R"(result "y" %y)", R"(, %q: input "q" f32[s0, 16, 8])"});
  EXPECT_EQ(cut.LineOf("g_chunk1"), "g_chunk1 = all_gather_into_tensor(q_split_2)");
  EXPECT_EQ(cut.TypeOf("a_chunk0"), "f32[floordiv(s0 + 1, 2) * 2, 16, 8]");
  EXPECT_EQ(cut.TypeOf("d_chunk0"), "f32[floordiv(s0 + 1, 2), 32, 8]");
  EXPECT_EQ(cut.LineOf("i_chunk1"), "i_chunk1 = reduce_scatter_tensor(h_chunk1)");
  EXPECT_EQ(cut.TypeOf("y_chunk1"), "f32[s0 - floordiv(s0 + 1, 2), 16, 8]");
  EXPECT_EQ(cut.LineOf("y_whole"), "y_whole = cat(y_chunk0, y_chunk1)");
  EXPECT_EQ(cut.CountOf("_c10d_functional::all_gather_into_tensor"), 2);
  EXPECT_EQ(cut.CountOf("_c10d_functional::reduce_scatter_tensor"), 2);
}

// What a collective gathered in front of the root is cut along another dimension than the ranks'.
TEST(ChunkBodies, WhatACollectiveGatheredIsCutAlongOtherDimensions) {
  Chunked cut = Cut({R"(
    %g = _c10d_functional::all_gather_into_tensor(%q, group_size = 2, group_name = "tp") : f32[8, s0, 8] <embed>
    %a = _c10d_functional::wait_tensor(%g) : f32[8, s0, 8] <embed>
    %y = aten::relu(%a) : f32[8, s0, 8] <layers.0>)",
                     R"(result "y" %y)", kSequences},
                    {.dim = ChunkDim::kSeq});
  EXPECT_EQ(cut.LineOf("a_split"), "a_split, a_split_2 = split_with_sizes(a)");
  EXPECT_EQ(cut.TypeOf("y_chunk0"), "f32[8, floordiv(s0 + 1, 2), 8]");
}

// Buffers.

// A chunk finds in a buffer what the chunk before left there, also where it reads it only.
TEST(ChunkBodies, BuffersAreHandedFromChunkToChunk) {
  Chunked cut = Cut({R"(
    %s = aten::mul.Tensor(%x, %b) : f32[s0, 8] <layers.0>
    %c = aten::sum.dim_IntList(%s, dim = [0]) : f32[8] <layers.0>
    %n = aten::add.Tensor(%b, %c) : f32[8] <layers.0>
    %g = aten::mul.Tensor(%s, %b) : f32[s0, 8] <layers.0 backward>)",
                     R"(update "b" %n, result "g" %g)", R"(, %b: buffer "b" f32[8])"},
                    {.chunks = 3});
  EXPECT_EQ(cut.LineOf("s_chunk0"), "s_chunk0 = mul(x_split, b)");
  EXPECT_EQ(cut.LineOf("n_chunk0"), "n_chunk0 = add(b, c_chunk0)");
  EXPECT_EQ(cut.LineOf("s_chunk1"), "s_chunk1 = mul(x_split_2, n_chunk0)");
  EXPECT_EQ(cut.LineOf("n_chunk1"), "n_chunk1 = add(n_chunk0, c_chunk1)");
  EXPECT_EQ(cut.LineOf("s_chunk2"), "s_chunk2 = mul(x_split_3, n_chunk1)");
  EXPECT_EQ(cut.LineOf("n_chunk2"), "n_chunk2 = add(n_chunk1, c_chunk2)");
  EXPECT_EQ(cut.LineOf("g_chunk0"), "g_chunk0 = mul(s_chunk0, b)");
  EXPECT_EQ(cut.LineOf("g_chunk2"), "g_chunk2 = mul(s_chunk2, n_chunk1)");
  EXPECT_EQ(cut.OutputsLine(), "n_chunk2 g_whole");
  EXPECT_EQ(cut.Count("sums"), 0);
}

// A node outside that reads the new value reads the last chunk's.
TEST(ChunkBodies, TheLastChunkLeavesTheBuffer) {
  Chunked cut = Cut({R"(
    %c = aten::sum.dim_IntList(%x, dim = [0]) : f32[8] <layers.0>
    %n = aten::add.Tensor(%b, %c) : f32[8] <layers.0>
    %o = aten::neg(%n) : f32[8] <norm>)",
                     R"(update "b" %n, result "o" %o)", R"(, %b: buffer "b" f32[8])"});
  EXPECT_EQ(cut.LineOf("o"), "o = neg(n_chunk1)");
  EXPECT_EQ(cut.OutputsLine(), "n_chunk1 o");
}

// One that another root changes is read as it was when the step began.
TEST(ChunkBodies, BuffersOfAnotherRootAreNotHandedOn) {
  Chunked cut = Cut({R"(
    %a = aten::mul.Tensor(%x, %b) : f32[s0, 8] <layers.0>
    %c = aten::sum.dim_IntList(%x, dim = [0]) : f32[8] <layers.1>
    %n = aten::add.Tensor(%b, %c) : f32[8] <layers.1>)",
                     R"(update "b" %n, result "a" %a)", R"(, %b: buffer "b" f32[8])"});
  EXPECT_EQ(cut.LineOf("a_chunk0"), "a_chunk0 = mul(x_split, b)");
  EXPECT_EQ(cut.LineOf("a_chunk1"), "a_chunk1 = mul(x_split_2, b)");
}

// Nor is one that is changed outside, or not at all.
TEST(ChunkBodies, OtherBuffersAreSharedByTheChunks) {
  Chunked cut = Cut({R"(
    %y = aten::mul.Tensor(%x, %b) : f32[s0, 8] <layers.0>
    %z = aten::mul.Tensor(%y, %c) : f32[s0, 8] <layers.0>
    %s = aten::sum.dim_IntList(%z, dim = [0]) : f32[8] <norm>
    %n = aten::add.Tensor(%b, %s) : f32[8] <norm>)",
                     R"(update "b" %n)", R"(, %b: buffer "b" f32[8], %c: buffer "c" f32[8])"});
  EXPECT_EQ(cut.LineOf("y_chunk1"), "y_chunk1 = mul(x_split_2, b)");
  EXPECT_EQ(cut.LineOf("z_chunk1"), "z_chunk1 = mul(y_chunk1, c)");
  EXPECT_EQ(cut.LineOf("n"), "n = add(b, s)");
}

// Values without the symbol.

// Counts cannot be made from those of the chunks, but the chunk's backward needs only its own.
TEST(ChunkBodies, WhatTheForwardKeepsStaysWithItsChunk) {
  Chunked cut = Cut({R"(
    %c = aten::amax(%x, dim = [0]) : f32[8] <layers.0>
    %y = aten::mul.Tensor(%x, %c) : f32[s0, 8] <layers.0>
    %l = aten::sum(%y) : f32[] <head loss>
    %g = aten::mul.Tensor(%y, %l) : f32[s0, 8] <head backward>
    %gx = aten::mul.Tensor(%g, %c) : f32[s0, 8] <layers.0 backward>)",
                     R"(loss "l" %l, result "gx" %gx)"});
  EXPECT_EQ(cut.LineOf("c_chunk1"), "c_chunk1 = amax(x_split_2)");
  EXPECT_EQ(cut.LineOf("gx_chunk1"), "gx_chunk1 = mul(g_split_2, c_chunk1)");
  EXPECT_EQ(cut.LineOf("gx_chunk0"), "gx_chunk0 = mul(g_split, c_chunk0)");
  EXPECT_EQ(cut.CountOf("aten::add.Tensor"), 0);
}

// Sizes that data decides: tokens are counted, the counts are read, and rows travel by them.
constexpr StepText kExchange = {
    R"(
  %v = aten::view(%x, size = [s0 * 8]) : f32[s0 * 8] <layers.0>
  %c = aten::histc(%v, bins = 2) : f32[2] <layers.0>
  gt::read_ints(%n) binds [u2] {module = "embed"}
  %i = aten::_to_copy(%c, dtype = i64) : i64[2] <layers.0>
  gt::read_ints(%i) binds [u0, u1] {module = "layers.0", ep = dispatch, exchange = count_sync}
  %a = _c10d_functional::all_to_all_single(%x, output_split_sizes = [u2, u1], input_split_sizes = [u0, u1], group_name = "ep") : f32[u2 + u1, 8] {module = "layers.0", ep = dispatch, exchange = exchange}
  %b = _c10d_functional::wait_tensor(%a) : f32[u2 + u1, 8] <layers.0>
  %r = aten::arange(u1 + u2) : i64[u2 + u1] <layers.0>
  %d = aten::index.Tensor(%b, [%r]) : f32[u2 + u1, 8] <layers.0>
  %h = aten::mm(%d, %w) : f32[u2 + u1, 8] <layers.0>
  %e = _c10d_functional::all_to_all_single(%h, output_split_sizes = [u0, u1], input_split_sizes = [u2, u1], group_name = "ep") : f32[u0 + u1, 8] {module = "layers.0", ep = combine, exchange = exchange}
  %f = _c10d_functional::wait_tensor(%e) : f32[u0 + u1, 8] <layers.0>
  %y = aten::add.Tensor(%f, %x) : f32[s0, 8] <layers.0>)",
    R"(result "y" %y)",
    R"(, %n: input "n" i64[1])",
    5,
    R"(; u2: data, hint 2, range [0, 12]; u0: data, hint 2, range [0, inf]; u1: data, hint 3, range [1, 9])",
    "u0 + u1 == s0"};

TEST(ChunkBodies, SizesOfDataAreReadForEachChunk) {
  Chunked cut = Cut(kExchange);
  const ShapeEnv& shapes = cut.graph().shapes();
  // Two for each chunk beside those that were there; u2 is read in front of the module.
  ASSERT_EQ(shapes.symbols().size(), 8U);
  const auto hint = [&](size_t id) { return shapes.symbols()[id].hint; };
  EXPECT_EQ(hint(4) + hint(5), 3);
  EXPECT_EQ(hint(6) + hint(7), 2);
  EXPECT_EQ(shapes.symbols()[5].low, 1);
  EXPECT_EQ(shapes.symbols()[5].high, 9);
  EXPECT_EQ(shapes.symbols()[4].high, kUnbounded);
  ASSERT_EQ(shapes.facts().size(), 3U);
  const Dim first = Dim::Symbol(4) + Dim::Symbol(5), second = Dim::Symbol(6) + Dim::Symbol(7);
  EXPECT_EQ(shapes.KnownEqual(first, FloorDiv(Dim::Symbol(0) + 1, 2)), true);
  EXPECT_EQ(shapes.KnownEqual(first + second, Dim::Symbol(0)), true);
  const auto name = [&](size_t id) { return shapes.symbols()[id].name; };
  const std::string rows = cut.TypeOf("b_chunk1");
  EXPECT_EQ(rows, fmt::format("f32[u2 + {}, 8]", name(7)));
  EXPECT_EQ(cut.TypeOf("r_chunk1"), fmt::format("i64[u2 + {}]", name(7)));
  EXPECT_EQ(cut.PrintOf("e_chunk0"),
            fmt::format("%e_chunk0 = _c10d_functional::all_to_all_single(%h_chunk0, "
                        "output_split_sizes = [{0}, {1}], input_split_sizes = [u2, {1}], "
                        "group_name = \"ep\") : f32[{0} + {1}, 8]",
                        name(4), name(5)));
  EXPECT_EQ(cut.CountOf("gt::read_ints"), 3);
  EXPECT_EQ(cut.LineOf("y_chunk1"), "y_chunk1 = add(f_chunk1, x_split_2)");
}

TEST(ChunkBodies, LabelsOfTheExchangeStay) {
  Chunked cut = Cut(kExchange);
  const Meta& sent = cut.NodeOf("a_chunk1").meta();
  EXPECT_EQ(sent.ep_role, EpRole::kDispatch);
  EXPECT_EQ(sent.exchange, TokenExchange::kExchange);
  int syncs = 0;
  for (const Node* node : cut.graph().nodes()) {
    if (node->meta().exchange != TokenExchange::kCountSync) continue;
    EXPECT_EQ(node->meta().chunk->id, syncs++);
    EXPECT_EQ(node->meta().chunk->role, ChunkRole::kBody);
    EXPECT_TRUE(node->meta().chunk->original.empty());
  }
  EXPECT_EQ(syncs, 2);
}

// The backward sends rows along the sizes that its chunk read in the forward.
TEST(ChunkBodies, TheBackwardUsesTheSizesOfItsChunk) {
  StepText step = kExchange;
  const std::string nodes =
      std::string(step.nodes) +
      "\n%g = aten::zeros(size = [u1, 8], dtype = f32) : f32[u1, 8] <layers.0 backward>"
      "\n%k = aten::mm(%g, %w) : f32[u1, 8] <layers.0 backward>"
      "\n%gt = aten::t(%k) : f32[8, u1]{1, 8} <layers.0 backward>"
      "\n%gw = aten::mm(%gt, %k) : f32[8, 8] <layers.0 backward>";
  step.nodes = nodes;
  step.outputs = R"(result "y" %y, gradient "w" %gw)";
  Chunked cut = Cut(step);
  const auto& symbols = cut.graph().shapes().symbols();
  EXPECT_EQ(cut.TypeOf("g_chunk0"), fmt::format("f32[{}, 8]", symbols[5].name));
  EXPECT_EQ(cut.TypeOf("g_chunk1"), fmt::format("f32[{}, 8]", symbols[7].name));
  EXPECT_EQ(cut.LineOf("gw_sum"), "gw_sum = add(gw_chunk1, gw_chunk0)");
}

// Facts about sizes are those of the chunk however the sizes are read.
TEST(ChunkBodies, SizesOfDataMayBeReadInAnyOrder) {
  Chunked cut = Cut({R"(
    %v = aten::view(%x, size = [s0 * 8]) : f32[s0 * 8] <layers.0>
    %c = aten::histc(%v, bins = 1) : f32[1] <layers.0>
    %i = aten::_to_copy(%c, dtype = i64) : i64[1] <layers.0>
    gt::read_ints(%i) binds [u1] <layers.0>
    gt::read_ints(%i) binds [u0] <layers.0>
    %a = _c10d_functional::all_to_all_single(%x, output_split_sizes = [u0, u1], input_split_sizes = [u0, u1], group_name = "ep") : f32[u0 + u1, 8] <layers.0>
    %y = _c10d_functional::wait_tensor(%a) : f32[u0 + u1, 8] <layers.0>
    %z = aten::add.Tensor(%y, %x) : f32[s0, 8] <layers.0>)",
                     R"(result "z" %z)", "", 4,
                     R"(; u0: data, hint 2, range [0, inf]; u1: data, hint 2, range [0, inf])",
                     "u0 + u1 == s0"});
  EXPECT_EQ(cut.TypeOf("z_whole"), "f32[s0, 8]");
  EXPECT_EQ(cut.graph().shapes().facts().size(), 3U);
}

// Attention.

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
TEST(ChunkBodies, FunctionsOfAttentionSeeTheTensorsOfTheChunk) {
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
  Chunked cut = Cut(std::move(graph));
  EXPECT_EQ(cut.LineOf("a1_chunk1"),
            "a1_chunk1, l1_chunk1 = flex_attention(q_split_2, q_split_2, q_split_2, doc_split_2)");
  const char* const types[] = {"i32[floordiv(s0 + 1, 2), 16]", "i32[s0 - floordiv(s0 + 1, 2), 16]"};
  for (const char* arg : {"score_mod", "mask_mod"}) {
    for (int chunk : {0, 1}) {
      const GraphRef mine = FunctionOf(cut.graph(), fmt::format("a0_chunk{}", chunk), arg);
      EXPECT_EQ(Print(mine->inputs().back()->value.type(), cut.graph().shapes()), types[chunk]);
      EXPECT_EQ(FunctionOf(cut.graph(), fmt::format("a1_chunk{}", chunk), arg), mine);
    }
  }
  EXPECT_EQ(Print(whole->inputs().back()->value.type(), cut.graph().shapes()), "i32[s0, 16]");
}

// A function that looks nothing up fits every chunk.
TEST(ChunkBodies, FunctionsWithoutTensorsAreShared) {
  std::string score(kScore);
  score.replace(score.find(", %d: input \"d\" i32[s0, 16]"), 27, "");
  const std::string node = fmt::format(
      "%a, %l = gt::flex_attention(%q, %q, %q, [], score_mod = {}, mask_mod = none, scale = 0.5) : "
      "(f32[s0, 2, 16, 8]{{256, 8, 16, 1}}, f32[s0, 2, 16]) <layers.0>",
      score);
  auto graph =
      Parse(StepText{node, R"(result "a" %a)", R"(, %q: input "q" f32[s0, 2, 16, 8])"}.Text());
  const GraphRef whole = FunctionOf(*graph, "a", "score_mod");
  Chunked cut = Cut(std::move(graph));
  EXPECT_EQ(FunctionOf(cut.graph(), "a_chunk0", "score_mod"), whole);
  EXPECT_EQ(FunctionOf(cut.graph(), "a_chunk1", "score_mod"), whole);
}

}  // namespace
}  // namespace gt::chunk_bodies_test
