// How chunking adds up the gradients of parameters: where the sums stand, and in which order they
// are made.
#include <gtest/gtest.h>

#include "gt/passes/chunk/chunk.h"
#include "gt/passes/chunk/chunk_test_util.h"

namespace gt::chunk_gradients_test {
namespace {

using testing::Chunked;
using testing::Cut;
using testing::StepText;

constexpr std::string_view kInputs =
    R"(, %v: param "v" bf16[8, 8], %s: param "shard" f32[4, 8], %p: param "part" bf16[3, 8], %y: input "y" bf16[s0, 8])";

// %t and %y make gradients of rows, in bf16; `nodes` makes the step's gradients of them.
StepText Backward(std::string_view outputs, std::string& storage, const std::string& nodes) {
  storage =
      "%t = aten::t(%y) : bf16[8, s0]{1, 8} <layers.0 backward>\n"
      "%f = aten::relu(%y) : bf16[s0, 8] <layers.0>\n" +
      nodes;
  return {.nodes = storage, .outputs = outputs, .inputs = kInputs};
}

// As FSDP has it: the gradient is widened and reduced over the ranks.
const std::string kReduced = R"(
  %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
  %c = aten::_to_copy(%g, dtype = f32) : f32[8, 8] <layers.0 backward>
  %r = _c10d_functional::reduce_scatter_tensor(%c, reduce_op = "sum", group_size = 2, group_name = "dp") : f32[4, 8] <layers.0 backward>
  %d = _c10d_functional::wait_tensor(%r) : f32[4, 8] <layers.0 backward>)";

// What stands behind the copies of the body.
std::string StoryFrom(const Chunked& cut, std::string_view value) {
  const std::string story = cut.Story();
  return story.substr(story.find(fmt::format("{} = ", value)));
}

TEST(ChunkGradients, AreAddedInFrontOfTheirCollective) {
  std::string nodes;
  Chunked cut = Cut(Backward(R"(gradient "shard" %d)", nodes, kReduced));
  EXPECT_EQ(StoryFrom(cut, "t_chunk1"), R"(t_chunk1 = t(y_split_2)
g_chunk1 = mm(t_chunk1, y_split_2)
c_chunk1 = _to_copy(g_chunk1)
t_chunk0 = t(y_split)
g_chunk0 = mm(t_chunk0, y_split)
c_chunk0 = _to_copy(g_chunk0)
c_sum = add(c_chunk1, c_chunk0)
r = reduce_scatter_tensor(c_sum)
d = wait_tensor(r))");
  EXPECT_EQ(cut.OutputsLine(), "d");
  EXPECT_EQ(cut.NodeOf("c_sum").meta().chunk->proof, ChunkProof::kBackwardPartialSum);
  EXPECT_EQ(cut.NodeOf("c_sum").meta().phase, Phase::kBackward);
  EXPECT_EQ(cut.NodeOf("r").meta().chunk, nullptr);
}

TEST(ChunkGradients, StrictSumsAreMadeOfReducedGradients) {
  std::string nodes;
  Chunked cut =
      Cut(Backward(R"(gradient "shard" %d)", nodes, kReduced), {.chunks = 3, .strict = true});
  EXPECT_EQ(cut.CountOf("_c10d_functional::reduce_scatter_tensor"), 3);
  EXPECT_EQ(cut.LineOf("r_chunk2"), "r_chunk2 = reduce_scatter_tensor(c_chunk2)");
  EXPECT_EQ(cut.LineOf("d_sum"), "d_sum = add(d_chunk2, d_chunk1)");
  EXPECT_EQ(cut.LineOf("d_sum_2"), "d_sum_2 = add(d_sum, d_chunk0)");
  EXPECT_EQ(cut.OutputsLine(), "d_sum_2");
  EXPECT_EQ(cut.NodeOf("d_sum").meta().chunk->proof, ChunkProof::kOutputPartialSum);
  EXPECT_EQ(cut.NodeOf("r_chunk2").meta().chunk->role, ChunkRole::kBody);
}

// Replicas add up their shards, views cut off padding, and the result is narrowed again: all of it
// happens once, and the sum is still made in the wider type.
TEST(ChunkGradients, EverythingBehindTheWideningIsDoneOnce) {
  std::string nodes;
  const std::string more = kReduced + R"(
    %n = aten::slice.Tensor(%d, end = 3) : f32[3, 8] <layers.0 backward>
    %a = _c10d_functional::all_reduce(%n, reduce_op = "sum", group_name = "replicas") : f32[3, 8] <layers.0 backward>
    %b = _c10d_functional::wait_tensor(%a) : f32[3, 8] <layers.0 backward>
    %m = aten::div.Tensor(%b, 4.0) : f32[3, 8] <layers.0 backward>
    %o = aten::_to_copy(%m, dtype = bf16) : bf16[3, 8] <layers.0 backward>)";
  const StepText step = Backward(R"(gradient "part" %o)", nodes, more);
  EXPECT_EQ(StoryFrom(Cut(step), "c_sum"), R"(c_sum = add(c_chunk1, c_chunk0)
r = reduce_scatter_tensor(c_sum)
d = wait_tensor(r)
n = slice(d)
a = all_reduce(n)
b = wait_tensor(a)
m = div(b)
o = _to_copy(m))");
  Chunked strict = Cut(step, {.strict = true});
  EXPECT_EQ(strict.LineOf("o_sum"), "o_sum = add(o_chunk1, o_chunk0)");
  EXPECT_EQ(strict.CountOf("_c10d_functional::all_reduce"), 2);
}

// Where nothing is widened the sum stands behind the product.
TEST(ChunkGradients, AreAddedInFrontOfAnAllReduce) {
  std::string nodes;
  Chunked cut = Cut(Backward(R"(gradient "v" %d)", nodes, R"(
    %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
    %r = _c10d_functional::all_reduce(%g, reduce_op = "sum", group_name = "dp") : bf16[8, 8] <layers.0 backward>
    %d = _c10d_functional::wait_tensor(%r) : bf16[8, 8] <layers.0 backward>)"));
  EXPECT_EQ(StoryFrom(cut, "g_sum"), R"(g_sum = add(g_chunk1, g_chunk0)
r = all_reduce(g_sum)
d = wait_tensor(r))");
}

// Without a collective there is nothing to save: the sum is the step's gradient.
TEST(ChunkGradients, WithoutACollectiveAreAddedLast) {
  std::string nodes;
  const StepText step = Backward(R"(gradient "w" %c)", nodes, R"(
    %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
    %c = aten::_to_copy(%g, dtype = f32) : f32[8, 8] <layers.0 backward>)");
  for (bool strict : {false, true}) {
    Chunked cut = Cut(step, {.strict = strict});
    EXPECT_EQ(cut.LineOf("c_sum"), "c_sum = add(c_chunk1, c_chunk0)");
    EXPECT_EQ(cut.OutputsLine(), "c_sum");
  }
}

// A maximum over ranks of a sum is not the sum of maxima: each chunk has its own.
TEST(ChunkGradients, OnlyLinearOperationsFollowTheSum) {
  std::string nodes;
  std::string maximum = kReduced;
  maximum.replace(maximum.find("\"sum\""), 5, "\"max\"");
  Chunked cut = Cut(Backward(R"(gradient "shard" %d)", nodes, maximum));
  EXPECT_EQ(cut.CountOf("_c10d_functional::reduce_scatter_tensor"), 2);
  EXPECT_EQ(cut.LineOf("d_sum"), "d_sum = add(d_chunk1, d_chunk0)");
}

// What reads the gradient beside the step cannot wait for its sum: it stays where it is.
TEST(ChunkGradients, AReducedGradientWithAnotherUseIsNotAddedEarly) {
  std::string nodes;
  const std::string used = kReduced + R"(
    %u = aten::mm(%f, %g) : bf16[s0, 8] <layers.0 backward>)";
  Chunked cut = Cut(Backward(R"(gradient "shard" %d, result "u" %u)", nodes, used));
  EXPECT_EQ(cut.LineOf("u_chunk1"), "u_chunk1 = mm(f_chunk1, g_chunk1)");
  EXPECT_EQ(cut.LineOf("r"), "r = reduce_scatter_tensor(c_sum)");
}

constexpr std::string_view kThreeUses = R"(
  %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
  %h = aten::mm(%t, %f) : bf16[8, 8] <layers.0 backward>
  %a = aten::add.Tensor(%g, %h) : bf16[8, 8] <layers.0 backward>
  %i = aten::neg(%h) : bf16[8, 8] <layers.0 backward>
  %b = aten::add.Tensor(%a, %i) : bf16[8, 8] <layers.0 backward>)";

// Autograd adds to one gradient, use by use, chunk by chunk.
TEST(ChunkGradients, OfSeveralUsesAreAddedInAutogradsOrder) {
  std::string nodes;
  Chunked cut = Cut(Backward(R"(gradient "v" %b)", nodes, std::string(kThreeUses)));
  EXPECT_EQ(StoryFrom(cut, "b_sum"), R"(b_sum = add(g_chunk1, h_chunk1)
b_sum_2 = add(b_sum, i_chunk1)
b_sum_3 = add(b_sum_2, g_chunk0)
b_sum_4 = add(b_sum_3, h_chunk0)
b_sum_5 = add(b_sum_4, i_chunk0))");
  EXPECT_EQ(cut.OutputsLine(), "b_sum_5");
  EXPECT_EQ(cut.Count("sums"), 1);
}

// The cast behind the sum is done once when a collective follows; a strict gradient is cast for
// each chunk, so that its uses are added chunk by chunk.
TEST(ChunkGradients, OfSeveralUsesInFrontOfACollective) {
  std::string nodes;
  const std::string reduced = std::string(kThreeUses) + R"(
    %c = aten::_to_copy(%b, dtype = f32) : f32[8, 8] <layers.0 backward>
    %r = _c10d_functional::reduce_scatter_tensor(%c, reduce_op = "sum", group_size = 2, group_name = "dp") : f32[4, 8] <layers.0 backward>
    %d = _c10d_functional::wait_tensor(%r) : f32[4, 8] <layers.0 backward>)";
  for (bool strict : {false, true}) {
    Chunked cut = Cut(Backward(R"(gradient "shard" %d)", nodes, reduced), {.strict = strict});
    EXPECT_EQ(cut.LineOf("a_chunk1"), "a_chunk1 = add(g_chunk1, h_chunk1)");
    EXPECT_EQ(cut.LineOf("b_chunk0"), "b_chunk0 = add(a_chunk0, i_chunk0)");
    EXPECT_EQ(cut.LineOf("c_chunk0"), "c_chunk0 = _to_copy(b_chunk0)");
    EXPECT_EQ(cut.CountOf("_c10d_functional::reduce_scatter_tensor"), strict ? 2 : 1);
  }
}

// Each use of a parameter may have a gather, and so a reduction, of its own.
TEST(ChunkGradients, OfSeveralReducedUses) {
  std::string nodes;
  const std::string two = kReduced + R"(
    %h = aten::mm(%t, %f) : bf16[8, 8] <layers.0 backward>
    %e = aten::_to_copy(%h, dtype = f32) : f32[8, 8] <layers.0 backward>
    %q = _c10d_functional::reduce_scatter_tensor(%e, reduce_op = "sum", group_size = 2, group_name = "dp") : f32[4, 8] <layers.0 backward>
    %j = _c10d_functional::wait_tensor(%q) : f32[4, 8] <layers.0 backward>
    %k = aten::add.Tensor(%d, %j) : f32[4, 8] <layers.0 backward>)";
  const StepText step = Backward(R"(gradient "shard" %k)", nodes, two);
  Chunked early = Cut(step);
  EXPECT_EQ(early.LineOf("r"), "r = reduce_scatter_tensor(c_sum)");
  EXPECT_EQ(early.LineOf("q"), "q = reduce_scatter_tensor(e_sum)");
  EXPECT_EQ(early.LineOf("e_sum"), "e_sum = add(e_chunk1, e_chunk0)");
  EXPECT_EQ(early.LineOf("k"), "k = add(d, j)");
  Chunked strict = Cut(step, {.strict = true});
  EXPECT_EQ(StoryFrom(strict, "k_sum"), R"(k_sum = add(d_chunk1, j_chunk1)
k_sum_2 = add(k_sum, d_chunk0)
k_sum_3 = add(k_sum_2, j_chunk0))");
}

// A parameter that two roots share, or a root and another module.
TEST(ChunkGradients, OfSeveralModulesAreAddedBehindTheirRoots) {
  std::string nodes;
  Chunked cut = Cut(Backward(R"(gradient "v" %b)", nodes, R"(
    %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
    %z = aten::relu(%y) : bf16[s0, 8] <layers.1>
    %zt = aten::t(%z) : bf16[8, s0]{1, 8} <layers.1 backward>
    %h = aten::mm(%zt, %z) : bf16[8, 8] <layers.1 backward>
    %n = aten::neg(%v) : bf16[8, 8] <norm backward>
    %a = aten::add.Tensor(%g, %h) : bf16[8, 8] {phase = backward}
    %b = aten::add.Tensor(%a, %n) : bf16[8, 8] {phase = backward})"));
  EXPECT_EQ(cut.LineOf("a"), "a = add(g_sum, h_sum)");
  EXPECT_EQ(cut.LineOf("g_sum"), "g_sum = add(g_chunk1, g_chunk0)");
  EXPECT_EQ(cut.LineOf("h_sum"), "h_sum = add(h_chunk1, h_chunk0)");
  EXPECT_EQ(cut.LineOf("b"), "b = add(a, n)");
}

// Autograd may count the sum to the root that was differentiated last.
TEST(ChunkGradients, OfSeveralModulesWhereOneOfThemOwnsTheSum) {
  std::string nodes;
  Chunked cut = Cut(Backward(R"(gradient "v" %a)", nodes, R"(
    %z = aten::relu(%y) : bf16[s0, 8] <layers.1>
    %zt = aten::t(%z) : bf16[8, s0]{1, 8} <layers.1 backward>
    %h = aten::mm(%zt, %z) : bf16[8, 8] <layers.1 backward>
    %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
    %a = aten::add.Tensor(%h, %g) : bf16[8, 8] <layers.0 backward>)"));
  EXPECT_EQ(cut.LineOf("h_sum"), "h_sum = add(h_chunk1, h_chunk0)");
  EXPECT_EQ(cut.LineOf("g_sum"), "g_sum = add(g_chunk1, g_chunk0)");
  EXPECT_EQ(cut.LineOf("a"), "a = add(h_sum, g_sum)");
}

// The sum is there as soon as the last chunk is, so that the chunks' gradients need not be kept.
TEST(ChunkGradients, AreAddedAtOnce) {
  std::string nodes;
  Chunked cut = Cut(Backward(R"(gradient "v" %g)", nodes, R"(
    %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
    %n = aten::neg(%v) : bf16[8, 8] <norm backward>)"));
  const std::string story = cut.Story();
  EXPECT_LT(story.find("g_sum = "), story.find("n = "));
}

TEST(ChunkGradients, OfSeveralUsesAreAddedAtOnce) {
  std::string nodes;
  const std::string then = "\n%n = aten::neg(%v) : bf16[8, 8] <norm backward>";
  Chunked cut = Cut(Backward(R"(gradient "v" %b)", nodes, std::string(kThreeUses) + then));
  EXPECT_EQ(cut.graph().last()->result()->name(), "n");
}

// What another module adds to the gradient is added once, not by every chunk.
TEST(ChunkGradients, OfAModuleThatIsNotCutAreAddedOnce) {
  std::string nodes;
  Chunked cut = Cut(Backward(R"(gradient "v" %a)", nodes, R"(
    %n = aten::neg(%v) : bf16[8, 8] <norm backward>
    %g = aten::mm(%t, %y) : bf16[8, 8] <layers.0 backward>
    %a = aten::add.Tensor(%n, %g) : bf16[8, 8] <layers.0 backward>)"));
  EXPECT_EQ(cut.LineOf("g_sum"), "g_sum = add(g_chunk1, g_chunk0)");
  EXPECT_EQ(cut.LineOf("a"), "a = add(n, g_sum)");
  EXPECT_EQ(cut.CountOf("aten::add.Tensor"), 2);
}

}  // namespace
}  // namespace gt::chunk_gradients_test
