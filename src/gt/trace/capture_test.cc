#include "gt/trace/capture.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "gt/base/error.h"
#include "gt/exec/program.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/nn/blocks.h"
#include "gt/torch_bridge/scope.h"

namespace gt::capture_test {
namespace {

// A model as a user of libtorch would write it: nothing of ours in it.
struct PlainMlp : torch::nn::Module {
  PlainMlp() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    second = register_module("second", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::gelu(norm(first(x)))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

// Counts what it sees in a buffer, in place.
struct Counting : torch::nn::Module {
  Counting() {
    weight = register_parameter("weight", torch::ones({4}));
    seen = register_buffer("seen", torch::zeros({4}));
  }
  at::Tensor forward(const at::Tensor& x) {
    {
      torch::NoGradGuard no_gradients;
      seen.add_(x.sum(0));
      seen.slice(0, 0, 2).mul_(2);  // through a view
    }
    return (x * weight).sum();
  }
  at::Tensor weight, seen;
};

StepInput Rows(int64_t rows, int64_t columns, bool symbolic = true) {
  StepInput input{.name = "x", .sizes = {rows, columns}, .dtype = at::kFloat};
  if (symbolic) input.symbolic = {{0, {.identity = "rows"}}};
  return input;
}

template <typename Model>
Captured CaptureSquared(Model& model) {
  return CaptureTrainStep(
      model,
      [&](std::span<const at::Tensor> inputs) { return model.forward(inputs[0]).pow(2).mean(); },
      {Rows(6, 4)});
}

std::vector<at::Tensor> RunOn(Captured& captured, const at::Tensor& x) {
  std::vector<at::Tensor> inputs = captured.bound_inputs;
  for (const auto& input : captured.graph->inputs()) {
    if (input->role == InputRole::kInput) inputs[static_cast<size_t>(input->value.index())] = x;
  }
  return Program(*captured.graph).Run(inputs);
}

ErrorCode CodeOf(const std::function<void()>& body, std::string* message = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error was thrown";
  return ErrorCode::kInternal;
}

TEST(Capture, PlainTorchModuleGivesEagerBitsAtOtherSizes) {
  torch::manual_seed(1);
  PlainMlp model;
  Captured captured = CaptureSquared(model);
  Verify(*captured.graph);
  for (int64_t rows : {6, 2, 11}) {
    at::Tensor x = torch::randn({rows, 4});
    at::Tensor loss = model.forward(x).pow(2).mean();
    std::vector<at::Tensor> expected = torch::autograd::grad({loss}, model.parameters());
    expected.insert(expected.begin(), loss.detach());
    std::vector<at::Tensor> actual = RunOn(captured, x);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i])) << i;
  }
}

// Gradients pass through what a program hangs onto tensors, and through those alone that it asks for.
TEST(Capture, HooksOfTensorsRunInTheBackward) {
  torch::manual_seed(1);
  PlainMlp model;
  auto loss_of = [&model](const at::Tensor& x) {
    at::Tensor inner = model.first(x) + torch::ones({8}, torch::requires_grad());
    inner.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
    return model.second(torch::gelu(inner) * inner).pow(2).mean();
  };
  model.norm->weight.requires_grad_(false);
  Captured captured = CaptureTrainStep(
      model, [&](std::span<const at::Tensor> inputs) { return loss_of(inputs[0]); }, {Rows(6, 4)});
  Verify(*captured.graph);
  at::Tensor x = torch::randn({6, 4});
  at::Tensor loss = loss_of(x);
  std::vector<at::Tensor> trained = {model.first->weight, model.first->bias, model.second->weight,
                                     model.second->bias};
  std::vector<at::Tensor> expected = torch::autograd::grad({loss}, trained);
  std::vector<at::Tensor> actual = RunOn(captured, x);
  ASSERT_EQ(actual.size(), expected.size() + 1);
  EXPECT_TRUE(actual[0].equal(loss));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(actual[i + 1].equal(expected[i])) << i;
}

TEST(Capture, PlainTorchModulesAreNamedByTheParametersTheyRead) {
  PlainMlp model;
  Captured captured = CaptureSquared(model);
  std::map<std::string, std::set<std::string>> modules;
  for (const Node* node : captured.graph->nodes()) {
    modules[node->op().name.str()].insert(node->meta().module.str());
  }
  EXPECT_EQ(modules["aten::addmm"], (std::set<std::string>{"first", "second"}));
  EXPECT_EQ(modules["aten::native_layer_norm"], (std::set<std::string>{"norm"}));
  EXPECT_EQ(modules["aten::native_layer_norm_backward"], (std::set<std::string>{"norm"}));
}

TEST(Capture, BufferMutationBecomesAnUpdate) {
  Counting model;
  Captured captured = CaptureTrainStep(
      model, [&](std::span<const at::Tensor> inputs) { return model.forward(inputs[0]); },
      {Rows(6, 4)});
  Verify(*captured.graph);
  EXPECT_TRUE(model.seen.equal(torch::zeros({4}))) << "capturing must not touch the module";
  at::Tensor x = torch::randn({5, 4});
  std::vector<at::Tensor> outputs = RunOn(captured, x);
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(captured.graph->outputs()[2]->role, OutputRole::kBufferUpdate);
  EXPECT_EQ(captured.graph->outputs()[2]->name, "seen");
  model.forward(x);
  EXPECT_TRUE(outputs[2].equal(model.seen));
}

TEST(Capture, EqualExtentsAreNotOneSymbolUnlessSaidSo) {
  PlainMlp model;
  auto sum = [](std::span<const at::Tensor> inputs) { return inputs[0].sum() + inputs[1].sum(); };
  StepInput a = Rows(4, 4), b = Rows(4, 4);
  b.name = "y";
  b.symbolic = {{0, {.identity = "other rows"}}};
  Captured apart = CaptureForward(model, sum, {a, b});
  EXPECT_EQ(apart.graph->shapes().symbols().size(), 2u);
  b.symbolic = a.symbolic;
  Captured shared = CaptureForward(model, sum, {a, b});
  EXPECT_EQ(shared.graph->shapes().symbols().size(), 1u);
}

TEST(Capture, HooksChooseTheSymbolicDimensions) {
  PlainMlp model;
  CaptureOptions options;
  options.hooks.push_back([](std::span<StepInput> inputs) {
    inputs[0].symbolic = {{0, {.identity = "rows", .low = 2, .high = 64}}};
  });
  Captured captured = CaptureForward(
      model, [&](std::span<const at::Tensor> inputs) { return model.forward(inputs[0]); },
      {Rows(6, 4, /*symbolic=*/false)}, options);
  ASSERT_EQ(captured.graph->shapes().symbols().size(), 1u);
  EXPECT_EQ(captured.graph->shapes().symbol(0).high, 64);
  std::string message;
  EXPECT_EQ(CodeOf(
                [&] {
                  RunOn(captured, torch::randn({65, 4}));
                },
                &message),
            ErrorCode::kSizeOutOfRange);
  EXPECT_NE(message.find("'x'"), std::string::npos) << message;
}

TEST(Capture, BranchOnASizeLeavesAGuardThatReplayRespects) {
  PlainMlp model;
  Captured captured = CaptureForward(model,
                                     [](std::span<const at::Tensor> inputs) {
                                       const at::Tensor& x = inputs[0];
                                       return x.sym_size(0) > 4 ? x * 2 : x * 3;
                                     },
                                     {Rows(6, 4)});
  ASSERT_EQ(captured.graph->shapes().guards().size(), 1u);
  at::Tensor seven = torch::randn({7, 4});
  EXPECT_TRUE(RunOn(captured, seven)[0].equal(seven * 2));
  std::string message;
  EXPECT_EQ(CodeOf(
                [&] {
                  RunOn(captured, torch::randn({3, 4}));
                },
                &message),
            ErrorCode::kGuardBroken);
  EXPECT_NE(message.find("s0"), std::string::npos) << message;
}

TEST(Capture, AnnotationsAndPhasesReachForwardAndBackwardNodes) {
  PlainMlp model;
  Captured captured =
      CaptureTrainStep(model,
                       [&](std::span<const at::Tensor> inputs) {
                         at::Tensor h;
                         {
                           AnnotationGuard annotation({.ep_role = EpRole::kDispatch});
                           h = model.forward(inputs[0]);
                         }
                         AnnotationGuard annotation({.phase = Phase::kLoss});
                         return h.mean();
                       },
                       {Rows(6, 4)});
  bool forward = false, backward = false, loss = false;
  for (const Node* node : captured.graph->nodes()) {
    const Meta& meta = node->meta();
    bool dispatch = meta.ep_role == EpRole::kDispatch;
    forward |= dispatch && meta.phase == Phase::kForward;
    backward |= dispatch && meta.phase == Phase::kBackward;
    loss |= meta.phase == Phase::kLoss && node->op().name.str() == "aten::mean";
    if (dispatch) EXPECT_NE(meta.source.str().find("capture_test.cc"), std::string::npos);
  }
  EXPECT_TRUE(forward);
  EXPECT_TRUE(backward);
  EXPECT_TRUE(loss);
}

TEST(Capture, BackwardNodesCarryTheSequenceOfTheirForwardNode) {
  PlainMlp model;
  Captured captured = CaptureSquared(model);
  std::map<int64_t, std::string> forward;
  for (const Node* node : captured.graph->nodes()) {
    const Meta& meta = node->meta();
    if (meta.sequence < 0) continue;
    if (meta.phase != Phase::kBackward) {
      EXPECT_TRUE(forward.emplace(meta.sequence, node->op().name.str()).second);
    } else {
      ASSERT_TRUE(forward.contains(meta.sequence)) << Print(*node);
      if (node->op().name.str() == "aten::gelu_backward") {
        EXPECT_EQ(forward[meta.sequence], "aten::gelu");
      }
    }
  }
}

TEST(Capture, ConcreteSizeOfASymbolicTensorIsAnError) {
  PlainMlp model;
  std::string message;
  EXPECT_EQ(CodeOf(
                [&] {
                  CaptureForward(model,
                                 [](std::span<const at::Tensor> inputs) {
                                   return inputs[0] * static_cast<double>(inputs[0].size(0));
                                 },
                                 {Rows(6, 4)});
                },
                &message),
            ErrorCode::kConcreteSize);
  EXPECT_NE(message.find("s0"), std::string::npos) << message;
}

TEST(Capture, OperatorWithoutARuleIsNamedWithItsModule) {
  struct Odd : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return at::special_i0e(x); }
  };
  struct Outer : nn::Module {
    Outer() : odd(AddChild<Odd>("odd")) { nn::NameModules(*this); }
    nn::Ref<Odd> odd;
  } model;
  std::string message;
  EXPECT_EQ(CodeOf(
                [&] {
                  CaptureForward(
                      model,
                      [&](std::span<const at::Tensor> inputs) { return model.odd(inputs[0]); },
                      {Rows(6, 4)});
                },
                &message),
            ErrorCode::kNoRule);
  EXPECT_NE(message.find("special_i0e"), std::string::npos) << message;
  EXPECT_NE(message.find("'odd'"), std::string::npos) << message;
}

TEST(Capture, BranchOnDataIsAnError) {
  PlainMlp model;
  std::string message;
  EXPECT_EQ(CodeOf(
                [&] {
                  CaptureForward(model,
                                 [](std::span<const at::Tensor> inputs) {
                                   at::Tensor count = (inputs[0] > 0).sum();
                                   return count.item().toSymInt() > 3 ? inputs[0] * 2
                                                                      : inputs[0] * 3;
                                 },
                                 {Rows(6, 4)});
                },
                &message),
            ErrorCode::kDataDependentBranch);
  EXPECT_NE(message.find("u0"), std::string::npos) << message;
}

TEST(Capture, MutationOfAnInputOrParameterIsAnError) {
  PlainMlp model;
  std::string message;
  auto capture = [&](const StepFunction& function) {
    return CodeOf([&] { CaptureForward(model, function, {Rows(6, 4)}); }, &message);
  };
  EXPECT_EQ(capture([](std::span<const at::Tensor> inputs) {
              at::Tensor x = inputs[0];
              x.add_(1);
              return x * 2;
            }),
            ErrorCode::kInputMutated);
  EXPECT_NE(message.find("'x'"), std::string::npos) << message;
  EXPECT_EQ(capture([&](std::span<const at::Tensor> inputs) {
              model.first->weight.mul_(2);
              return model.forward(inputs[0]);
            }),
            ErrorCode::kInputMutated);
  EXPECT_NE(message.find("'first.weight'"), std::string::npos) << message;
}

TEST(Capture, TensorsTheModuleDoesNotOwnBecomeConstants) {
  PlainMlp model;
  at::Tensor scale = torch::randn({4});
  Captured captured = CaptureForward(
      model, [&](std::span<const at::Tensor> inputs) { return inputs[0] * scale; }, {Rows(6, 4)});
  at::Tensor x = torch::randn({6, 4});
  EXPECT_TRUE(RunOn(captured, x)[0].equal(x * scale));
}

TEST(Capture, AnErrorLeavesTheThreadAsItWas) {
  PlainMlp model;
  CodeOf([&] {
    CaptureForward(
        model,
        [](std::span<const at::Tensor>) -> at::Tensor { Fail(ErrorCode::kInternal, "on purpose"); },
        {Rows(6, 4)});
  });
  EXPECT_TRUE((torch::ones({2}) + 1).equal(torch::full({2}, 2.0)));
  Captured captured = CaptureSquared(model);
  EXPECT_GT(captured.graph->node_count(), 0);
}

TEST(Capture, RepeatedCapturesGiveEqualGraphs) {
  PlainMlp model;
  std::string first = Print(*CaptureSquared(model).graph);
  EXPECT_EQ(first, Print(*CaptureSquared(model).graph));
}

TEST(Capture, FusedMatmulPathsFollowLibtorch) {
  PlainMlp model;
  auto check = [&](at::IntArrayRef left, at::IntArrayRef right) {
    StepInput a{.name = "a", .sizes = left.vec(), .dtype = at::kFloat};
    StepInput b{.name = "b", .sizes = right.vec(), .dtype = at::kFloat};
    if (left.size() > 2) a.symbolic = {{0, {.identity = "batch"}}};
    Captured captured = CaptureForward(
        model, [](std::span<const at::Tensor> inputs) { return at::matmul(inputs[0], inputs[1]); },
        {a, b});
    Verify(*captured.graph);
    at::Tensor x = torch::randn(left), y = torch::randn(right);
    std::vector<at::Tensor> inputs = captured.bound_inputs;
    inputs[inputs.size() - 2] = x;
    inputs[inputs.size() - 1] = y;
    EXPECT_TRUE(Program(*captured.graph).Run(inputs)[0].equal(at::matmul(x, y))) << left << right;
  };
  check({5}, {5});
  check({3, 5}, {5});
  check({5}, {5, 4});
  check({3, 5}, {5, 4});
  check({2, 3, 5}, {5, 4});
  check({2, 3, 5}, {5});
  check({3, 5}, {2, 5, 4});
  check({2, 3, 5}, {2, 5, 4});
  check({2, 6, 3, 5}, {6, 5, 4});
}

}  // namespace
}  // namespace gt::capture_test
