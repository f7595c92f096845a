#include "gt/exec/program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/exec/reference.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::program_test {
namespace {

std::unique_ptr<Graph> Checked(const std::string& text) {
  std::unique_ptr<Graph> graph = Parse(text);
  Verify(*graph);
  return graph;
}

void ExpectBothGive(const Graph& graph, std::vector<at::Tensor> inputs,
                    const at::Tensor& expected) {
  EXPECT_TRUE(Program(graph).Run(inputs)[0].equal(expected));
  EXPECT_TRUE(RunReference(graph, inputs)[0].equal(expected));
}

std::string MessageOf(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Program, ChainsOfViewsNeedNoKernel) {
  auto graph = Checked(R"(graph @g(%x: input "x" f32[s0, 6]) {
  symbols { s0: input, hint 4, range [2, 64] }
  %t = aten::t(%x) : f32[6, s0]{1, 6}
  %slice = aten::slice.Tensor(%t, dim = 0, start = 1, end = 5, step = 2) : f32[2, s0]{2, 6} offset [1]
  %select = aten::select.int(%slice, dim = 0, index = 1) : f32[s0]{6} offset [2]
  %neg = aten::neg(%select) : f32[s0]
  return result "y" %neg
})");
  for (int64_t rows : {4, 2, 9}) {
    at::Tensor x = at::randn({rows, 6});
    ExpectBothGive(*graph, {x}, -x.t().slice(0, 1, 5, 2).select(0, 1));
  }
}

TEST(Program, AsStridedCountsFromTheBeginningOfTheStorage) {
  auto graph = Checked(R"(graph @g(%x: input "x" f32[8]) {
  %tail = aten::slice.Tensor(%x, dim = 0, start = 4, end = 8) : f32[4] offset [4]
  %look = aten::as_strided(%tail, size = [2], stride = [3], storage_offset = 1) : f32[2]{3} offset [1]
  %neg = aten::neg(%look) : f32[2]
  return result "y" %neg
})");
  at::Tensor x = at::arange(8, at::kFloat);
  ExpectBothGive(*graph, {x}, -x.slice(0, 4, 8).as_strided({2}, {3}, 1));
}

TEST(Program, ListArgumentsAndMissingElements) {
  auto graph = Checked(R"(graph @g(%x: input "x" f32[3, 4], %i: input "i" i64[2]) {
  %cat = aten::cat([%x, %x], dim = 0) : f32[6, 4]
  %pick = aten::index.Tensor(%cat, [none, %i]) : f32[6, 2]
  return result "y" %pick
})");
  at::Tensor x = at::randn({3, 4}), i = at::tensor({3, 1}, at::kLong);
  at::Tensor expected = at::cat({x, x}).index({at::indexing::Slice(), i});
  ExpectBothGive(*graph, {x, i}, expected);
  Program program(*graph);  // lists are not shared between runs
  EXPECT_TRUE(program.Run(std::vector<at::Tensor>{x, i})[0].equal(expected));
  EXPECT_TRUE(program.Run(std::vector<at::Tensor>{x * 2, i})[0].equal(expected * 2));
}

TEST(Program, NumbersInThePlaceOfTensorsPromoteAsScalars) {
  auto graph = Checked(R"(graph @g(%x: input "x" bf16[3]) {
  %mul = aten::mul.Tensor(%x, 2.5) : bf16[3]
  return result "y" %mul
})");
  at::Tensor x = at::randn({3}).to(at::kBFloat16);
  ExpectBothGive(*graph, {x}, x * 2.5);
}

TEST(Program, LazyConjugationIsDoneBeforeKernels) {
  auto graph = Checked(R"(graph @g(%x: input "x" c64[3], %y: input "y" c64[3]) {
  %conj = aten::_conj(%x) : c64[3]
  %mul = aten::mul.Tensor(%conj, %y) : c64[3]
  return result "y" %mul
})");
  at::Tensor x = at::randn({3}, at::kComplexFloat), y = at::randn({3}, at::kComplexFloat);
  ExpectBothGive(*graph, {x, y}, x.conj() * y);
}

TEST(Program, ValuesAreFreedAtTheirLastUse) {
  auto graph = Checked(R"(graph @g(%x: input "x" f32[1024]) {
  %a = aten::neg(%x) : f32[1024]
  %b = aten::exp(%a) : f32[1024]
  %unused = aten::exp(%b) : f32[1024]
  %c = aten::neg(%b) : f32[1024]
  return result "y" %c
})");
  at::Tensor x = at::randn({1024});
  Program program(*graph);
  at::Tensor y = program.Run(std::vector<at::Tensor>{x})[0];
  EXPECT_EQ(x.use_count(), 1u) << "the program keeps its inputs alive";
  EXPECT_EQ(y.use_count(), 1u) << "the program keeps its outputs alive";
}

TEST(Program, InputsThatDoNotFitAreRefusedByName) {
  auto graph = Checked(R"(graph @g(%x: input "tokens" f32[s0, 6], %y: input "labels" f32[s0]) {
  symbols { s0: input, hint 4, range [2, 8] }
  guards { s0 != 5 by "layers.0" "aten::view" }
  %sum = aten::sum.dim_IntList(%x, dim = [1]) : f32[s0]
  %add = aten::add.Tensor(%sum, %y) : f32[s0]
  return result "y" %add
})");
  auto run = [&](std::vector<at::Tensor> inputs) {
    return [&, inputs] { Program(*graph).Run(inputs); };
  };
  auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(MessageOf(run({at::ones({4, 7}), at::ones({4})}), ErrorCode::kInputMismatch), "'tokens'");
  expect(MessageOf(run({at::ones({4, 6}, at::kDouble), at::ones({4})}), ErrorCode::kInputMismatch),
         "f64");
  expect(MessageOf(run({at::ones({4, 6}), at::ones({3})}), ErrorCode::kInputMismatch), "'labels'");
  expect(MessageOf(run({at::ones({9, 6}), at::ones({9})}), ErrorCode::kSizeOutOfRange), "[2, 8]");
  expect(MessageOf(run({at::ones({5, 6}), at::ones({5})}), ErrorCode::kGuardBroken), "s0 != 5");
  expect(MessageOf(run({at::ones({4, 6})}), ErrorCode::kInputMismatch), "2 inputs");
  ExpectBothGive(*graph, {at::ones({6, 6}), at::ones({6})}, at::full({6}, 7.0));
}

TEST(Program, AKernelsErrorNamesNodeAndModule) {
  auto graph = Checked(R"(graph @g(%w: input "w" f32[4, 2], %i: input "i" i64[3]) {
  %e = aten::embedding(%w, %i) : f32[3, 2] {module = "tok_embeddings"}
  return result "y" %e
})");
  std::vector<at::Tensor> inputs = {at::randn({4, 2}), at::tensor({0, 9, 1}, at::kLong)};
  std::string message = MessageOf([&] { Program(*graph).Run(inputs); }, ErrorCode::kKernelFailed);
  EXPECT_NE(message.find("'tok_embeddings'"), std::string::npos) << message;
  EXPECT_NE(message.find("%e"), std::string::npos) << message;
}

TEST(Reference, AWrongTypeInTheGraphIsFound) {
  std::unique_ptr<Graph> graph = Parse(R"(graph @g(%x: input "x" f32[3, 4]) {
  %sum = aten::sum.dim_IntList(%x, dim = [1]) : f32[4]
  return result "y" %sum
})");
  std::vector<at::Tensor> inputs = {at::ones({3, 4})};
  MessageOf([&] { RunReference(*graph, inputs); }, ErrorCode::kResultMismatch);
}

}  // namespace
}  // namespace gt::program_test
