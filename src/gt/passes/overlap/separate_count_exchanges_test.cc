// In which order groups for counts are made.
#include "gt/passes/overlap/separate_count_exchanges.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"
#include "gt/testing/fake_groups.h"

namespace gt::separate_count_exchanges_test {
namespace {

PassRun RunManaged(Graph& graph, ProcessGroups* groups = nullptr) {
  PassList passes;
  passes.push_back(std::make_unique<SeparateCountExchanges>());
  PassManager manager(std::move(passes), {.write_reproducer = false});
  PassContext context({.groups = groups});
  return manager.Run(graph, context).runs.at(0);
}

// Names of groups, in the order of the nodes.
std::string GroupsOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node* node : graph.nodes()) {
    names.push_back(std::get<std::string>(node->arg(node->op().group_arg)));
  }
  return Join(names, " ");
}

// Every group has counts of its own. They are asked for once each, in the order of their names, so that
// all ranks make groups in the same order.
TEST(SeparateCountExchanges, EveryGroupApartInOrderOfNames) {
  std::string text = "graph @step(%f: input \"f\" f32[4], %c: input \"c\" i64[4]) {\n";
  int count = 0;
  for (const auto& [value, type, group] :
       {std::tuple("c", "i64", "z"), std::tuple("c", "i64", "b"), std::tuple("f", "f32", "z"),
        std::tuple("c", "i64", "b"), std::tuple("f", "f32", "b")}) {
    text += fmt::format(
        "  %t{} = _c10d_functional::all_to_all_single(%{}, output_split_sizes = [2, 2], "
        "input_split_sizes = [2, 2], group_name = \"{}\") : {}[4]\n",
        count++, value, group, type);
  }
  auto graph = Parse(text + "  return\n}\n");
  testing::FakeGroups groups;
  RunManaged(*graph, &groups);
  EXPECT_EQ(groups.made, (std::vector<std::string>{"b.counts", "z.counts"}));
  EXPECT_EQ(GroupsOf(*graph), "z.counts b.counts z b.counts b");
}

}  // namespace
}  // namespace gt::separate_count_exchanges_test
