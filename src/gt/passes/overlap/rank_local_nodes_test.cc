#include "gt/passes/overlap/rank_local_nodes.h"

#include <gtest/gtest.h>

#include <set>

#include "gt/ir/text.h"
#include "gt/sim/live_memory.h"

namespace gt::rank_local_nodes_test {
namespace {

constexpr const char* kRest = R"(
  %gw = _c10d_functional::wait_tensor(%g) : bf16[8, 4]
  %y = aten::mul.Tensor(%x, %gw) : bf16[8, 4]
  %e = _c10d_functional::all_to_all_single(%y, output_split_sizes = [2, 2, 2, 2], input_split_sizes = [2, 2, 2, 2], group_name = "ep") : bf16[8, 4]
  %ew = _c10d_functional::wait_tensor(%e) : bf16[8, 4]
  %d = aten::_to_copy(%ew, dtype = f32) : f32[8, 4]
  %r = _c10d_functional::reduce_scatter_tensor(%d, reduce_op = "sum", group_size = 4, group_name = "fsdp") : f32[2, 4]
  %rw = _c10d_functional::wait_tensor(%r) : f32[2, 4]
  %n = aten::neg(%rw) : f32[2, 4]
  return result "n" %n
}
)";

// A parameter of which this rank has `rows` rows of two, gathered from four ranks, a token exchange in
// between, and its gradient on the way home.
std::unique_ptr<Graph> Step(int64_t rows) {
  const std::string padded = rows == 2 ? "%cast" : "%pad";
  const std::string pad =
      rows == 2
          ? ""
          : "  %pad = aten::constant_pad_nd(%cast, pad = [0, 0, 0, 1]) : bf16[2, 4] {module = "
            "\"layers.0\"}\n";
  const std::string own = std::to_string(rows);
  return Parse("graph @step(%w: param \"layers.0.w\" f32[" + own +
               ", 4], %x: input \"x\" bf16[8, 4]) {\n"
               "  %cast = aten::_to_copy(%w, dtype = bf16) : bf16[" +
               own + ", 4]\n" + pad + "  %g = _c10d_functional::all_gather_into_tensor(" + padded +
               ", group_size = 4, group_name = \"fsdp\") : bf16[8, 4]\n" + kRest);
}

std::set<std::string> Marked(const std::vector<bool>& marks, const Dependencies& ties) {
  std::set<std::string> names;
  for (int32_t i = 0; i < ties.count(); ++i) {
    if (marks[static_cast<size_t>(i)]) names.insert(ties.node(i)->result()->name());
  }
  return names;
}

TEST(RankLocalNodes, AreWhatComesBeforeAGatherAndBehindTheLastReduction) {
  auto graph = Step(1);
  Dependencies ties(*graph);
  RankLocalNodes parts(*graph, ties);
  EXPECT_EQ(Marked(parts.before_gather, ties), (std::set<std::string>{"cast", "pad", "g"}));
  EXPECT_EQ(Marked(parts.own, ties), (std::set<std::string>{"cast", "pad", "r", "rw", "n"}));
}

// A gradient that is reduced along one axis and gathered along another: what a rank pads and trims after the
// first collective is its own business, what it does before is everybody's.
TEST(RankLocalNodes, AreWhatIsBetweenTheLastCollectivesOfAGradient) {
  auto graph = Parse(R"(graph @step(%x: input "x" f32[8, 4]) {
    %y = aten::neg(%x) : f32[8, 4]
    %even = aten::constant_pad_nd(%y, pad = [0, 0, 0, 2]) : f32[10, 4]
    %a = _c10d_functional::reduce_scatter_tensor(%even, reduce_op = "sum", group_size = 2, group_name = "tp") : f32[5, 4]
    %aw = _c10d_functional::wait_tensor(%a) : f32[5, 4]
    %pad = aten::constant_pad_nd(%aw, pad = [0, 0, 0, 1]) : f32[6, 4]
    %copy = aten::clone(%pad) : f32[6, 4]
    %b = _c10d_functional::all_gather_into_tensor(%copy, group_size = 3, group_name = "fsdp") : f32[18, 4]
    %bw = _c10d_functional::wait_tensor(%b) : f32[18, 4]
    %part = aten::slice.Tensor(%bw, end = 17) : f32[17, 4]
    return result "b" %part
  })");
  Dependencies ties(*graph);
  RankLocalNodes parts(*graph, ties);
  EXPECT_EQ(Marked(parts.own, ties), (std::set<std::string>{"pad", "copy", "b", "bw", "part"}));
}

// The last rank has a shorter shard and pads it: its plan must be that of the others.
TEST(RankLocalNodes, DoNotCountInThePeakThatPlansGoBy) {
  auto whole = Step(2), shorter = Step(1);
  EXPECT_EQ(PeakInUse(*whole), PeakInUse(*shorter));
  EXPECT_NE(LiveMemory(*whole).IfNext(0), LiveMemory(*shorter).IfNext(0));
}

}  // namespace
}  // namespace gt::rank_local_nodes_test
