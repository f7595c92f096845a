// What is noted, and that nothing else happens.
#include "gt/passes/overlap/measure_peak.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/fsdp/bucket_fsdp.h"
#include "gt/sim/live_memory.h"
#include "gt/testing/random_graph.h"

namespace gt::measure_peak_test {
namespace {

PassRun RunManaged(Graph& graph, PassContext& context, std::string_view spec) {
  PassManager manager(ParsePipeline(spec), {.write_reproducer = false});
  return manager.Run(graph, context).runs.at(0);
}

// 32 bytes of %a and %b while %b is computed; %x, which is allocated all the time, does not count.
TEST(MeasurePeak, NotesThePeakWithoutInputs) {
  auto graph = Parse(R"(graph @g(%x: input "x" f32[4]) {
  %a = aten::neg(%x) : f32[4]
  %b = aten::neg(%a) : f32[4]
  %c = aten::sum(%b) : f32[]
  return result "c" %c
})");
  PassContext context;
  context.Note(MeasurePeak::kNote, 7);
  PassRun run = RunManaged(*graph, context, "measure_peak");
  EXPECT_EQ(context.Noted(MeasurePeak::kNote), 32);
  EXPECT_FALSE(run.changed);
  EXPECT_EQ(run.counters.at(0), (std::pair<std::string, int64_t>("bytes", 32)));
}

// Two gathers of a block, as bucketing packs them: the packed shards and the pack's result add to
// the peak, and all gathered values of the block are alive at the same time.
constexpr const char* kTwoParameters =
    R"(graph @g(%v: param "layers.0.v" f32[4], %w: param "layers.0.w" f32[4], %x: input "x" f32[8]) {
  %g = _c10d_functional::all_gather_into_tensor(%v, group_size = 2, group_name = "fsdp") : f32[8] {module = "layers.0"}
  %f = _c10d_functional::wait_tensor(%g) : f32[8] {module = "layers.0"}
  %a = aten::mul.Tensor(%x, %f) : f32[8] {module = "layers.0"}
  %h = _c10d_functional::all_gather_into_tensor(%w, group_size = 2, group_name = "fsdp") : f32[8] {module = "layers.0"}
  %i = _c10d_functional::wait_tensor(%h) : f32[8] {module = "layers.0"}
  %b = aten::mul.Tensor(%a, %i) : f32[8] {module = "layers.0"}
  return result "b" %b
})";

// What will be packed later is measured as packed; the step itself is not packed.
TEST(MeasurePeak, MeasuresThePackedStep) {
  auto graph = Parse(kTwoParameters);
  const std::string before = Print(*graph);
  PassContext plain, packed;
  RunManaged(*graph, plain, "measure_peak");
  PassRun run = RunManaged(*graph, packed, "measure_peak{bucket_prefetch=1}");
  EXPECT_FALSE(run.changed);
  EXPECT_EQ(Print(*graph), before);
  EXPECT_EQ(plain.Noted(MeasurePeak::kNote), PeakInUse(*graph));
  auto bucketed = Parse(kTwoParameters);
  ASSERT_TRUE(BucketFsdp(BucketFsdpOptions{}).Run(*bucketed));
  EXPECT_EQ(packed.Noted(MeasurePeak::kNote), PeakInUse(*bucketed));
  EXPECT_GT(packed.Noted(MeasurePeak::kNote), plain.Noted(MeasurePeak::kNote));
}

// What is noted is of the last graph.
TEST(MeasurePeak, RunsAgain) {
  PassContext context;
  MeasurePeak pass;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto graph = testing::RandomGraph(seed, 25);
    const uint64_t hash = graph->Hash();
    EXPECT_FALSE(pass.Run(*graph, context));
    EXPECT_EQ(graph->Hash(), hash);
    EXPECT_EQ(context.Noted(MeasurePeak::kNote), PeakInUse(*graph)) << seed;
  }
}

}  // namespace
}  // namespace gt::measure_peak_test
