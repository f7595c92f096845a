// Which gathers leave their group, and which stay.
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"

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

TEST(ReassignFsdpAllGathers, GathersLeaveReductions) {
  auto graph = Make(Gather("a", "w", "fsdp") + Scatter("r", "fsdp") +
                    Gather("c", "w", "fsdp", " {phase = backward}"));
  PassRun run = RunManaged(*graph);
  EXPECT_EQ(GroupsOf(*graph), "fsdp.gathers fsdp fsdp.gathers");
  EXPECT_EQ(run.counters[0].second, 1);
  EXPECT_EQ(run.counters[1].second, 2);
  EXPECT_FALSE(RunManaged(*graph).changed);
}

TEST(ReassignFsdpAllGathers, GathersAmongThemselvesStay) {
  auto graph = Make(Gather("a", "w", "fsdp") + Gather("c", "w", "fsdp") + Scatter("r", "tp"));
  EXPECT_FALSE(RunManaged(*graph).changed);
}

// Casts, views and pads lie between; values, buffers and mixtures are no parameters.
TEST(ReassignFsdpAllGathers, GathersOfActivationsStay) {
  auto graph = Make(
      "  %h = aten::_to_copy(%w, dtype = bf16) : bf16[4, 2] {phase = backward}\n"
      "  %f = aten::_to_copy(%h, dtype = f32) : f32[4, 2] {phase = backward}\n"
      "  %m = aten::mul.Tensor(%w, %x) : f32[4, 2]\n" +
      Gather("a", "f", "g") + Gather("c", "x", "g") + Gather("d", "b", "g") +
      Gather("e", "m", "g"));
  PassRun run = RunManaged(*graph);
  EXPECT_EQ(GroupsOf(*graph), "g.gathers g g g");
  EXPECT_EQ(run.counters[1].second, 1);
}

TEST(ReassignFsdpAllGathers, TwoGroupsGetTwoGroups) {
  auto graph = Make(Gather("a", "w", "fsdp") + Gather("c", "w", "efsdp") + Gather("d", "w", "dp") +
                    Scatter("r", "fsdp") + Scatter("s", "efsdp"));
  PassRun run = RunManaged(*graph);
  EXPECT_EQ(GroupsOf(*graph), "fsdp.gathers efsdp.gathers dp fsdp efsdp");
  EXPECT_EQ(run.counters[0].second, 2);
}

// One group may have two names.
TEST(ReassignFsdpAllGathers, GoesByIdentity) {
  class OneGroup : public NamedGroups {
   public:
    Info Find(std::string_view name) override { return {name == "other" ? 2 : 1, {0, 1}}; }
  } groups;
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
