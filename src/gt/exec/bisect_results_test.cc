// Passes that keep results, and some that do not, told apart by running graphs.
#include "gt/exec/bisect_results.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/passes/framework/registry.h"
#include "gt/testing/temp_folder.h"

namespace gt::bisect_results_test {
namespace {

constexpr const char* kGraph =
    R"(graph @g(%x: input "x" f32[s0, 3], %i: input "i" i64[2]) {
  symbols { s0: input, hint 4, range [1, inf] }
  %dead = aten::neg(%x) : f32[s0, 3]
  %a = aten::neg(%x) : f32[s0, 3]
  %r = aten::rand_like(%a) : f32[s0, 3]
  %b = aten::mul.Tensor(%a, %r) : f32[s0, 3]
  %c = aten::index_select(%b, dim = 1, index = %i) : f32[s0, 2]
  return result "b" %b, result "c" %c
})";

class Scripted : public Pass {
 public:
  explicit Scripted(std::function<bool(Graph&)> run) : run_(std::move(run)) {}
  const PassInfo& info() const override {
    static constexpr PassInfo kInfo = {"scripted", "", "", "", "", ""};
    return kInfo;
  }
  bool RunImpl(Graph& graph, PassContext&) override { return run_(graph); }

 private:
  std::function<bool(Graph&)> run_;
};

// %b is made of %x instead of -%x.
bool ForgetTheSign(Graph& graph) {
  Node* product = graph.FindValue("b")->producer();
  product->SetOperand(0, graph.FindValue("x"));
  return true;
}

PassList With(std::string_view before, std::function<bool(Graph&)> run, std::string_view after) {
  PassList passes = ParsePipeline(before);
  passes.push_back(std::make_unique<Scripted>(std::move(run)));
  for (auto& pass : ParsePipeline(after)) passes.push_back(std::move(pass));
  return passes;
}

TEST(BisectResults, CorrectPassesKeepResults) {
  auto graph = Parse(kGraph);
  const uint64_t hash = graph->Hash();
  PassContext context;
  EXPECT_FALSE(FirstChangingResults(ParsePipeline("dce,canonicalize,cse,dce"), *graph, context));
  EXPECT_EQ(graph->Hash(), hash);
}

TEST(BisectResults, FindsTheFirstWrongPass) {
  auto graph = Parse(kGraph);
  PassContext context;
  const auto found =
      FirstChangingResults(With("dce,canonicalize", ForgetTheSign, "cse"), *graph, context);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->index, 2);
  EXPECT_EQ(found->spec, "scripted");
  EXPECT_EQ(found->difference, "output \"b\": 12 of 12 elements differ");
}

TEST(BisectResults, AGraphThatCannotRunAnyMoreIsWrong) {
  auto graph = Parse(kGraph);
  PassContext context;
  const auto lie = [](Graph& g) {
    Value* c = g.FindValue("c");
    c->set_type(ContiguousType(DType::kFloat32, {}, {Dim(7), Dim(2)}, g.shapes()));
    return true;
  };
  const auto found = FirstChangingResults(With("dce", lie, ""), *graph, context);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->index, 1);
  EXPECT_NE(found->difference.find("cannot run any more"), std::string::npos) << found->difference;
}

TEST(BisectResults, SaysThatAGraphCannotRun) {
  auto graph = Parse(R"(graph @g(%x: input "x" f32[4]) {
  %g = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "fsdp") : f32[8]
  %y = _c10d_functional::wait_tensor(%g) : f32[8]
  return result "y" %y
})");
  PassContext context;
  try {
    FirstChangingResults(ParsePipeline("dce"), *graph, context);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("collectives need ranks"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gt::bisect_results_test
