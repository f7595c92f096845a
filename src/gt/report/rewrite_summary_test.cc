#include "gt/report/rewrite_summary.h"

#include <gtest/gtest.h>

#include "gt/base/text.h"
#include "gt/ir/text.h"

namespace gt::rewrite_summary_test {
namespace {

PassRun RunOf(const std::string& spec, int64_t nodes_before, int64_t nodes_after,
              std::vector<std::pair<std::string, int64_t>> counters = {}) {
  PassRun run;
  run.name = spec.substr(0, spec.find('{'));
  run.spec = spec;
  run.changed = true;
  run.nodes_before = nodes_before;
  run.nodes_after = nodes_after;
  run.counters = std::move(counters);
  return run;
}

std::string Text(std::vector<PassRun> runs, const Graph& graph) {
  PipelineReport report;
  report.runs = std::move(runs);
  const std::vector<std::string> lines = RewriteLines(report, graph);
  EXPECT_LE(lines.size(), 10U);
  return Join(lines, "\n") + "\n";
}

const std::unique_ptr<Graph>& Plain() {
  static const auto& graph = *new std::unique_ptr<Graph>(Parse(R"(graph @g(%x: input "x" f32[2]) {
  %y = aten::neg(%x) : f32[2]
  return result "y" %y
}
)"));
  return graph;
}

TEST(RewriteLines, SumUpRunsOfAPass) {
  EXPECT_EQ(
      Text({RunOf("dce", 2100, 1000), RunOf("cse", 1000, 950), RunOf("dce", 950, 940)}, *Plain()),
      "  cleaning       1,160 nodes removed\n");
}

TEST(RewriteLines, SayWhatChunksAre) {
  EXPECT_EQ(Text({RunOf("chunk{module_fqn=layers.*.moe,chunk_dim=seq,num_chunks=3}", 100, 1250,
                        {{"roots", 5}})},
                 *Plain()),
            "  chunks         layers.*.moe: 5 modules, each in 3 chunks along the sequence; 1,150 "
            "nodes added\n");
  EXPECT_EQ(Text({RunOf("chunk", 100, 150, {{"roots", 2}})}, *Plain()),
            "  chunks         layers.*: 2 modules, each in 2 chunks along the batch; 50 nodes "
            "added\n");
}

TEST(RewriteLines, LeaveOutWhatWasNotPacked) {
  const auto buckets = [](int64_t gathers, int64_t reductions) {
    return Text({RunOf("bucket_fsdp", 100, 90,
                       {{"gathers", gathers},
                        {"gather_buckets", gathers / 10},
                        {"reductions", reductions},
                        {"reduction_buckets", reductions / 5}})},
                *Plain());
  };
  EXPECT_EQ(buckets(20, 10), "  buckets        20 gathers in 2, 10 reductions in 2\n");
  EXPECT_EQ(buckets(0, 10), "  buckets        10 reductions in 2\n");
  EXPECT_EQ(buckets(20, 0), "  buckets        20 gathers in 2\n");
}

TEST(RewriteLines, SayWhatAnOrderGains) {
  EXPECT_EQ(
      Text({RunOf("ep_overlap_schedule", 10, 10,
                  {{"moved", 7}, {"microseconds_before", 2000}, {"microseconds_after", 1500}})},
           *Plain()),
      "  order          7 nodes moved, predicted 25.0 % faster (1.5 instead of 2.0 ms)\n");
  EXPECT_EQ(Text({RunOf("ep_overlap_schedule", 10, 10, {{"moved", 7}})}, *Plain()),
            "  order          7 nodes moved\n");
}

TEST(RewriteLines, NameGroupsThatPassesMade) {
  const std::unique_ptr<Graph> graph = Parse(R"(graph @g(%x: input "x" f32[2]) {
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "ep") : f32[2]
  %b = _c10d_functional::wait_tensor(%a) : f32[2]
  %c = _c10d_functional::all_reduce(%b, reduce_op = "sum", group_name = "ep.counts") : f32[2]
  %d = _c10d_functional::wait_tensor(%c) : f32[2]
  return result "y" %d
}
)");
  EXPECT_EQ(Text({RunOf("separate_count_exchanges", 5, 5, {{"exchanges", 1}})}, *graph),
            "  groups         ep.counts made, for 1 collective\n");
}

TEST(RewriteLines, SayNothingOfPassesThatChangedNothing) {
  PassRun unchanged = RunOf("chunk", 100, 100);
  unchanged.changed = false;
  PassRun disabled = RunOf("bucket_fsdp", 100, 90, {{"gathers", 20}});
  disabled.disabled = true;
  EXPECT_EQ(Text({unchanged, disabled}, *Plain()), "\n");
}

TEST(RewriteLines, AreTenAtMost) {
  const std::string text =
      Text({RunOf("dce", 100, 90), RunOf("memory_policy{policy=full}", 90, 90, {{"saved", 3}}),
            RunOf("rematerialize", 90, 120, {{"copies", 30}}),
            RunOf("cpu_offload", 120, 130, {{"tensors", 2}, {"bytes", 2048}}),
            RunOf("reshard_after_forward", 130, 140, {{"gathers", 9}}), RunOf("chunk", 140, 300),
            RunOf("bucket_fsdp", 300, 250, {{"gathers", 9}, {"gather_buckets", 3}}),
            RunOf("ep_overlap_schedule", 250, 250, {{"moved", 5}}),
            RunOf("prefetch_collectives", 250, 250, {{"moved", 5}}),
            RunOf("fsdp_dense_regions", 250, 250, {{"gathers", 4}, {"reductions", 2}}),
            RunOf("fuse", 250, 150, {{"operators", 100}, {"groups", 10}, {"bytes", 4096}})},
           *Plain());
  for (const char* what : {"cleaning", "memory policy", "offload", "resharding", "chunks",
                           "buckets", "order", "dense regions", "kernels"}) {
    EXPECT_NE(text.find(std::string("  ") + what), std::string::npos) << what << "\n" << text;
  }
}

}  // namespace
}  // namespace gt::rewrite_summary_test
