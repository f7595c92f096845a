// Which parameter a value is made of.
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"

namespace gt::reassign_fsdp_all_gathers_test {
namespace {

TEST(ParameterOrigins, NamesTheParameter) {
  auto graph = Parse(
      "graph @step(%x: input \"x\" f32[2], %v: param \"v\" f32[2], %w: param \"w\" f32[2]) {\n"
      "  %a = aten::neg(%w) : f32[2]\n"
      "  %b = aten::view(%a, size = [1, 2]) : f32[1, 2]\n"
      "  %c = aten::neg(%v) : f32[2] {phase = backward}\n"
      "  %d = aten::neg(%x) : f32[2]\n"
      "  %e = aten::mul.Tensor(%v, %w) : f32[2]\n"
      "  %f = aten::bernoulli(%v) : f32[2]\n"
      "  return result \"x\" %x\n}\n");
  ParameterOrigins origins(*graph);
  std::vector<int32_t> found;
  for (const Node* node : graph->nodes()) found.push_back(origins.Of(*node));
  EXPECT_EQ(found, (std::vector<int32_t>{2, 2, 1, -1, -1, -1}));
}

}  // namespace
}  // namespace gt::reassign_fsdp_all_gathers_test
