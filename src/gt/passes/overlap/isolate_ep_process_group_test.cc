// In which order groups for token exchanges are made.
#include "gt/passes/overlap/isolate_ep_process_group.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"
#include "gt/testing/fake_groups.h"

namespace gt::isolate_ep_process_group_test {
namespace {

using testing::FakeGroups;

PassRun RunManaged(Graph& graph, ProcessGroups* groups) {
  PassList passes;
  passes.push_back(std::make_unique<IsolateEpProcessGroup>());
  PassManager manager(std::move(passes), {.write_reproducer = false});
  PassContext context({.groups = groups});
  return manager.Run(graph, context).runs.at(0);
}

// Exchanges and other collectives, each in a group of the given name.
std::string Text(const std::vector<std::string>& exchanges, const std::vector<std::string>& others,
                 std::string_view meta = "") {
  std::string text = "graph @step(%x: input \"x\" f32[4, 2]) {\n";
  std::string outputs;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    text += fmt::format(
        "  %t{} = _c10d_functional::all_to_all_single(%x, output_split_sizes = [2, 2], "
        "input_split_sizes = [2, 2], group_name = \"{}\") : f32[4, 2]{}\n",
        i, exchanges[i], meta);
    outputs += fmt::format("{}result \"t{}\" %t{}", outputs.empty() ? "" : ", ", i, i);
  }
  for (size_t i = 0; i < others.size(); ++i) {
    text += fmt::format(
        "  %o{} = _c10d_functional::all_reduce(%x, reduce_op = \"sum\", group_name = \"{}\") : "
        "f32[4, 2] {{module = \"layers.0.wq\"}}\n",
        i, others[i]);
    outputs += fmt::format("{}result \"o{}\" %o{}", outputs.empty() ? "" : ", ", i, i);
  }
  return text + "  return " + outputs + "\n}\n";
}

// Names of groups, in the order of the nodes.
std::string GroupsOf(const Graph& graph) {
  std::string names;
  for (const Node* node : graph.nodes()) {
    names += (names.empty() ? "" : " ") + std::get<std::string>(node->arg(node->op().group_arg));
  }
  return names;
}

TEST(IsolateEpProcessGroup, EachSourceGetsOneGroup) {
  FakeGroups groups({{"a", {1, {0}}}, {"b", {2, {0}}}, {"c", {3, {0}}}});
  auto graph = Parse(Text({"b", "a", "c", "b"}, {"a", "b"}));
  PassRun run = RunManaged(*graph, &groups);
  EXPECT_EQ(GroupsOf(*graph), "b.tokens a.tokens c b.tokens a b");
  EXPECT_EQ(groups.made, (std::vector<std::string>{"a.tokens", "b.tokens"}));
  EXPECT_EQ(run.counters[0].second, 2);
  EXPECT_EQ(run.counters[1].second, 3);
}

}  // namespace
}  // namespace gt::isolate_ep_process_group_test
