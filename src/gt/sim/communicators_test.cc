#include "gt/sim/communicators.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gt/ir/text.h"

namespace gt::communicators_test {
namespace {

const CommunicatorMemory kMemory = {.bytes_per_group = 100, .bytes_per_peer = 7};

std::string Reduce(const char* result, const char* operand, const char* group) {
  return fmt::format(
      "  %{0} = _c10d_functional::all_reduce(%{1}, reduce_op = \"sum\", group_name = \"{2}\")"
      " : f32[16]\n"
      "  %{0}w = _c10d_functional::wait_tensor(%{0}) : f32[16]\n",
      result, operand, group);
}

std::string Exchange(const char* result, const char* operand, const char* group, int64_t ranks) {
  std::string splits;
  for (int64_t i = 0; i < ranks; ++i) {
    splits += fmt::format("{}{}", i == 0 ? "" : ", ", 16 / ranks);
  }
  return fmt::format(
      "  %{0} = _c10d_functional::all_to_all_single(%{1}, output_split_sizes = [{3}], "
      "input_split_sizes = [{3}], group_name = \"{2}\") : f32[16]\n"
      "  %{0}w = _c10d_functional::wait_tensor(%{0}) : f32[16]\n",
      result, operand, group, splits);
}

int64_t BytesOf(const std::string& body, const char* last,
                const CommunicatorMemory& memory = kMemory) {
  const std::string text = fmt::format(
      "graph @g(%x: input \"x\" f32[16]) {{\n{}  return result \"y\" %{}\n}}", body, last);
  return CommunicatorBytes(*Parse(text), memory);
}

TEST(Communicators, AreCountedByGroupAndNotByUse) {
  EXPECT_EQ(BytesOf("", "x"), 0);
  EXPECT_EQ(BytesOf(Reduce("a", "x", "dp"), "aw"), 100);
  EXPECT_EQ(BytesOf(Reduce("a", "x", "dp") + Reduce("b", "aw", "dp"), "bw"), 100);
  EXPECT_EQ(BytesOf(Reduce("a", "x", "dp") + Reduce("b", "aw", "tp"), "bw"), 200);
}

TEST(Communicators, OfExchangesTakeMoreForEachPeerOnTheNode) {
  EXPECT_EQ(BytesOf(Exchange("a", "x", "ep", 4), "aw"), 100 + 3 * 7);
  EXPECT_EQ(BytesOf(Exchange("a", "x", "ep", 16), "aw"), 100 + 7 * 7);
  EXPECT_EQ(BytesOf(Exchange("a", "x", "ep", 1), "aw"), 100);
  EXPECT_EQ(BytesOf(Reduce("a", "x", "ep") + Exchange("b", "aw", "ep", 4), "bw"), 100 + 3 * 7);
  EXPECT_EQ(BytesOf(Exchange("a", "x", "ep", 4) + Exchange("b", "aw", "ep.counts", 4), "bw"),
            2 * (100 + 3 * 7));
}

// Ranks along an outer axis of a mesh are on nodes of their own.
TEST(Communicators, OfGroupsAcrossNodesTakeNothingForPeers) {
  CommunicatorMemory memory = kMemory;
  memory.peers_on_node = {{"mesh_0", 0}, {"mesh_0_1", 1}};
  EXPECT_EQ(BytesOf(Exchange("a", "x", "mesh_0", 4), "aw", memory), 100);
  EXPECT_EQ(BytesOf(Exchange("a", "x", "mesh_0.counts", 4), "aw", memory), 100);
  EXPECT_EQ(BytesOf(Exchange("a", "x", "mesh_0_1", 4), "aw", memory), 100 + 7);
  EXPECT_EQ(BytesOf(Exchange("a", "x", "mesh_1", 4), "aw", memory), 100 + 3 * 7);
}

// A reduce-scatter is given 16 numbers and receives as many; an all-reduce copies them as well, and
// keeps its shard of the sum.
TEST(Communicators, OrderedSumsTakeASecondBuffer) {
  const auto bytes = [](const std::string& body, int64_t ranks) {
    const std::string text = fmt::format(
        "graph @g(%x: input \"x\" f32[16], %i: input \"i\" i64[16]) {{\n{}  return result \"y\" "
        "%aw\n}}",
        body);
    const std::unique_ptr<Graph> graph = Parse(text);
    const GlooMemory memory = {.group_sizes = {{"dp", ranks}}};
    return OrderedSumBytes(*graph->first(), memory, graph->shapes().Hints());
  };
  const std::string scatter =
      "  %a = _c10d_functional::reduce_scatter_tensor(%x, reduce_op = \"sum\", group_size = 4, "
      "group_name = \"dp\") : f32[4]\n"
      "  %aw = _c10d_functional::wait_tensor(%a) : f32[4]\n";
  EXPECT_EQ(bytes(scatter, 4), 64);
  EXPECT_EQ(bytes(scatter, 2), 0);
  EXPECT_EQ(bytes(Reduce("a", "x", "dp"), 4), 2 * 64 + 16);
  EXPECT_EQ(bytes(Reduce("a", "x", "dp"), 2), 0);
  EXPECT_EQ(bytes(Reduce("a", "x", "unknown"), 2), 2 * 64 + 21);
  EXPECT_EQ(
      bytes("  %a = _c10d_functional::all_reduce(%i, reduce_op = \"sum\", group_name = \"dp\") "
            ": i64[16]\n  %aw = _c10d_functional::wait_tensor(%a) : i64[16]\n",
            4),
      0);
}

// One at a time for each group: the largest.
TEST(Communicators, GathersOfGlooTakeABufferForEachGroup) {
  const std::unique_ptr<Graph> graph = Parse(R"(graph @g(%x: input "x" f32[16]) {
  %a = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "dp") : f32[32]
  %aw = _c10d_functional::wait_tensor(%a) : f32[32]
  %b = _c10d_functional::all_gather_into_tensor(%aw, group_size = 2, group_name = "dp") : f32[64]
  %bw = _c10d_functional::wait_tensor(%b) : f32[64]
  %c = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "tp") : f32[32]
  %cw = _c10d_functional::wait_tensor(%c) : f32[32]
  return result "b" %bw, result "c" %cw
})");
  EXPECT_EQ(GatherBufferBytes(*graph, {}, graph->shapes().Hints()), 4 * (64 + 32));
}

// What was measured with nccl on eight H100.
TEST(Communicators, OfNcclTakeWhatWasMeasured) {
  const CommunicatorMemory nccl = NcclMemory();
  EXPECT_NEAR(static_cast<double>(7 * nccl.bytes_per_peer), 3.28e9, 0.02e9);
}

}  // namespace
}  // namespace gt::communicators_test
