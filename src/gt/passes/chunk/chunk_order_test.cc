// Where copies of chunks and the nodes between them stand, and in which order numbers are drawn.
#include <gtest/gtest.h>

#include "gt/passes/chunk/chunk.h"
#include "gt/passes/chunk/chunk_test_util.h"

namespace gt::chunk_order_test {
namespace {

using testing::Chunked;
using testing::Cut;

// The order of nodes.

TEST(ChunkOrder, NodesOutsideThatNeedTheBodyFollowIt) {
  Chunked cut = Cut({R"(
    %h = aten::mm(%x, %w) : f32[s0, 8] <layers.0>
    %o = aten::neg(%h) : f32[s0, 8] <norm>
    %p = aten::exp(%o) : f32[s0, 8] <norm>
    %i = aten::neg(%x) : f32[s0, 8] <norm>
    %y = aten::relu(%h) : f32[s0, 8] <layers.0>)",
                     R"(result "y" %y, result "p" %p, result "i" %i)"});
  EXPECT_EQ(cut.Story(), R"(i = neg(x)
x_split, x_split_2 = split_with_sizes(x)
h_chunk0 = mm(x_split, w)
y_chunk0 = relu(h_chunk0)
h_chunk1 = mm(x_split_2, w)
y_chunk1 = relu(h_chunk1)
y_whole = cat(y_chunk0, y_chunk1)
h_whole = cat(h_chunk0, h_chunk1)
o = neg(h_whole)
p = exp(o))");
}

// Two roots that need each other in turn come in stretches.
TEST(ChunkOrder, RootsMayTakeTurns) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %b = aten::exp(%a) : f32[s0, 8] <layers.1>
    %c = aten::relu(%b) : f32[s0, 8] <layers.0>
    %d = aten::mul.Tensor(%c, %a) : f32[s0, 8] <layers.1>)",
                     R"(result "d" %d)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = neg(x_split)
a_chunk1 = neg(x_split_2)
b_chunk0 = exp(a_chunk0)
b_chunk1 = exp(a_chunk1)
c_chunk0 = relu(b_chunk0)
c_chunk1 = relu(b_chunk1)
d_chunk0 = mul(c_chunk0, a_chunk0)
d_chunk1 = mul(c_chunk1, a_chunk1)
d_whole = cat(d_chunk0, d_chunk1))");
}

// A node of another root that needs nothing of this one does not come in between.
TEST(ChunkOrder, RootsThatDoNotNeedEachOtherStayInOnePiece) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %b = aten::exp(%x) : f32[s0, 8] <layers.1>
    %c = aten::relu(%a) : f32[s0, 8] <layers.0>
    %d = aten::mul.Tensor(%b, %c) : f32[s0, 8] <layers.1>)",
                     R"(result "d" %d)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = neg(x_split)
c_chunk0 = relu(a_chunk0)
a_chunk1 = neg(x_split_2)
c_chunk1 = relu(a_chunk1)
b_chunk0 = exp(x_split)
d_chunk0 = mul(b_chunk0, c_chunk0)
b_chunk1 = exp(x_split_2)
d_chunk1 = mul(b_chunk1, c_chunk1)
d_whole = cat(d_chunk0, d_chunk1))");
}

// The way may lead through a node outside, which gets the whole.
TEST(ChunkOrder, ABodyMayGoOnBehindANodeOutside) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %o = aten::flip(%a, dims = [0]) : f32[s0, 8] <norm>
    %y = aten::mul.Tensor(%a, %o) : f32[s0, 8] <layers.0>)",
                     R"(result "y" %y)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = neg(x_split)
a_chunk1 = neg(x_split_2)
a_whole = cat(a_chunk0, a_chunk1)
o = flip(a_whole)
o_split, o_split_2 = split_with_sizes(o)
y_chunk0 = mul(a_chunk0, o_split)
y_chunk1 = mul(a_chunk1, o_split_2)
y_whole = cat(y_chunk0, y_chunk1))");
}

TEST(ChunkOrder, ANodeOutsideMayNeedSeveralRoots) {
  Chunked cut = Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %b = aten::exp(%x) : f32[s0, 8] <layers.1>
    %o = aten::mul.Tensor(%a, %b) : f32[s0, 8] <norm>
    %c = aten::relu(%a) : f32[s0, 8] <layers.0>
    %d = aten::relu(%b) : f32[s0, 8] <layers.1>)",
                     R"(result "o" %o, result "c" %c, result "d" %d)"});
  EXPECT_EQ(cut.LineOf("o"), "o = mul(a_whole, b_whole)");
  EXPECT_EQ(cut.LineOf("c_chunk1"), "c_chunk1 = relu(a_chunk1)");
}

// Later nodes may have the sizes that it reads without using any value.
TEST(ChunkOrder, ANodeOutsideThatReadsSizesDoesNotWait) {
  Chunked cut =
      Cut({R"(
    %a = aten::neg(%x) : f32[s0, 8] <layers.0>
    %s = aten::sum(%a) : f32[] <norm>
    %i = aten::_to_copy(%s, dtype = i64) : i64[] <norm>
    gt::read_ints(%i) binds [u0] <norm>
    %z = aten::zeros(size = [u0], dtype = f32) : f32[u0] <norm>
    %y = aten::exp(%a) : f32[s0, 8] <layers.0>)",
           R"(result "y" %y, result "z" %z)", "", 4, "; u0: data, hint 2, range [0, inf]"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = neg(x_split)
a_chunk1 = neg(x_split_2)
a_whole = cat(a_chunk0, a_chunk1)
s = sum(a_whole)
i = _to_copy(s)
read_ints(i)
z = zeros()
y_chunk0 = exp(a_chunk0)
y_chunk1 = exp(a_chunk1)
y_whole = cat(y_chunk0, y_chunk1))");
}

// Nodes without results belong to bodies as well.
TEST(ChunkOrder, ChecksAreRepeated) {
  Chunked cut = Cut({R"(
    %m = aten::amax(%x) : f32[] <layers.0>
    aten::_assert_async(%m) <layers.0>
    %y = aten::relu(%x) : f32[s0, 8] <layers.0>)",
                     R"(result "y" %y)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
m_chunk0 = amax(x_split)
_assert_async(m_chunk0)
y_chunk0 = relu(x_split)
m_chunk1 = amax(x_split_2)
_assert_async(m_chunk1)
y_chunk1 = relu(x_split_2)
y_whole = cat(y_chunk0, y_chunk1))");
}

// Random numbers.

// Each chunk draws its own, in the order in which chunks run; also what does not grow with them.
TEST(ChunkOrder, EveryChunkDrawsItsOwnNumbers) {
  Chunked cut = Cut({R"(
    %d, %m = aten::native_dropout(%x, p = 0.5, train = true) : (f32[s0, 8], bool[s0, 8]) <layers.0>
    %r = aten::rand(size = [8], dtype = f32) : f32[8] <layers.0>
    %y = aten::mul.Tensor(%d, %r) : f32[s0, 8] <layers.0>
    %g = aten::native_dropout_backward(%y, %m, scale = 2.0) : f32[s0, 8] <layers.0 backward>)",
                     R"(result "g" %g)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
d_chunk0, m_chunk0 = native_dropout(x_split)
r_chunk0 = rand()
y_chunk0 = mul(d_chunk0, r_chunk0)
d_chunk1, m_chunk1 = native_dropout(x_split_2)
r_chunk1 = rand()
y_chunk1 = mul(d_chunk1, r_chunk1)
g_chunk1 = native_dropout_backward(y_chunk1, m_chunk1)
g_chunk0 = native_dropout_backward(y_chunk0, m_chunk0)
g_whole = cat(g_chunk0, g_chunk1))");
}

// The state in front of a chunk's draw is the one its backward draws from again.
TEST(ChunkOrder, NumbersAreDrawnAgainChunkByChunk) {
  Chunked cut = Cut({R"(
    %s = gt::generator_state(device = "cpu") : u8[5056] <layers.0>
    %d, %m = aten::native_dropout(%x, p = 0.5, train = true) : (f32[s0, 8], bool[s0, 8]) <layers.0>
    %o = gt::set_generator_state(%s, device = "cpu") : u8[5056] <layers.0 backward>
    %e, %n = aten::native_dropout(%x, p = 0.5, train = true) : (f32[s0, 8], bool[s0, 8]) <layers.0 backward>
    %b = gt::set_generator_state(%o, device = "cpu") : u8[5056] <layers.0 backward>
    %g = aten::native_dropout_backward(%d, %n, scale = 2.0) : f32[s0, 8] <layers.0 backward>)",
                     R"(result "g" %g)"});
  EXPECT_EQ(cut.Story(), R"(s_chunk0 = generator_state()
x_split, x_split_2 = split_with_sizes(x)
d_chunk0, m_chunk0 = native_dropout(x_split)
s_chunk1 = generator_state()
d_chunk1, m_chunk1 = native_dropout(x_split_2)
o_chunk1 = set_generator_state(s_chunk1)
e_chunk1, n_chunk1 = native_dropout(x_split_2)
b_chunk1 = set_generator_state(o_chunk1)
g_chunk1 = native_dropout_backward(d_chunk1, n_chunk1)
o_chunk0 = set_generator_state(s_chunk0)
e_chunk0, n_chunk0 = native_dropout(x_split)
b_chunk0 = set_generator_state(o_chunk0)
g_chunk0 = native_dropout_backward(d_chunk0, n_chunk0)
g_whole = cat(g_chunk0, g_chunk1))");
}

// A body does not wait past a draw of another module.
TEST(ChunkOrder, DrawsOfOtherModulesKeepTheirPlace) {
  Chunked cut = Cut({R"(
    %a = aten::bernoulli(%x) : f32[s0, 8] <layers.0>
    %r = aten::rand(size = [8], dtype = f32) : f32[8] <norm>
    %b = aten::bernoulli(%a) : f32[s0, 8] <layers.0>)",
                     R"(result "b" %b, result "r" %r)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = bernoulli(x_split)
a_chunk1 = bernoulli(x_split_2)
r = rand()
b_chunk0 = bernoulli(a_chunk0)
b_chunk1 = bernoulli(a_chunk1)
b_whole = cat(b_chunk0, b_chunk1))");
}

// Nor past one of another root.
TEST(ChunkOrder, DrawsOfOtherRootsKeepTheirPlace) {
  Chunked cut = Cut({R"(
    %a = aten::bernoulli(%x) : f32[s0, 8] <layers.0>
    %b = aten::bernoulli(%x) : f32[s0, 8] <layers.1>
    %c = aten::relu(%a) : f32[s0, 8] <layers.0>)",
                     R"(result "b" %b, result "c" %c)"});
  EXPECT_EQ(cut.Story(), R"(x_split, x_split_2 = split_with_sizes(x)
a_chunk0 = bernoulli(x_split)
a_chunk1 = bernoulli(x_split_2)
b_chunk0 = bernoulli(x_split)
b_chunk1 = bernoulli(x_split_2)
b_whole = cat(b_chunk0, b_chunk1)
c_chunk0 = relu(a_chunk0)
c_chunk1 = relu(a_chunk1)
c_whole = cat(c_chunk0, c_chunk1))");
}

}  // namespace
}  // namespace gt::chunk_order_test
