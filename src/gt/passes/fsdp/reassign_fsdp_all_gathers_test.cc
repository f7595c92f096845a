// Gathers in groups of a job, and which parameter a value is made of.
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"
#include "gt/testing/fake_groups.h"

namespace gt::reassign_fsdp_all_gathers_test {
namespace {

PassRun RunManaged(Graph& graph, ProcessGroups* groups = nullptr) {
  PassList passes;
  passes.push_back(std::make_unique<ReassignFsdpAllGathers>());
  PassManager manager(std::move(passes), {.write_reproducer = false});
  PassContext context({.groups = groups});
  return manager.Run(graph, context).runs.at(0);
}

std::string Gather(std::string_view name, std::string_view of, std::string_view group,
                   std::string_view meta = "") {
  return fmt::format(
      "  %{} = _c10d_functional::all_gather_into_tensor(%{}, group_size = 2, group_name = \"{}\") "
      ": f32[8, 2]{}\n",
      name, of, group, meta);
}
std::string Scatter(std::string_view name, std::string_view group) {
  return fmt::format(
      "  %{} = _c10d_functional::reduce_scatter_tensor(%x, reduce_op = \"sum\", group_size = 2, "
      "group_name = \"{}\") : f32[2, 2]\n",
      name, group);
}

std::unique_ptr<Graph> Make(const std::string& lines) {
  return Parse(
      "graph @step(%w: param \"w\" f32[4, 2], %b: buffer \"b\" f32[4, 2], %x: input \"x\" f32[4, "
      "2]) {\n" +
      lines + "  return result \"x\" %x\n}\n");
}

std::string GroupsOf(const Graph& graph) {
  std::string names;
  for (const Node* node : graph.nodes()) {
    if (node->op().group_arg < 0) continue;
    names += (names.empty() ? "" : " ") + std::get<std::string>(node->arg(node->op().group_arg));
  }
  return names;
}

// One group may have two names.
TEST(ReassignFsdpAllGathers, GoesByIdentity) {
  testing::FakeGroups groups({{"fsdp", {1, {0, 1}}}, {"dp", {1, {0, 1}}}, {"other", {2, {0, 1}}}});
  auto graph = Make(Gather("a", "w", "fsdp") + Scatter("r", "dp"));
  EXPECT_TRUE(RunManaged(*graph, &groups).changed);
  EXPECT_EQ(GroupsOf(*graph), "fsdp.gathers dp");
  graph = Make(Gather("a", "w", "fsdp") + Scatter("r", "other"));
  EXPECT_FALSE(RunManaged(*graph, &groups).changed);
}

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
