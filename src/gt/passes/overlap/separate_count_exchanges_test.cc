// Which exchanges leave their group, and where they go.
#include "gt/passes/overlap/separate_count_exchanges.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"

namespace gt::separate_count_exchanges_test {
namespace {

// Notes what it is asked for.
class FakeGroups : public ProcessGroups {
 public:
  Info Find(std::string_view) override { return {}; }
  std::string Apart(std::string_view source, Purpose purpose) override {
    EXPECT_EQ(purpose, Purpose::kCounts);
    asked.emplace_back(source);
    return fmt::format("made{}", asked.size());
  }
  std::vector<std::string> asked;
};

PassRun RunManaged(Graph& graph, ProcessGroups* groups = nullptr) {
  PassList passes;
  passes.push_back(std::make_unique<SeparateCountExchanges>());
  PassManager manager(std::move(passes), {.write_reproducer = false});
  PassContext context({.groups = groups});
  return manager.Run(graph, context).runs.at(0);
}

// Exchanges, each "dtype group"; a group that begins with '+' sums instead.
std::unique_ptr<Graph> Step(const std::vector<std::string>& exchanges) {
  std::string text =
      "graph @step(%f32: input \"a\" f32[4], %bf16: input \"b\" bf16[4], %i64: input \"c\" i64[4], "
      "%i32: input \"d\" i32[4]) {\n";
  for (size_t i = 0; i < exchanges.size(); ++i) {
    const std::vector<std::string> words = Split(exchanges[i], ' ');
    const bool sums = words[1][0] == '+';
    text += fmt::format(
        "  %t{} = _c10d_functional::{}(%{}, {}, group_name = \"{}\") : {}[4]\n", i,
        sums ? "all_reduce" : "all_to_all_single", words[0],
        sums ? "reduce_op = \"sum\"" : "output_split_sizes = [2, 2], input_split_sizes = [2, 2]",
        words[1].substr(sums ? 1 : 0), words[0]);
  }
  return Parse(text + "  return\n}\n");
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
  auto graph = Step({"i64 z", "i64 b", "f32 z", "i64 b", "f32 b", "i64 alone", "f32 tokens"});
  FakeGroups groups;
  PassRun run = RunManaged(*graph, &groups);
  EXPECT_EQ(groups.asked, (std::vector<std::string>{"b", "z"}));
  EXPECT_EQ(GroupsOf(*graph), "made2 made1 z made1 b alone tokens");
  EXPECT_EQ(run.counters.at(0).second, 3);
}

}  // namespace
}  // namespace gt::separate_count_exchanges_test
