// What chunking refuses, and that it says which node of which module is in the way.
#include <gtest/gtest.h>

#include "gt/passes/chunk/chunk.h"
#include "gt/passes/chunk/chunk_test_util.h"

namespace gt::chunk_rejections_test {
namespace {

using testing::Cut;
using testing::RunChunk;
using testing::StepText;

// The step is sound, but is not cut: the message contains all of these parts.
void ExpectRejected(const StepText& step, ErrorCode code, std::vector<std::string_view> parts,
                    const ChunkOptions& options = {}) {
  auto graph = Parse(step.Text());
  Verify(*graph);
  try {
    RunChunk(*graph, options);
    ADD_FAILURE() << "was cut:\n" << Print(*graph);
  } catch (const Error& error) {
    EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.message();
    for (std::string_view part : parts) {
      EXPECT_NE(error.message().find(part), std::string::npos) << part << "\n" << error.message();
    }
  }
}

constexpr StepText kPlain = {"%y = aten::relu(%x) : f32[s0, 8] <layers.0>", R"(result "y" %y)"};

// Nothing to cut.

TEST(ChunkRejections, NoModuleFitsThePattern) {
  ExpectRejected(kPlain, ErrorCode::kNothingToChunk, {"blocks.*", "no module of the step"},
                 {.modules = "blocks.*"});
  ExpectRejected(kPlain, ErrorCode::kNothingToChunk, {"layers", "no module of the step"},
                 {.modules = "layers.*.moe"});
}

TEST(ChunkRejections, NoModuleHasExperts) {
  ExpectRejected({R"(%y = aten::relu(%x) : f32[s0, 8] <layers.0 dense>
                     %z = aten::relu(%y) : f32[s0, 8] <layers.1 dense>
                     %o = aten::relu(%z) : f32[s0, 8] <norm>)",
                  R"(result "o" %o)"},
                 ErrorCode::kNothingToChunk, {"layers.*", "layers.0 and 1 others"});
}

TEST(ChunkRejections, NothingOfTheModuleDependsOnTheSymbol) {
  ExpectRejected({R"(%c = aten::neg(%w) : f32[8, 8] <layers.3>)", R"(result "c" %c)"},
                 ErrorCode::kNothingToChunk, {"layers.3", "s0"});
}

// Extents.

TEST(ChunkRejections, MoreChunksThanRows) {
  Cut(kPlain, {.chunks = 4});
  ExpectRejected(kPlain, ErrorCode::kChunkExtent, {"s0", "batch", "is 4", "5 chunks"},
                 {.chunks = 5});
}

TEST(ChunkRejections, NoInputHasTheDimension) {
  ExpectRejected(kPlain, ErrorCode::kChunkExtent, {"s1"}, {.symbol = "s1"});
  StepText step = kPlain;
  step.symbols = "; s1: input, hint 4, range [2, 64]";
  ExpectRejected(step, ErrorCode::kChunkExtent, {"s1"}, {.symbol = "s1"});
}

// Values that cannot be cut.

TEST(ChunkRejections, AValueThatRelatesRowsToEachOther) {
  ExpectRejected({R"(
    %t = aten::t(%x) : f32[8, s0]{1, 8} <layers.0>
    %p = aten::mm(%x, %t) : f32[s0, s0] {module = "layers.0.gram", source = "gram.cc:7"}
    %y = aten::mm(%p, %x) : f32[s0, 8] <layers.0>)",
                  R"(result "y" %y)"},
                 ErrorCode::kChunkSplit,
                 {"layers.0", "2 dimensions", "%p", "aten::mm", "layers.0.gram", "gram.cc:7"});
}

TEST(ChunkRejections, AnInputThatRelatesRowsToEachOther) {
  ExpectRejected({"%y = aten::mm(%q, %x) : f32[s0, 8] <layers.0>", R"(result "y" %y)",
                  R"(, %q: input "q" f32[s0, s0])"},
                 ErrorCode::kChunkSplit, {"layers.0", "the input %q", "several"});
}

TEST(ChunkRejections, AnInputThatIsNoMultiple) {
  ExpectRejected({R"(
    %p = aten::constant_pad_nd(%x, pad = [0, 0, 0, 1]) : f32[s0 + 1, 8] <embed>
    %c = aten::sum.dim_IntList(%p, dim = [0]) : f32[8] <layers.0>
    %y = aten::mul.Tensor(%x, %c) : f32[s0, 8] <layers.0>)",
                  R"(result "y" %y)"},
                 ErrorCode::kChunkSplit, {"layers.0", "%p", "embed", "s0 + 1", "no multiple"});
}

TEST(ChunkRejections, AResultThatIsNoMultiple) {
  ExpectRejected(
      {R"(%p = aten::constant_pad_nd(%x, pad = [0, 0, 0, 1]) : f32[s0 + 1, 8] <layers.0>)",
       R"(result "p" %p)"},
      ErrorCode::kChunkSplit, {"layers.0", "%p", "s0 + 1", "no multiple"});
}

// Positions of several sequences are one after another, so that a chunk's are not in one piece.
TEST(ChunkRejections, FlattenedSequences) {
  constexpr std::string_view kSequences = R"(, %q: input "q" f32[4, s0, 8])";
  const StepText step = {R"(
    %f = aten::view(%q, size = [s0 * 4, 8]) : f32[s0 * 4, 8] <embed>
    %y = aten::relu(%f) : f32[s0 * 4, 8] <layers.0>)",
                         R"(result "y" %y)", kSequences};
  ExpectRejected(step, ErrorCode::kChunkSplit, {"layers.0", "%f", "(seq)", "after a factor of 4"},
                 {.dim = ChunkDim::kSeq});
  ExpectRejected({R"(
    %r = aten::relu(%q) : f32[4, s0, 8] <layers.0>
    %f = aten::view(%r, size = [s0 * 4, 8]) : f32[s0 * 4, 8] <layers.0>)",
                  R"(result "f" %f)", kSequences},
                 ErrorCode::kChunkSplit, {"layers.0", "%f", "after a factor of 4"},
                 {.dim = ChunkDim::kSeq});
}

TEST(ChunkRejections, AValueOfWhichOnlyStridesGrow) {
  ExpectRejected({R"(
    %v = aten::select.int(%q, dim = 1, index = 0) : f32[8]{s0} <embed>
    %y = aten::mul.Tensor(%x, %v) : f32[s0, 8] <layers.0>)",
                  R"(result "y" %y)", R"(, %q: input "q" f32[8, s0])"},
                 ErrorCode::kChunkSplit, {"layers.0", "%v", "strides"});
}

TEST(ChunkRejections, AForwardThatUsesTheBackward) {
  ExpectRejected({R"(
    %g = aten::neg(%x) : f32[s0, 8] <head backward>
    %y = aten::relu(%g) : f32[s0, 8] <layers.0>)",
                  R"(result "y" %y)"},
                 ErrorCode::kChunkSplit, {"layers.0", "%y", "%g", "backward"});
}

// Sizes of the whole that are written into the program.

TEST(ChunkRejections, AViewWithTheSizeOfTheWhole) {
  StepText step = {R"(
    %v = aten::view(%x, size = [4, 2, 4]) : f32[4, 2, 4] {module = "layers.0.moe", source = "moe.cc:12", ep = compute}
    %y = aten::relu(%v) : f32[4, 2, 4] <layers.0>
    %l = aten::sum(%y) : f32[] <head loss>)",
                   R"(loss "l" %l)"};
  step.guards = R"(s0 == 4 by "layers.0.moe" "aten::view")";
  ExpectRejected(
      step, ErrorCode::kChunkBakedSize,
      {"layers.0", "%v", "aten::view", "layers.0.moe", "chunk 0 of 2", "moe.cc:12", "-1"});
}

TEST(ChunkRejections, ATensorWithTheSizeOfTheWhole) {
  StepText step = {R"(
    %z = aten::zeros(size = [4, 8], dtype = f32) : f32[4, 8] <layers.0>
    %y = aten::add.Tensor(%x, %z) : f32[4, 8] <layers.0>)",
                   R"(result "y" %y)"};
  step.guards = R"(s0 == 4 by "layers.0" "aten::add.Tensor")";
  ExpectRejected(step, ErrorCode::kChunkBakedSize, {"layers.0", "%y", "aten::add.Tensor"});
}

// The whole has three rows, its chunks have two: they would give other sizes unnoticed.
TEST(ChunkRejections, ASliceUpToARowOfTheWhole) {
  StepText step = {R"(
    %s = aten::slice.Tensor(%x, end = 3) : f32[3, 8] <layers.0>
    %l = aten::sum(%s) : f32[] <head loss>)",
                   R"(loss "l" %l)"};
  step.guards = R"(s0 >= 3 by "layers.0" "aten::slice.Tensor")";
  ExpectRejected(step, ErrorCode::kChunkBakedSize,
                 {"layers.0", "%s", "chunk 0 of 2", "does not follow the symbol s0"});
}

// Values that cannot be made from those of the chunks.

TEST(ChunkRejections, AMaximumForAnotherModule) {
  ExpectRejected({R"(
    %m = aten::amax(%x, dim = [0]) : f32[8] {module = "layers.0.gate", source = "gate.cc:3", ep = compute}
    %o = aten::neg(%m) : f32[8] <norm>)",
                  R"(result "o" %o)"},
                 ErrorCode::kChunkLiveOut,
                 {"%m", "aten::amax", "layers.0.gate", "gate.cc:3", "%o", "norm", "s0"});
}

TEST(ChunkRejections, AMaximumThatTheStepReturns) {
  ExpectRejected(
      {R"(%m = aten::amax(%x, dim = [0]) : f32[8] <layers.0>)", R"(result "largest" %m)"},
      ErrorCode::kChunkLiveOut, {"%m", "layers.0", "'largest'"});
}

// Sums are not trusted either unless they lead to a gradient: nobody has said what they are for.
TEST(ChunkRejections, ASumThatIsNoGradient) {
  ExpectRejected({R"(%m = aten::sum(%x) : f32[] <layers.0>)", R"(result "m" %m)"},
                 ErrorCode::kChunkLiveOut, {"%m"});
  ExpectRejected({R"(
    %m = aten::sum.dim_IntList(%x, dim = [0]) : f32[8] <layers.0 backward>
    %f = aten::relu(%x) : f32[s0, 8] <layers.0>
    %e = aten::exp(%m) : f32[8] <norm backward>)",
                  R"(result "e" %e)"},
                 ErrorCode::kChunkLiveOut, {"%m", "%e"});
}

// exp(a + b) is not exp(a) + exp(b), though it ends in a gradient.
TEST(ChunkRejections, AGradientThatIsNotLinearInTheChunks) {
  ExpectRejected({R"(
    %f = aten::relu(%x) : f32[s0, 8] <layers.0>
    %m = aten::sum.dim_IntList(%f, dim = [0]) : f32[8] <layers.0 backward>
    %e = aten::exp(%m) : f32[8] <norm backward>)",
                  R"(gradient "b" %e)", R"(, %b: param "b" f32[8])"},
                 ErrorCode::kChunkLiveOut, {"%m", "%e"});
}

TEST(ChunkRejections, AMaximumForAnotherRoot) {
  const auto step = [](std::string_view phase, std::string& nodes) {
    nodes = fmt::format(R"(
      %m = aten::amax(%x, dim = [0]) : f32[8] <layers.0>
      %f = aten::relu(%x) : f32[s0, 8] <layers.1>
      %y = aten::mul.Tensor(%x, %m) : f32[s0, 8] <layers.1 {}>)",
                        phase);
    return StepText{nodes, R"(result "y" %y, result "f" %f)"};
  };
  for (const char* phase : {"forward", "backward"}) {
    for (bool keep : {true, false}) {
      std::string nodes;
      ExpectRejected(step(phase, nodes), ErrorCode::kChunkLiveOut,
                     {"%m", "layers.0", "chunk of layers.1"}, {.keep_across_roots = keep});
    }
  }
}

TEST(ChunkRejections, ADrawForAnotherModule) {
  ExpectRejected({R"(
    %r = aten::rand(size = [8], dtype = f32) : f32[8] <layers.0>
    %y = aten::mul.Tensor(%x, %r) : f32[s0, 8] <layers.0>
    %o = aten::neg(%r) : f32[8] <norm>)",
                  R"(result "y" %y, result "o" %o)"},
                 ErrorCode::kChunkLiveOut, {"%r", "aten::rand", "%o"});
}

// All chunks must have gone through the other module before one of them knows the buffer.
TEST(ChunkRejections, ABufferThatChangesTooLate) {
  ExpectRejected({R"(
    %s = aten::mul.Tensor(%x, %b) : f32[s0, 8] <layers.0>
    %o = aten::flip(%s, dims = [0]) : f32[s0, 8] <norm>
    %t = aten::mul.Tensor(%s, %o) : f32[s0, 8] <layers.0>
    %c = aten::sum.dim_IntList(%t, dim = [0]) : f32[8] <layers.0>
    %n = aten::add.Tensor(%b, %c) : f32[8] <layers.0>)",
                  R"(update "b" %n)", R"(, %b: buffer "b" f32[8])"},
                 ErrorCode::kChunkLiveOut, {"the input %b", "buffer", "layers.0"});
}

// Attention.

TEST(ChunkRejections, AttentionAlongTheSequence) {
  for (const char* call :
       {"gt::flex_attention(%q, %q, %q, [], score_mod = graph @score(%s: input \"s\" f32[], "
        "%b: input \"b\" i32[], %h: input \"h\" i32[], %i: input \"i\" i32[], %j: input \"j\" "
        "i32[]) "
        "{ return result \"score\" %s }, mask_mod = none, scale = 0.5) : (f32[2, 4, s0, 8]{s0 * "
        "32, 8, 32, 1}, f32[2, 4, s0])",
        "aten::_scaled_dot_product_flash_attention_for_cpu(%q, %q, %q, is_causal = true) : "
        "(f32[2, 4, s0, 8], f32[2, 4, s0]{s0 * 4, 1, 4})"}) {
    const std::string nodes = fmt::format(
        "%a, %l = {} {{module = \"layers.0.attention\", source = \"a.cc:5\", ep = compute}}", call);
    const StepText step = {nodes, R"(result "a" %a)", R"(, %q: input "q" f32[2, 4, s0, 8])"};
    ExpectRejected(step, ErrorCode::kChunkAttention,
                   {"layers.0", "%a", "layers.0.attention", "a.cc:5", "keys and values"},
                   {.dim = ChunkDim::kSeq});
  }
}

// Collectives.

// Ranks put their rows behind one another: a chunk's are not in one piece any more.
TEST(ChunkRejections, WhatRanksPutTogetherAlongTheBatch) {
  ExpectRejected({R"(
    %g = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "tp") : f32[s0 * 2, 8] {module = "embed", source = "tp.cc:4"}
    %a = _c10d_functional::wait_tensor(%g) : f32[s0 * 2, 8] <embed>
    %v = aten::view(%a, size = [s0 * 4, 4]) : f32[s0 * 4, 4] <embed>
    %c = aten::clone(%v) : f32[s0 * 4, 4] <embed>
    %y = aten::relu(%c) : f32[s0 * 4, 4] <layers.0>)",
                  R"(result "y" %y)"},
                 ErrorCode::kChunkCollective,
                 {"layers.0", "%c", "%g", "all_gather_into_tensor", "embed", "tp.cc:4", "batch"});
}

TEST(ChunkRejections, WhatAChunkGathersDoesNotLeaveIt) {
  ExpectRejected({R"(
    %g = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "tp") : f32[s0 * 2, 8] <layers.0>
    %a = _c10d_functional::wait_tensor(%g) : f32[s0 * 2, 8] <layers.0>
    %o = aten::neg(%a) : f32[s0 * 2, 8] <norm>)",
                  R"(result "o" %o)"},
                 ErrorCode::kChunkCollective, {"layers.0", "%a", "%g", "all_gather_into_tensor"});
}

}  // namespace
}  // namespace gt::chunk_rejections_test
