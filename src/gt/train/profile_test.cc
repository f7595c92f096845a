// What a profile says of a captured step, whose fused nodes may run as a kernel each or operator by operator.
#include "gt/train/profile.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>

#include "gt/base/error.h"
#include "gt/exec/program.h"
#include "gt/ir/text.h"
#include "gt/testing/temp_folder.h"

namespace gt::profile_test {
namespace {

// On a CPU no kernel is generated for the fused node: its three operators run in its place.
constexpr const char* kGraph = R"(graph @g(%x: input "x" f32[64, 64]) {
  %a = aten::mm(%x, %x) : f32[64, 64]
  %b = gt::fused([%a], body = graph @fused(%i: input "i" f32[64, 64]) {
    %s = aten::silu(%i) : f32[64, 64]
    %e = aten::exp(%s) : f32[64, 64]
    %m = aten::mul.Tensor(%s, %e) : f32[64, 64]
    return result "m" %m
  }) : f32[64, 64]
  %c = aten::mm(%b, %x) : f32[64, 64]
  return result "c" %c
})";

class ProfileTest : public ::testing::Test {
 protected:
  StepProfile::Shown ProfileOf(int runs) {
    graph_->NumberNodes();
    Program program(*graph_);
    const std::vector<at::Tensor> inputs = {at::ones({64, 64})};
    StepProfile profile(at::kCPU);
    for (int i = 0; i < runs; ++i) program.Run(inputs);
    return profile.Finish((folder_ / "profile" / "step.json").string()).value();
  }

  std::unique_ptr<Graph> graph_ = Parse(kGraph);
  testing::TempFolder folder_;
};

TEST_F(ProfileTest, OperatorsOfAFusedNodeAreOneSpan) {
  for (int runs : {1, 2}) {  // two: the first of two batches is shown
    const StepProfile::Shown shown = ProfileOf(runs);
    const std::vector<LaneSpan>& spans = shown.timeline.spans;
    ASSERT_EQ(spans.size(), 3u) << runs;
    const Node* node = graph_->first();
    for (size_t i = 0; i < spans.size(); ++i, node = node->next()) {
      EXPECT_EQ(spans[i].node, node);
      EXPECT_GT(spans[i].time.length(), 0);
      if (i > 0) EXPECT_GE(spans[i].time.start, spans[i - 1].time.end);
    }
    EXPECT_EQ(shown.timeline.step, spans.back().time.end);
  }
}

TEST(ProfiledSteps, EndWithTheirLastOne) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ParseSteps(""), std::set<int64_t>{});
  EXPECT_EQ(ParseSteps("5-7,20"), (std::set<int64_t>{5, 6, 7, 20}));
  EXPECT_EQ(ParseSteps("9223372036854775807"), std::set<int64_t>{kLargest});
  EXPECT_EQ(ParseSteps("9223372036854775806-9223372036854775807"),
            (std::set<int64_t>{kLargest - 1, kLargest}));
  for (const char* text : {"0", "-1", "7-5", "1-10001", "9223372036854775808", "1,,2", "x"}) {
    testing::ExpectError(ErrorCode::kBadOptionValue, {"--profiling.steps"},
                         [&] { ParseSteps(text); });
  }
}

}  // namespace
}  // namespace gt::profile_test
