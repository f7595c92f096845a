#include "gt/passes/fsdp/fsdp_dense_regions.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/config/problems.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/testing/random_graph.h"

namespace gt::fsdp_dense_regions_test {
namespace {

using testing::NodeBuilder;

// A step of which only names, ties and metadata matter. Nodes are written "name kind: operands" and
// separated by ';'. Those with a '*' in front belong to the bucket of their module. Operands that are
// not nodes are parameters. Kinds:
//   compute, or nothing   a product   expert   one inside of experts   again   one computed again
//   gather, scatter, reduce, tokens   collectives   wait   of any
//   cast, pad, view, alias, add   operators   pack   of two, as a concatenation is
class Step {
 public:
  Step& Forward(std::string_view module, std::string_view nodes) {
    return Add(module, Phase::kForward, nodes);
  }
  Step& Backward(std::string_view module, std::string_view nodes) {
    return Add(module, Phase::kBackward, nodes);
  }
  // Returned by the step, each as the gradient of a parameter.
  Step& Returns(std::string_view names) {
    for (const std::string& name : Split(names, ' ')) {
      graph_->AddOutput(OutputRole::kResult, name, values_.at(name));
    }
    return *this;
  }

  // Runs the pass, which may leave nothing out; a second run must change nothing more.
  std::string Order(bool strict = true) {
    Run(strict);
    const std::string once = Names();
    const PassRun again = Run(strict);
    EXPECT_FALSE(again.changed);
    EXPECT_EQ(Names(), once);
    return once;
  }
  std::string Names() const {
    std::vector<std::string> names;
    for (const Node* node : graph_->nodes()) names.push_back(node->result()->name());
    return Join(names, " ");
  }
  PassRun Run(bool strict = false) {
    PassList passes;
    passes.push_back(std::make_unique<FsdpDenseRegions>());
    if (strict) SetStrict(*passes.back());
    Verify(*graph_);
    return PassManager(std::move(passes), {.write_reproducer = false}).Run(*graph_).runs.at(0);
  }
  std::string StrictError() {
    try {
      Run(/*strict=*/true);
    } catch (const Error& error) {
      EXPECT_EQ(CodeName(error.code()), CodeName(ErrorCode::kMoveBlocked)) << error.message();
      return error.message();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

 private:
  static void SetStrict(Pass& pass) {
    Problems problems;
    pass.options().front().SetFromText("true", "strict", false, problems);
  }

  Step& Add(std::string_view module, Phase phase, std::string_view nodes) {
    for (const std::string& statement : Split(nodes, ';')) {
      const size_t colon = statement.find(':');
      std::istringstream left(statement.substr(0, colon)), right(statement.substr(colon + 1));
      std::string name, kind = "compute", operand;
      left >> name >> kind;
      Meta meta;
      meta.module = Name(module);
      meta.phase = phase;
      if (name[0] == '*') {
        name.erase(0, 1);
        meta.fsdp_bucket = Name(module);
      }
      if (kind == "expert" || kind == "tokens") meta.ep_role = EpRole::kCompute;
      if (kind == "again") meta.recompute = Recompute::kMustRecompute;
      std::vector<Value*> operands;
      while (right >> operand) operands.push_back(ValueOf(operand));
      values_[name] = Insert(name, kind, operands, meta)->result();
    }
    return *this;
  }

  Value* ValueOf(const std::string& name) {
    auto [found, is_new] = values_.try_emplace(name, nullptr);
    if (is_new) {
      TensorType type = ContiguousType(DType::kFloat32, Device(), {8, 8}, graph_->shapes());
      found->second = graph_->AddInput(InputRole::kParameter, name, type, name);
    }
    return found->second;
  }

  Node* Insert(const std::string& name, const std::string& kind, std::vector<Value*> operands,
               const Meta& meta) {
    auto make = [&](std::string_view op) {
      NodeBuilder builder(*graph_, op);
      builder.Named(name).With(meta);
      return builder;
    };
    auto collective = [&](std::string_view op) {
      return make(op).Set("input", operands[0]).Set("group_name", Argument("fsdp"));
    };
    if (kind == "gather") {
      return collective("_c10d_functional::all_gather_into_tensor")
          .Set("group_size", Argument(Dim(1)))
          .Insert();
    }
    if (kind == "scatter") {
      return collective("_c10d_functional::reduce_scatter_tensor")
          .Set("group_size", Argument(Dim(1)))
          .Set("reduce_op", Argument("sum"))
          .Insert();
    }
    if (kind == "reduce") {
      return collective("_c10d_functional::all_reduce").Set("reduce_op", Argument("sum")).Insert();
    }
    if (kind == "tokens") {
      return collective("_c10d_functional::all_to_all_single")
          .Set("output_split_sizes", Argument(Shape{8}))
          .Set("input_split_sizes", Argument(Shape{8}))
          .Insert();
    }
    if (kind == "wait") {
      return make("_c10d_functional::wait_tensor").Set("tensor", operands[0]).Insert();
    }
    if (kind == "cast") {
      return make("aten::_to_copy").Set("self", operands[0]).Insert();
    }
    if (kind == "pad") {
      return make("aten::constant_pad_nd")
          .Set("self", operands[0])
          .Set("pad", Argument(Shape{0, 0}))
          .Insert();
    }
    if (kind == "view") {
      return make("aten::view")
          .Set("self", operands[0])
          .Set("size", Argument(Shape{8, 8}))
          .Insert();
    }
    if (kind == "alias") return make("aten::alias").Set("self", operands[0]).Insert();
    if (kind == "pack") {
      return make("aten::copy").Set("self", operands[0]).Set("src", operands[1]).Insert();
    }
    if (kind == "add") {
      return make("aten::add.Tensor").Set("self", operands[0]).Set("other", operands[1]).Insert();
    }
    GT_CHECK(kind == "compute" || kind == "expert" || kind == "again", "no kind {}", kind);
    return make("aten::mm").Set("self", operands[0]).Set("mat2", operands.back()).Insert();
  }

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::unordered_map<std::string, Value*> values_;
};

int64_t CounterOf(const PassRun& run, std::string_view name) {
  for (const auto& [counter, value] : run.counters) {
    if (counter == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return -1;
}

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A forward of dense blocks, each gathered where it is used.
Step DenseForward() {
  Step step;
  step.Forward("tok_embeddings", "*ge gather: we; *ue wait: ge; e: x ue")
      .Forward("layers.0", "*g0 gather: w0; *u0 wait: g0; a0: e u0; b0: a0")
      .Forward("layers.1", "*g1 gather: w1; *u1 wait: g1; a1: b0 u1; b1: a1")
      .Forward("layers.2", "*g2 gather: w2; *u2 wait: g2; a2: b1 u2; b2: a2")
      .Forward("norm", "*gh gather: wh; *uh wait: gh; h: b2 uh");
  return step;
}

// A backward of dense blocks, in which parameters are gathered again. The head keeps its own.
Step DenseBackward() {
  Step step;
  step.Backward("norm", "y: x x; *sh scatter: y; *vh wait: sh; z: y")
      .Backward("layers.2",
                "*k2 gather: w2; *l2 wait: k2; c2: z l2; d2: c2; *s2 scatter: d2; *v2 wait: s2")
      .Backward("layers.1",
                "*k1 gather: w1; *l1 wait: k1; c1: d2 l1; d1: c1; *s1 scatter: d1; *v1 wait: s1")
      .Backward("layers.0",
                "*k0 gather: w0; *l0 wait: k0; c0: d1 l0; d0: c0; *s0 scatter: d0; *v0 wait: s0")
      .Backward("tok_embeddings", "q: d0; *se scatter: q; *ve wait: se")
      .Returns("vh v2 v1 v0 ve");
  return step;
}

TEST(FsdpDenseRegions, ForwardGathersStartWithTheBlockBefore) {
  Step step = DenseForward();
  EXPECT_EQ(step.Order(), "ge ue e g0 u0 g1 a0 b0 u1 g2 a1 b1 u2 gh a2 b2 uh h");
}

// Gathers of the backward start before reduce-scatters that start in the same place.
TEST(FsdpDenseRegions, BackwardGathersAndReductionsStartInTheBlockThatRunsNext) {
  Step step = DenseBackward();
  EXPECT_EQ(step.Order(),
            "k2 y z l2 k1 sh c2 d2 l1 k0 s2 c1 d1 l0 s1 c0 d0 s0 q se vh v2 v1 v0 ve");
}

TEST(FsdpDenseRegions, SaysWhatItDid) {
  Step step = DenseBackward();
  const PassRun run = step.Run();
  EXPECT_EQ(CounterOf(run, "gathers"), 3);
  EXPECT_EQ(CounterOf(run, "reductions"), 3);  // norm, 2 and 1
  EXPECT_EQ(CounterOf(run, "waits"), 5);
  EXPECT_EQ(CounterOf(run, "blocked"), 0);
}

// Started too early is moved as well.
TEST(FsdpDenseRegions, GathersMayStartLaterThanBefore) {
  Step step;
  step.Forward("layers.1", "*g1 gather: w1")
      .Forward("layers.2", "*g2 gather: w2")
      .Forward("layers.0", "a0: x; b0: a0")
      .Forward("layers.1", "*u1 wait: g1; a1: b0 u1")
      .Forward("layers.2", "*u2 wait: g2; a2: a1 u2");
  EXPECT_EQ(step.Order(), "g1 a0 b0 u1 g2 a1 u2 a2");
}

TEST(FsdpDenseRegions, BlocksHaveOneOrTwoBucketsOrNone) {
  Step step;
  step.Forward("layers.0", "a0: x")
      .Forward("layers.1", "*g1 gather: w1; *u1 wait: g1")
      .Forward("layers.1.moe.experts", "*f1 gather: v1; *t1 wait: f1; a1: a0 u1; b1: a1 t1")
      .Forward("layers.2", "a2: b1")
      .Forward("layers.3", "*g3 gather: w3; *u3 wait: g3; a3: a2 u3");
  EXPECT_EQ(step.Order(), "g1 f1 a0 u1 t1 a1 b1 g3 a2 u3 a3");
}

// Numbers of blocks may have gaps: part of a pipeline's model.
TEST(FsdpDenseRegions, TheBlockBeforeIsTheOneThatRunsBefore) {
  Step step;
  step.Forward("layers.3", "a3: x; b3: a3")
      .Forward("layers.10", "*g gather: w; *u wait: g; a10: b3 u");
  EXPECT_EQ(step.Order(), "g a3 b3 u a10");
}

TEST(FsdpDenseRegions, ExpertsAreNoDenseRegion) {
  Step step;
  step.Forward("layers.0",
               "r0 expert: x; D0 tokens: r0; Dw0 wait: D0; E0 expert: Dw0; a0: E0; b0: a0")
      .Forward("layers.1", "*g1 gather: w1; *u1 wait: g1; a1: b0 u1");
  EXPECT_EQ(step.Order(), "r0 D0 Dw0 E0 g1 a0 b0 u1 a1");
}

TEST(FsdpDenseRegions, ExpertsThatExchangeNothingAreDense) {
  Step step;
  step.Forward("layers.0", "r0 expert: x; E0 expert: r0; a0: E0")
      .Forward("layers.1", "*g1 gather: w1; *u1 wait: g1; a1: a0 u1");
  EXPECT_EQ(step.Order(), "g1 r0 E0 a0 u1 a1");
}

TEST(FsdpDenseRegions, ReductionsStartBehindTheExchangesOfTheNextBlock) {
  Step step;
  step.Backward("layers.1", "c1: x; *s1 scatter: c1; *v1 wait: s1")
      .Backward("layers.0",
                "E0 expert: c1; D0 tokens: E0; Dw0 wait: D0; f0 expert: Dw0; c0: f0; d0: c0")
      .Returns("v1");
  EXPECT_EQ(step.Order(), "c1 E0 D0 Dw0 f0 s1 c0 d0 v1");
}

// Only compute begins a region: neither views nor unpacking nor what is computed again.
TEST(FsdpDenseRegions, RegionsBeginWithCompute) {
  Step step;
  step.Backward("layers.1", "t1 again: x; m1 view: t1; *n1 add: m1 m1; c1: n1; d1: c1")
      .Backward("layers.0", "*k0 gather: w0; *l0 wait: k0; c0: d1 l0");
  EXPECT_EQ(step.Order(), "t1 m1 n1 k0 c1 d1 l0 c0");
}

TEST(FsdpDenseRegions, ReductionsStayBehindTheirGradient) {
  Step step;
  step.Backward("layers.1", "c1: x")
      .Backward("layers.0", "c0: c1")
      .Backward("layers.1", "m1: c1")
      .Backward("layers.0", "d0: c0; e0: d0")
      .Backward("layers.1", "*i1 view: m1; *s1 scatter: i1; *v1 wait: s1")
      .Returns("v1");
  EXPECT_EQ(step.Order(), "c1 c0 m1 i1 s1 d0 e0 v1");
}

// What nobody else needs moves along; a cast that others need too stays.
TEST(FsdpDenseRegions, LaunchChainsMoveAsOne) {
  Step step;
  step.Forward("layers.0", "a0: x; b0: a0")
      .Forward("layers.1",
               "t1 cast: w1; p1 pad: t1; i1 alias: p1; j1 view: v1; *n1 pack: i1 j1; "
               "*g1 gather: n1; *u1 wait: g1; a1: b0 u1");
  EXPECT_EQ(step.Order(), "t1 p1 i1 j1 n1 g1 a0 b0 u1 a1");

  Step shared;
  shared.Forward("layers.0", "t1 cast: w1; a0: x t1; p1 pad: t1")
      .Forward("layers.1", "*g1 gather: p1; *u1 wait: g1; a1: a0 u1");
  EXPECT_EQ(shared.Order(), "t1 p1 g1 a0 u1 a1");
}

TEST(FsdpDenseRegions, LaunchChainsOfGradientsEndWhereTheyAreComputed) {
  Step step;
  step.Backward("layers.1",
                "c1: x; i1 view: c1; j1 pad: i1; *n1 pack: j1 j1; *s1 scatter: n1; *v1 wait: s1; "
                "d1: c1")
      .Backward("layers.0", "c0: d1; d0: c0")
      .Returns("v1");
  EXPECT_EQ(step.Order(), "c1 d1 i1 j1 n1 s1 c0 d0 v1");
}

// What computes with a prepared gradient as well keeps it where it is.
TEST(FsdpDenseRegions, SharedNodesAreNoPartOfAChain) {
  Step step;
  step.Backward("layers.1",
                "c1: x; i1 view: c1; j1 view: i1; *s1 scatter: j1; *v1 wait: s1; d1: c1 i1")
      .Backward("layers.0", "c0: d1")
      .Returns("v1");
  EXPECT_EQ(step.Order(), "c1 i1 d1 j1 s1 c0 v1");
}

// What the step returns stays, although only the collective uses it.
TEST(FsdpDenseRegions, OutputsAreNoPartOfAChain) {
  Step step;
  step.Backward("layers.1", "c1: x; i1 view: c1; *s1 scatter: i1; *v1 wait: s1; d1: c1")
      .Backward("layers.0", "c0: d1")
      .Returns("i1 v1");
  EXPECT_EQ(step.Order(), "c1 i1 d1 s1 c0 v1");
}

// Everything made of waited gradients goes to the end, through aliases and sums of chunks.
TEST(FsdpDenseRegions, WaitsAndWhatUnpacksThemGoToTheEnd) {
  Step step;
  step.Backward("layers.1",
                "c1: x; *s1 scatter: c1; *v1 wait: s1; m1 alias: v1; n1 cast: m1; d1: c1; "
                "*r1 scatter: d1; *t1 wait: r1; o1 add: n1 t1; p1 alias: o1")
      .Backward("layers.0", "c0: d1; *s0 scatter: c0; *v0 wait: s0; q0 add: acc v0; e0: c0")
      .Returns("m1 p1 q0 e0");
  EXPECT_EQ(step.Order(), "c1 d1 s1 r1 c0 s0 e0 v1 m1 n1 t1 o1 p1 v0 q0");
}

// Gradients are shared out among shards and then reduced among replicas, a block later.
TEST(FsdpDenseRegions, ReplicasReduceBehindShards) {
  Step step;
  step.Backward("layers.2", "c2: x; *s2 scatter: c2; *v2 wait: s2; *r2 reduce: v2; *t2 wait: r2")
      .Backward("layers.1", "c1: c2; *s1 scatter: c1; *v1 wait: s1")
      .Backward("layers.1", "i1 view: v1; *r1 reduce: i1; *t1 wait: r1; n1 cast: t1")
      .Backward("layers.0", "c0: c1; *s0 scatter: c0; *v0 wait: s0; *r0 reduce: v0; *t0 wait: r0")
      .Backward("tok_embeddings", "e: c0")
      .Returns("t2 n1 t0");
  EXPECT_EQ(step.Order(), "c2 s2 c1 v2 r2 s1 c0 s0 e t2 v1 i1 r1 t1 n1 v0 r0 t0");
}

// A gradient that only replicas reduce moves as one that shards reduce.
TEST(FsdpDenseRegions, ReplicasAlone) {
  Step step;
  step.Backward("layers.1", "c1: x; *r1 reduce: c1; *t1 wait: r1; d1: c1")
      .Backward("layers.0", "c0: d1; d0: c0")
      .Returns("t1");
  EXPECT_EQ(step.Order(), "c1 d1 r1 c0 d0 t1");
}

// What adds gradients at the end is no dense compute, although it bears a block's name.
TEST(FsdpDenseRegions, SumsOfGradientsAreNoDenseRegion) {
  Step step;
  step.Backward(
          "layers.1",
          "c1: x; *s1 scatter: c1; *r1 scatter: c1; *v1 wait: s1; *t1 wait: r1; o1 add: v1 t1")
      .Backward("tok_embeddings", "q: c1; *se scatter: q; *ve wait: se; z: q")
      .Returns("o1 ve z");
  EXPECT_EQ(step.Order(), "c1 s1 r1 q se z v1 t1 o1 ve");
  EXPECT_EQ(CounterOf(step.Run(), "reductions"), 0);
}

// Moves that dependencies forbid.

Step WaitThatIsNeeded() {
  Step step;
  step.Backward("layers.1", "c1: x; *s1 scatter: c1; *v1 wait: s1; m1 alias: v1; d1: c1 m1")
      .Backward("layers.0", "c0: d1; *s0 scatter: c0; *v0 wait: s0; d0: c0")
      .Returns("v1 v0 d0");
  return step;
}

TEST(FsdpDenseRegions, WhatCannotMoveStays) {
  Step step = WaitThatIsNeeded();
  const PassRun run = step.Run();
  EXPECT_EQ(step.Names(), "c1 s1 v1 m1 d1 c0 s0 d0 v0");
  EXPECT_EQ(CounterOf(run, "blocked"), 2);  // the wait, and so the reduction
  EXPECT_EQ(CounterOf(run, "waits"), 1);
}

TEST(FsdpDenseRegions, StrictNamesTheWaitAndItsUser) {
  const std::string error = WaitThatIsNeeded().StrictError();
  EXPECT_TRUE(Contains(error,
                       "%v1 (_c10d_functional::wait_tensor, module 'layers.1', bucket "
                       "'layers.1') cannot move to the end of the step"))
      << error;
  EXPECT_TRUE(Contains(error, "%d1 (aten::mm, module 'layers.1') uses it before")) << error;
}

Step GatherThatNeedsALateValue() {
  Step step;
  step.Forward("layers.0", "a0: x; b0: a0; n0: b0")
      .Forward("layers.1", "p1 view: n0; *g1 gather: p1; *u1 wait: g1; a1: b0 u1");
  return step;
}

TEST(FsdpDenseRegions, AGatherThatNeedsALateValueStays) {
  Step step = GatherThatNeedsALateValue();
  const PassRun run = step.Run();
  EXPECT_FALSE(run.changed);
  EXPECT_EQ(CounterOf(run, "blocked"), 1);
  EXPECT_EQ(CounterOf(run, "gathers"), 0);
  const std::string error = GatherThatNeedsALateValue().StrictError();
  EXPECT_TRUE(Contains(error, "%g1 (_c10d_functional::all_gather_into_tensor, module 'layers.1'"))
      << error;
  EXPECT_TRUE(Contains(error, "%n0 (aten::mm, module 'layers.0') is needed")) << error;
}

Step GatherThatIsUsedEarly() {
  Step step;
  step.Forward("layers.1", "*g1 gather: w1; *u1 wait: g1; n: x u1")
      .Forward("layers.0", "a0: n")
      .Forward("layers.1", "a1: a0 u1");
  return step;
}

TEST(FsdpDenseRegions, AGatherThatIsUsedEarlyStays) {
  Step step = GatherThatIsUsedEarly();
  const PassRun run = step.Run();
  EXPECT_FALSE(run.changed);
  EXPECT_EQ(CounterOf(run, "blocked"), 1);
  const std::string error = GatherThatIsUsedEarly().StrictError();
  EXPECT_TRUE(Contains(error, "%u1")) << error;
  EXPECT_TRUE(Contains(error, "uses it before")) << error;
}

Step GradientBehindTheRegion() {
  Step step;
  step.Backward("layers.1", "c1: x")
      .Backward("layers.0", "c0: c1")
      .Backward("layers.1", "m1: c0; *s1 scatter: m1; *v1 wait: s1")
      .Backward("tok_embeddings", "q: c0")
      .Returns("v1");
  return step;
}

TEST(FsdpDenseRegions, AGradientBehindTheRegionKeepsItsReductionThere) {
  Step step = GradientBehindTheRegion();
  const PassRun run = step.Run();
  EXPECT_EQ(step.Names(), "c1 c0 m1 s1 q v1");
  EXPECT_EQ(CounterOf(run, "blocked"), 1);
  const std::string error = GradientBehindTheRegion().StrictError();
  EXPECT_TRUE(Contains(error, "%s1")) << error;
  EXPECT_TRUE(Contains(error, "%m1 (aten::mm, module 'layers.1') comes behind that region"))
      << error;
}

// Gathers of one direction have nothing to do with compute of the other.
TEST(FsdpDenseRegions, WithoutADenseRegionNothingMoves) {
  Step step;
  step.Forward("layers.1", "*g1 gather: w1; *u1 wait: g1; a1: x u1").Backward("layers.0", "c0: a1");
  EXPECT_FALSE(step.Run(/*strict=*/true).changed);
}

TEST(FsdpDenseRegions, StepsWithoutBucketsAreLeftAlone) {
  Step step;
  step.Forward("layers.0", "a0: x").Forward("layers.1", "g1 gather: w1; u1 wait: g1; a1: a0 u1");
  EXPECT_FALSE(step.Run(/*strict=*/true).changed);
  Step outside;
  outside.Forward("norm", "*g gather: w; *u wait: g; h: x u; *s scatter: h; *v wait: s");
  EXPECT_FALSE(outside.Run(/*strict=*/true).changed);
}

}  // namespace
}  // namespace gt::fsdp_dense_regions_test
