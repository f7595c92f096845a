#include "gt/trace/read_ints.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "gt/base/error.h"
#include "gt/exec/program.h"
#include "gt/exec/reference.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/trace/capture.h"

namespace gt::read_ints_test {
namespace {

// Rows are dealt to two experts by how many each is to get; the split sizes are read from data.
struct TwoExperts : torch::nn::Module {
  TwoExperts() {
    first = register_module("first", torch::nn::Linear(4, 4));
    second = register_module("second", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts) {
    std::vector<c10::SymInt> splits = ReadInts(counts, {.sum = x.sym_size(0)});
    std::vector<at::Tensor> parts = x.split_with_sizes_symint(splits);
    return at::cat({first(parts[0]), second(parts[1])});
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

Captured CaptureExperts(TwoExperts& model) {
  StepInput x{.name = "x", .sizes = {8, 4}, .dtype = at::kFloat};
  x.symbolic = {{0, {.identity = "rows"}}};
  return CaptureTrainStep(
      model,
      [&](std::span<const at::Tensor> in) { return model.forward(in[0], in[1]).pow(2).sum(); },
      {x, {.name = "counts", .sizes = {2}}});
}

TEST(ReadInts, EagerReturnsPlainNumbers) {
  std::vector<c10::SymInt> numbers = ReadInts(torch::tensor({3, 0, 7}));
  ASSERT_EQ(numbers.size(), 3u);
  EXPECT_EQ(numbers[2].expect_int(), 7);
}

TEST(ReadInts, CapturedStepFollowsTheDataItMeets) {
  torch::manual_seed(3);
  TwoExperts model;
  Captured captured = CaptureExperts(model);
  Verify(*captured.graph);
  EXPECT_EQ(captured.graph->shapes().facts().size(), 1u);
  std::string text = Print(*captured.graph);
  EXPECT_EQ(Print(*Parse(text)), text);
  Program program(*captured.graph);
  for (auto [rows, left] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 4}, {8, 1}, {5, 3}, {6, 6}, {6, 0}}) {
    at::Tensor x = torch::randn({rows, 4}), counts = torch::tensor({left, rows - left});
    at::Tensor loss = model.forward(x, counts).pow(2).sum();
    std::vector<at::Tensor> expected = torch::autograd::grad({loss}, model.parameters());
    expected.insert(expected.begin(), loss.detach());
    std::vector<at::Tensor> inputs = captured.bound_inputs;
    inputs[inputs.size() - 2] = x;
    inputs[inputs.size() - 1] = counts;
    for (const auto& actual : {program.Run(inputs), RunReference(*captured.graph, inputs)}) {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(actual[i].equal(expected[i]))
            << rows << " rows, " << left << " left, output " << i;
      }
    }
  }
}

TEST(ReadInts, NumbersThatCannotBeSizesStopTheRun) {
  TwoExperts model;
  Captured captured = CaptureExperts(model);
  std::vector<at::Tensor> inputs = captured.bound_inputs;
  inputs[inputs.size() - 2] = torch::randn({8, 4});
  inputs[inputs.size() - 1] = torch::tensor({9, -1});
  try {
    Program(*captured.graph).Run(inputs);
    FAIL() << "a negative size was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kKernelFailed);
    EXPECT_NE(std::string(error.what()).find("-1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gt::read_ints_test
