#include "gt/passes/overlap/overlap_structural.h"

#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/verifier.h"
#include "gt/testing/random_graph.h"

namespace gt::overlap_structural_test {
namespace {

using testing::NodeBuilder;

// A step of which only names, ties and metadata matter. Nodes are written "name kind: operands" and
// separated by ';'. The number at the end of the name is the chunk. %x is the step's input. An
// operand that is a read stands for the number that was read. Kinds:
//   compute, or nothing   dispatch, combine   exchanges of tokens   count   an exchange of counts
//   reduce   another collective   wait   of any collective   outside   compute of no chunk
//   copy   to the host   arrive   the end of a copy   read   of a number
class Step {
 public:
  Step() {
    TensorType type = ContiguousType(DType::kInt64, Device(), {8}, graph_->shapes());
    values_["x"] = graph_->AddInput(InputRole::kInput, "x", type, "x");
  }

  // The nodes of a region's body, and of nobody, as they stand in the graph.
  Step& Region(std::string_view name, std::string_view nodes) { return Add(name, false, nodes); }
  Step& Backward(std::string_view name, std::string_view nodes) { return Add(name, true, nodes); }
  Step& MadeBy(ChunkProducer producer) {
    producer_ = producer;
    return *this;
  }

  // The names in the new order. The order is applied, so it is legal.
  std::string Order(bool pair_first) {
    Verify(*graph_);
    Dependencies dependencies(*graph_);
    ApplyOrder(*graph_, dependencies, StructuralOrder(*graph_, dependencies, pair_first));
    Verify(*graph_);
    std::vector<std::string> names;
    for (const Node* node : graph_->nodes()) names.push_back(names_.at(node));
    return Join(names, " ");
  }
  std::string Together() { return Order(true); }  // first launches
  std::string Apart() { return Order(false); }

  // What the error says, which must have this code.
  std::string ErrorOf(ErrorCode code, bool pair_first = false) {
    try {
      Order(pair_first);
    } catch (const Error& error) {
      EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.message();
      return error.message();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

 private:
  Step& Add(std::string_view region, bool backward, std::string_view nodes) {
    for (const std::string& statement : Split(nodes, ';')) {
      const size_t colon = statement.find(':');
      std::istringstream left(statement.substr(0, colon)), right(statement.substr(colon + 1));
      std::string name, kind = "compute", operand;
      left >> name >> kind;
      std::vector<std::string> operands;
      while (right >> operand) operands.push_back(operand);
      Node* node = Insert(name, kind, operands, MetaOf(region, backward, name, kind));
      names_[node] = name;
      if (kind == "read") {
        reads_[name] = node;
      } else {
        values_[name] = node->result();
      }
    }
    return *this;
  }

  Meta MetaOf(std::string_view region, bool backward, const std::string& name,
              const std::string& kind) const {
    Meta meta;
    meta.module = Name(region);
    meta.phase = backward ? Phase::kBackward : Phase::kForward;
    if (kind == "dispatch" || kind == "combine") meta.exchange = TokenExchange::kExchange;
    if (kind == "count") meta.exchange = TokenExchange::kCountExchange;
    if (kind == "dispatch" || kind == "count") meta.ep_role = EpRole::kDispatch;
    if (kind == "combine") meta.ep_role = EpRole::kCombine;
    if (kind == "outside") return meta;
    auto chunk = std::make_shared<ChunkMeta>();
    size_t digits = name.size();
    while (std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
    chunk->id = std::stoi(name.substr(digits));
    chunk->region = Name(region);
    chunk->role = ChunkRole::kBody;
    chunk->producer = producer_;
    chunk->backward = backward;
    meta.chunk = std::move(chunk);
    return meta;
  }

  Node* Insert(const std::string& name, const std::string& kind,
               const std::vector<std::string>& operands, const Meta& meta) {
    auto make = [&](std::string_view op) {
      NodeBuilder builder(*graph_, op);
      builder.Named(name).With(meta);
      return builder;
    };
    auto value = [&](size_t i) { return values_.at(operands.at(i)); };
    if (kind == "wait") {
      return make("_c10d_functional::wait_tensor").Set("tensor", value(0)).Insert();
    }
    if (kind == "reduce") {
      return make("_c10d_functional::all_reduce")
          .Set("input", value(0))
          .Set("reduce_op", Argument("sum"))
          .Set("group_name", Argument("fsdp"))
          .Insert();
    }
    if (kind == "dispatch" || kind == "combine" || kind == "count") {
      return make("_c10d_functional::all_to_all_single")
          .Set("input", value(0))
          .Set("output_split_sizes", Argument(Shape{4, 4}))
          .Set("input_split_sizes", Argument(Shape{4, 4}))
          .Set("group_name", Argument("ep"))
          .Insert();
    }
    if (kind == "read") return make("gt::read_ints").Set("self", value(0)).Insert();
    if (kind == "copy") return make("gt::offload").Set("self", value(0)).Insert();
    if (kind == "arrive") {
      return make("gt::wait_transfer").Set("moved", value(0)).Set("source", value(1)).Insert();
    }
    GT_CHECK(kind == "compute" || kind == "outside", "no kind {}", kind);
    if (operands.size() == 1) return make("aten::neg").Set("self", value(0)).Insert();
    GT_CHECK(operands.size() == 2, "{} has {} operands", name, operands.size());
    if (auto read = reads_.find(operands[1]); read != reads_.end()) {
      return make("aten::add.Scalar")
          .Set("self", value(0))
          .Set("other", Argument(Dim::Symbol(read->second->bound_symbols()[0])))
          .Insert();
    }
    return make("aten::add.Tensor").Set("self", value(0)).Set("other", value(1)).Insert();
  }

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::unordered_map<std::string, Value*> values_;
  std::unordered_map<std::string, const Node*> reads_;
  std::unordered_map<const Node*, std::string> names_;
  ChunkProducer producer_ = ChunkProducer::kGraph;
};

// The nodes of all chunks, one chunk after the other: '#' stands for the chunk.
std::string Chunks(std::string_view nodes, const std::vector<int>& ids) {
  std::vector<std::string> bodies;
  for (int id : ids) {
    std::string body;
    for (char c : nodes) c == '#' ? body += std::to_string(id) : body += c;
    bodies.push_back(body);
  }
  return Join(bodies, ";");
}

// Router r, exchange of counts ca with its wait cw, what is made of them s, dispatch D, experts E,
// combine C, shared expert sh, output o. The shared expert stands last, as models have it.
constexpr std::string_view kForward =
    "r#: x; ca# count: r#; cw# wait: ca#; s#: cw#; D# dispatch: s#; Dw# wait: D#; E#: Dw#; "
    "C# combine: E#; Cw# wait: C#; sh#: x; o#: Cw# sh#";
// Recomputed experts R, gradient of the input g, of the weights w.
constexpr std::string_view kBackward =
    "C# combine: x; Cw# wait: C#; R#: x; g#: Cw# R#; w#: Cw# R#; D# dispatch: g#; Dw# wait: D#";

// The order of one region.

TEST(StructuralOrder, ForwardWithFirstLaunchesTogether) {
  EXPECT_EQ(Step().Region("layers.0.moe", Chunks(kForward, {0, 1})).Together(),
            "r0 ca0 cw0 s0 r1 ca1 cw1 s1 D0 D1 sh0 sh1 Dw0 E0 C0 Dw1 E1 C1 Cw0 o0 Cw1 o1");
}

TEST(StructuralOrder, ForwardWithFirstLaunchesApart) {
  EXPECT_EQ(Step().Region("layers.0", Chunks(kForward, {0, 1})).Apart(),
            "r0 ca0 cw0 s0 D0 r1 ca1 cw1 s1 D1 sh0 sh1 Dw0 E0 C0 Dw1 E1 C1 Cw0 o0 Cw1 o1");
}

TEST(StructuralOrder, BackwardGoesFromTheLastChunkToTheFirst) {
  EXPECT_EQ(Step().Backward("layers.0.moe", Chunks(kBackward, {1, 0})).Together(),
            "C1 C0 R1 R0 Cw1 g1 D1 Cw0 g0 D0 w1 w0 Dw1 Dw0");
}

TEST(StructuralOrder, ThreeChunks) {
  EXPECT_EQ(Step().Region("layers.0.moe", Chunks(kForward, {0, 1, 2})).Together(),
            "r0 ca0 cw0 s0 r1 ca1 cw1 s1 r2 ca2 cw2 s2 D0 D1 D2 sh0 sh1 sh2 "
            "Dw0 E0 C0 Dw1 E1 C1 Dw2 E2 C2 Cw0 o0 Cw1 o1 Cw2 o2");
  EXPECT_EQ(Step().Backward("layers.0.moe", Chunks(kBackward, {2, 1, 0})).Together(),
            "C2 C1 C0 R2 R1 R0 Cw2 g2 D2 Cw1 g1 D1 Cw0 g0 D0 w2 w1 w0 Dw2 Dw1 Dw0");
}

TEST(StructuralOrder, FourChunks) {
  EXPECT_EQ(Step().Region("layers.0", Chunks(kForward, {0, 1, 2, 3})).Apart(),
            "r0 ca0 cw0 s0 D0 r1 ca1 cw1 s1 D1 r2 ca2 cw2 s2 D2 r3 ca3 cw3 s3 D3 "
            "sh0 sh1 sh2 sh3 Dw0 E0 C0 Dw1 E1 C1 Dw2 E2 C2 Dw3 E3 C3 "
            "Cw0 o0 Cw1 o1 Cw2 o2 Cw3 o3");
  EXPECT_EQ(Step().Backward("layers.0.moe", Chunks(kBackward, {3, 2, 1, 0})).Together(),
            "C3 C2 C1 C0 R3 R2 R1 R0 Cw3 g3 D3 Cw2 g2 D2 Cw1 g1 D1 Cw0 g0 D0 w3 w2 w1 w0 "
            "Dw3 Dw2 Dw1 Dw0");
}

// Ids of chunks are compared as numbers.
TEST(StructuralOrder, ChunkTenComesBehindChunkNine) {
  EXPECT_EQ(Step().Region("m", Chunks("D# dispatch: x; Dw# wait: D#", {10, 9})).Apart(),
            "D9 D10 Dw9 Dw10");
}

TEST(StructuralOrder, TheOrderInTheGraphDoesNotDecideWhoseTurnItIs) {
  EXPECT_EQ(Step().Region("layers.0.moe", Chunks(kForward, {1, 0})).Together(),
            "r0 ca0 cw0 s0 r1 ca1 cw1 s1 D0 D1 sh0 sh1 Dw0 E0 C0 Dw1 E1 C1 Cw0 o0 Cw1 o1");
  EXPECT_EQ(Step().Backward("layers.0.moe", Chunks(kBackward, {0, 1})).Together(),
            "C1 C0 R1 R0 Cw1 g1 D1 Cw0 g0 D0 w1 w0 Dw1 Dw0");
}

TEST(StructuralOrder, AnOrderedRegionStaysAsItIs) {
  Step step;
  step.Region("layers.0.moe", Chunks(kForward, {0, 1}));
  const std::string once = step.Together();
  EXPECT_EQ(step.Together(), once);
}

// Both producers describe chunks alike.
TEST(StructuralOrder, ChunksOfTheEagerProducer) {
  Step step;
  step.MadeBy(ChunkProducer::kEager)
      .Region("layers.0.moe", Chunks(kForward, {0, 1}))
      .Backward("layers.0.moe", Chunks("C#b# combine: x; B# wait: C#b#", {1, 0}));
  EXPECT_EQ(step.Together(),
            "r0 ca0 cw0 s0 r1 ca1 cw1 s1 D0 D1 sh0 sh1 Dw0 E0 C0 Dw1 E1 C1 Cw0 o0 Cw1 o1 "
            "C1b1 C0b0 B1 B0");
}

// Exchanges number k of all chunks stand together, whatever their labels are.
TEST(StructuralOrder, ThreeExchanges) {
  constexpr std::string_view kNodes =
      "p#: x; A# dispatch: p#; Aw# wait: A#; q#: Aw#; B# dispatch: q#; Bw# wait: B#; s#: Bw#; "
      "C# combine: s#; Cw# wait: C#; t#: Cw#; f#: Aw#; h#: Bw#";
  EXPECT_EQ(Step().Backward("m", Chunks(kNodes, {1, 0})).Together(),
            "p1 p0 A1 A0 Aw1 q1 B1 Aw0 q0 B0 f1 f0 Bw1 s1 C1 Bw0 s0 C0 h1 h0 Cw1 t1 Cw0 t0");
  EXPECT_EQ(Step().Region("m", Chunks(kNodes, {0, 1})).Apart(),
            "p0 A0 p1 A1 Aw0 q0 B0 Aw1 q1 B1 f0 f1 Bw0 s0 C0 Bw1 s1 C1 h0 h1 Cw0 t0 Cw1 t1");
}

// What a later exchange needs is as good to fill the time as anything, up to the first wait.
TEST(StructuralOrder, WorkOfALaterExchangeIsDoneEarly) {
  constexpr std::string_view kNodes =
      "C# combine: x; Cw# wait: C#; a#: x; b#: a#; g#: Cw# b#; D# dispatch: g#; Dw# wait: D#";
  for (const std::vector<int>& built : {std::vector{0, 1}, std::vector{1, 0}}) {
    EXPECT_EQ(Step().Backward("m", Chunks(kNodes, built)).Together(),
              "C1 C0 a1 b1 a0 b0 Cw1 g1 D1 Cw0 g0 D0 Dw1 Dw0");
  }
}

// A gradient's reduction and what comes behind it wait for the end, where the graph's order holds.
TEST(StructuralOrder, OtherCollectivesAreNeverDoneEarly) {
  constexpr std::string_view kNodes =
      "w#: x; R# reduce: w#; Rw# wait: R#; z#: Rw#; C# combine: x; Cw# wait: C#; g#: Cw#";
  EXPECT_EQ(Step().Backward("m", Chunks(kNodes, {1, 0})).Apart(),
            "C1 C0 w1 w0 R1 Rw1 z1 Cw1 g1 R0 Rw0 z0 Cw0 g0");
}

TEST(StructuralOrder, OtherCollectivesComeWhenAnExchangeNeedsThem) {
  constexpr std::string_view kNodes =
      "p#: x; A# dispatch: p#; Aw# wait: A#; R# reduce: x; Rw# wait: R#; q#: Aw# Rw#; "
      "B# combine: q#; Bw# wait: B#";
  EXPECT_EQ(Step().Region("m", Chunks(kNodes, {0, 1})).Apart(),
            "p0 A0 p1 A1 Aw0 R0 Rw0 q0 B0 Aw1 R1 Rw1 q1 B1 Bw0 Bw1");
}

// Ties between chunks.

// A buffer's updates form a chain through all chunks, which no exchange needs.
TEST(StructuralOrder, ChainedBufferUpdates) {
  Step forward;
  forward.Region("m",
                 "r0: x; b0: r0; D0 dispatch: r0; Dw0 wait: D0;"
                 "r1: x; b1: r1 b0; D1 dispatch: r1; Dw1 wait: D1;"
                 "r2: x; b2: r2 b1; D2 dispatch: r2; Dw2 wait: D2");
  EXPECT_EQ(forward.Apart(), "r0 D0 r1 D1 r2 D2 b0 b1 b2 Dw0 Dw1 Dw2");
  // The chain may go against the turns: then a chunk is set free by a later one.
  Step backward;
  backward.Backward("m",
                    "b0: x; D0 dispatch: x; Dw0 wait: D0; b1: x b0; c1: b1;"
                    "D1 dispatch: x; Dw1 wait: D1; c0: c1");
  EXPECT_EQ(backward.Apart(), "D1 D0 b0 b1 c1 c0 Dw1 Dw0");
}

// What another chunk must do first is done in front of the launch that needs it, once.
TEST(StructuralOrder, AnExchangeMayNeedWorkOfAnotherChunk) {
  Step step;
  step.Region("m",
              "r0: x; t0: r0; D0 dispatch: r0; Dw0 wait: D0; e0: Dw0;"
              "r1: x; t1: t0 r1; D1 dispatch: t1; Dw1 wait: D1; e1: Dw1 t0");
  EXPECT_EQ(step.Apart(), "r0 D0 t0 r1 t1 D1 Dw0 e0 Dw1 e1");
}

// Apart, a chunk may even need the first exchange of the one before it.
TEST(StructuralOrder, AnExchangeMayNeedAnEarlierOneOfAnotherChunk) {
  constexpr std::string_view kNodes =
      "D0 dispatch: x; Dw0 wait: D0; r1: Dw0; D1 dispatch: r1; Dw1 wait: D1";
  EXPECT_EQ(Step().Region("m", kNodes).Apart(), "D0 Dw0 r1 D1 Dw1");
  const std::string error = Step().Region("m", kNodes).ErrorOf(ErrorCode::kIllegalOrder, true);
  EXPECT_NE(error.find("region 'm' (forward): %D1"), std::string::npos) << error;
  EXPECT_NE(error.find("of chunk 1 would run before %D0"), std::string::npos) << error;
  EXPECT_NE(error.find("%Dw0 (_c10d_functional::wait_tensor, module 'm') comes behind it"),
            std::string::npos)
      << error;
}

// Token counts that are read on the host.

constexpr std::string_view kReading =
    "v#: x; r#: x; ca# count: r#; cw# wait: ca#; i# read: r#; q# read: cw#; p#: v# i#; k#: p# q#; "
    "D# dispatch: k#; Dw# wait: D#; sh#: x";
constexpr std::string_view kCopying =
    "v#: x; r#: x; a# copy: r#; i# read: a#; ca# count: r#; cw# wait: ca#; b# copy: cw#; "
    "q# read: b#; p#: v# i#; k#: p# q#; D# dispatch: k#; Dw# wait: D#; sh#: x";

TEST(StructuralOrder, AllChunksReadCountsInOnePlace) {
  EXPECT_EQ(Step().Region("m", Chunks(kReading, {0, 1})).Together(),
            "r0 ca0 cw0 r1 ca1 cw1 i0 q0 i1 q1 v0 p0 k0 v1 p1 k1 D0 D1 sh0 sh1 Dw0 Dw1");
  EXPECT_EQ(Step().Region("m", Chunks(kReading, {0, 1, 2})).Together(),
            "r0 ca0 cw0 r1 ca1 cw1 r2 ca2 cw2 i0 q0 i1 q1 i2 q2 "
            "v0 p0 k0 v1 p1 k1 v2 p2 k2 D0 D1 D2 sh0 sh1 sh2 Dw0 Dw1 Dw2");
}

TEST(StructuralOrder, EachChunkReadsItsCountsInOnePlace) {
  EXPECT_EQ(Step().Region("m", Chunks(kReading, {0, 1})).Apart(),
            "r0 ca0 cw0 i0 q0 v0 p0 k0 D0 r1 ca1 cw1 i1 q1 v1 p1 k1 D1 sh0 sh1 Dw0 Dw1");
}

// Copies begin before any of them is waited for.
TEST(StructuralOrder, CopiesOfCountsBeginTogether) {
  EXPECT_EQ(Step().Region("m", Chunks(kCopying, {0, 1})).Together(),
            "r0 ca0 cw0 r1 ca1 cw1 a0 b0 a1 b1 i0 q0 i1 q1 v0 p0 k0 v1 p1 k1 D0 D1 "
            "sh0 sh1 Dw0 Dw1");
  EXPECT_EQ(Step().Region("m", Chunks(kCopying, {0, 1})).Apart(),
            "r0 ca0 cw0 a0 b0 i0 q0 v0 p0 k0 D0 r1 ca1 cw1 a1 b1 i1 q1 v1 p1 k1 D1 "
            "sh0 sh1 Dw0 Dw1");
}

TEST(StructuralOrder, ACopyOfCountsMayHaveAnEndOfItsOwn) {
  constexpr std::string_view kNodes =
      "r#: x; a# copy: r#; h# arrive: a# r#; i# read: h#; k#: r# i#; D# dispatch: k#; Dw# wait: D#";
  EXPECT_EQ(Step().Region("m", Chunks(kNodes, {0, 1})).Together(),
            "r0 r1 a0 a1 h0 h1 i0 i1 k0 k1 D0 D1 Dw0 Dw1");
}

// A number that decides what is copied next is read before: there is no other way.
TEST(StructuralOrder, AReadMayNeedAnotherRead) {
  constexpr std::string_view kNodes =
      "r#: x; i# read: r#; k#: r# i#; j# read: k#; l#: r# j#; D# dispatch: l#; Dw# wait: D#";
  EXPECT_EQ(Step().Region("m", Chunks(kNodes, {0, 1})).Together(),
            "r0 i0 k0 r1 i1 k1 j0 j1 l0 l1 D0 D1 Dw0 Dw1");
}

TEST(StructuralOrder, OnlySomeChunksReadCounts) {
  Step step;
  step.Region("m",
              "r0: x; D0 dispatch: r0; Dw0 wait: D0;"
              "i1 read: x; r1: x i1; D1 dispatch: r1; Dw1 wait: D1");
  const std::string error = step.ErrorOf(ErrorCode::kCountSyncMismatch);
  EXPECT_NE(error.find("region 'm' (forward): chunk 1 reads token counts"), std::string::npos)
      << error;
  EXPECT_NE(error.find("gt::read_ints"), std::string::npos) << error;
  EXPECT_NE(error.find("chunk 0 reads none"), std::string::npos) << error;
  Step other;
  other.Region("m",
               "i0 read: x; r0: x i0; D0 dispatch: r0; Dw0 wait: D0;"
               "D1 dispatch: x; Dw1 wait: D1");
  EXPECT_NE(other.ErrorOf(ErrorCode::kCountSyncMismatch).find("chunk 0 reads token counts"),
            std::string::npos);
}

TEST(StructuralOrder, CountsReadBehindTheFirstExchange) {
  constexpr std::string_view kLate =
      "D# dispatch: x; Dw# wait: D#; i# read: Dw#; r#: Dw# i#; C# combine: r#; Cw# wait: C#";
  constexpr std::string_view kUnused = "r#: x; i# read: r#; D# dispatch: r#; Dw# wait: D#";
  for (std::string_view nodes : {kLate, kUnused}) {
    for (bool pair_first : {false, true}) {
      Step step;
      step.Region("m", Chunks(nodes, {0, 1}));
      const std::string error = step.ErrorOf(ErrorCode::kCountSyncMismatch, pair_first);
      EXPECT_NE(error.find("(gt::read_ints, module 'm') of chunk 0 reads numbers"),
                std::string::npos)
          << error;
      EXPECT_NE(error.find("%D0"), std::string::npos) << error;
    }
  }
}

// Nodes of no region.

TEST(StructuralOrder, NodesOutsideComeWhereTheyAreNeeded) {
  Step step;
  step.Region("m",
              "u outside: x; r0: u; D0 dispatch: r0; Dw0 wait: D0; sh0: x; o0: Dw0 sh0;"
              "v outside: x; r1: v; D1 dispatch: r1; Dw1 wait: D1; w outside: x; sh1: w; "
              "o1: Dw1 sh1; y outside: o0 o1; z outside: x");
  EXPECT_EQ(step.Apart(), "u r0 D0 v r1 D1 sh0 w sh1 Dw0 o0 Dw1 o1 y z");
}

// Ways through nodes outside tie as direct ones do. What stands on them keeps its turn.
TEST(StructuralOrder, WhatANodeOutsideNeedsIsNeeded) {
  Step step;
  step.Region("m",
              "s1: x; w outside: s1; r1: x; D1 dispatch: w; Dw1 wait: D1; f1: r1;"
              "r0: x; u outside: r0; v outside: u; D0 dispatch: v; Dw0 wait: D0");
  EXPECT_EQ(step.Apart(), "r0 u v D0 s1 w D1 r1 f1 Dw0 Dw1");
}

TEST(StructuralOrder, WhatWaitsThroughANodeOutsideIsNotDoneEarly) {
  constexpr std::string_view kNodes =
      "A# dispatch: x; Aw# wait: A#; u# outside: Aw#; f#: u#; h#: x; B# combine: h#; Bw# wait: B#";
  EXPECT_EQ(Step().Region("m", Chunks(kNodes, {0, 1})).Apart(),
            "A0 A1 h0 h1 B0 B1 Aw0 u0 f0 Bw0 Aw1 u1 f1 Bw1");
}

TEST(StructuralOrder, WhatIsNotChunkedKeepsItsOrder) {
  Step step;
  step.Region("m", "a outside: x; b outside: x; c outside: a; d outside: b");
  EXPECT_EQ(step.Apart(), "a b c d");
}

TEST(StructuralOrder, ARegionWithoutExchangesKeepsItsOrder) {
  Step step;
  step.Region("dense", "a0: x; C0 count: a0; w0 wait: C0; b1: x; c0: w0; d1: b1");
  EXPECT_EQ(step.Together(), "a0 C0 w0 b1 c0 d1");
}

// Several regions.

constexpr std::string_view kLayer0 =
    "a#: x; A# dispatch: a#; Aw# wait: A#; e#: Aw#; f#: x; o#: e# f#";
constexpr std::string_view kLayer1 = "b#: o#; B# dispatch: b#; Bw# wait: B#; g#: b#; p#: Bw# g#";

TEST(StructuralOrder, EveryRegionHasAnOrderOfItsOwn) {
  Step step;
  step.Region("layers.0", Chunks(kLayer0, {0, 1}))
      .Region("layers.1", Chunks(kLayer1, {0, 1}))
      .Backward("layers.1", Chunks("L# combine: p#; Lw# wait: L#; l#: x", {1, 0}))
      .Backward("layers.0", Chunks("M# combine: x; Mw# wait: M#; m#: Lw#", {1, 0}));
  EXPECT_EQ(step.Apart(),
            "a0 A0 a1 A1 f0 f1 Aw0 e0 o0 Aw1 e1 o1 "
            "b0 B0 b1 B1 g0 g1 Bw0 p0 Bw1 p1 "
            "L1 L0 l1 l0 Lw1 Lw0 "
            "M1 M0 m1 m0 Mw1 Mw0");
}

// A value of layers.0 that both layers use is computed again (k) for the backward of layers.1 already.
TEST(StructuralOrder, ARegionMayBeginInTheMiddleOfAnother) {
  Step step;
  step.Backward("layers.0", "k1: x")
      .Backward("layers.1", "a1: k1; A1 combine: a1; Aw1 wait: A1; b1: Aw1")
      .Backward("layers.0", "k0: x")
      .Backward("layers.1", "a0: k0; A0 combine: a0; Aw0 wait: A0; b0: Aw0")
      .Backward("layers.0", Chunks("h#: k# b#; B# combine: h#; Bw# wait: B#; c#: k#", {1, 0}));
  EXPECT_EQ(step.Apart(), "k1 a1 A1 k0 a0 A0 Aw1 b1 Aw0 b0 h1 B1 h0 B0 c1 c0 Bw1 Bw0");
}

// One region wants chunk 0 first, the other chunk 1, and each needs the other.
TEST(StructuralOrder, RegionsThatWaitForEachOther) {
  Step step;
  step.Backward("b", "B0 dispatch: x; Bw0 wait: B0")
      .Region("a", "r0: Bw0; A0 dispatch: r0; Aw0 wait: A0; A1 dispatch: x; Aw1 wait: A1")
      .Backward("b", "s1: Aw1; B1 dispatch: s1; Bw1 wait: B1");
  const std::string error = step.ErrorOf(ErrorCode::kIllegalOrder);
  EXPECT_NE(error.find("region 'a' (forward): its order asks %A1 (_c10d_functional::"
                       "all_to_all_single, module 'a') to run behind %"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("but that needs %r0"), std::string::npos) << error;
}

// What is wrong with the chunks.

TEST(StructuralOrder, ChunksWithDifferentNumbersOfExchanges) {
  Step step;
  step.Backward("m",
                "A1 combine: x; Aw1 wait: A1; A0 combine: x; Aw0 wait: A0; B0 dispatch: Aw0; "
                "Bw0 wait: B0");
  const std::string error = step.ErrorOf(ErrorCode::kExchangeMismatch);
  EXPECT_NE(error.find("region 'm' (backward)"), std::string::npos) << error;
  EXPECT_NE(error.find("(chunk 1: combine; chunk 0: combine, dispatch)"), std::string::npos)
      << error;
}

TEST(StructuralOrder, ChunksOfWhichOneHasNoExchange) {
  Step step;
  step.Region("m", "a0: x; A1 dispatch: x; Aw1 wait: A1");
  const std::string error = step.ErrorOf(ErrorCode::kExchangeMismatch);
  EXPECT_NE(error.find("(chunk 0: none; chunk 1: dispatch)"), std::string::npos) << error;
}

TEST(StructuralOrder, ChunksWithDifferentExchanges) {
  Step step;
  step.Region("m",
              "A0 dispatch: x; Aw0 wait: A0; A1 dispatch: x; Aw1 wait: A1; A2 combine: x; "
              "Aw2 wait: A2");
  const std::string error = step.ErrorOf(ErrorCode::kExchangeMismatch);
  EXPECT_NE(error.find("(chunk 0: dispatch; chunk 2: combine)"), std::string::npos) << error;
}

TEST(StructuralOrder, ExchangesWithoutAWaitOrWithTwo) {
  Step none;
  none.Region("m", "A0 dispatch: x; a0: A0");
  std::string error = none.ErrorOf(ErrorCode::kExchangeMismatch);
  EXPECT_NE(error.find("%A0 (_c10d_functional::all_to_all_single, module 'm') of chunk 0 has 0"),
            std::string::npos)
      << error;
  Step two;
  two.Region("m", "A0 dispatch: x; a0 wait: A0; b0 wait: A0");
  error = two.ErrorOf(ErrorCode::kExchangeMismatch);
  EXPECT_NE(error.find("has 2 waits"), std::string::npos) << error;
  Step elsewhere;
  elsewhere.Region("m", "A0 dispatch: x; A1 dispatch: x; w1 wait: A1; b1 wait: A0");
  error = elsewhere.ErrorOf(ErrorCode::kExchangeMismatch);
  EXPECT_NE(error.find("of chunk 0 has 0 waits"), std::string::npos) << error;
}

// A chunk cannot launch what its own later exchange must come before.
TEST(StructuralOrder, ChunksThatNeedALaterExchangeOfEachOther) {
  Step step;
  step.Region("m",
              "A0 dispatch: x; Aw0 wait: A0; C0 combine: Aw0; Cw0 wait: C0;"
              "u outside: Cw0; A1 dispatch: u; Aw1 wait: A1; C1 combine: Aw1; Cw1 wait: C1");
  const std::string error = step.ErrorOf(ErrorCode::kIllegalOrder);
  EXPECT_NE(error.find("%A1 (_c10d_functional::all_to_all_single, module 'm') of chunk 1 would run "
                       "before %C0"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace gt::overlap_structural_test
