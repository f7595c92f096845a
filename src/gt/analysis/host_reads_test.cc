#include "gt/analysis/host_reads.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/sim/queues.h"

namespace gt::host_reads_test {
namespace {

// Counts are copied and read, one of them through a view and a wait; activations come back.
constexpr std::string_view kStep = R"(
  graph @step(%x: input "x" f32[8] @cuda:0, %n: input "n" i64[2] @cuda:0) {
    symbols { u0: data, hint 1; u1: data, hint 1; u2: data, hint 1 }
    %away = gt::offload(%x) : f32[8]
    %counts = gt::offload(%n) : i64[2]
    gt::read_ints(%counts) binds [u0, u1]
    %copy = gt::offload(%n) : i64[2]
    %there = gt::wait_transfer(%copy, %n) : i64[2]
    %part = aten::slice.Tensor(%there, end = 1) : i64[1]
    gt::read_ints(%part) binds [u2]
    %kept = gt::offload(%n) : i64[2]
    %held = gt::wait_transfer(%kept, %n) : i64[2]
    %sum = aten::add.Tensor(%held, %held) : i64[2]
    %in = gt::reload(%away, device = "cuda:0") : f32[8] @cuda:0
    %back = gt::wait_transfer(%in, %away) : f32[8] @cuda:0
    return result "back" %back, result "sum" %sum
  })";

TEST(HostReads, FollowViewsAndWaits) {
  auto graph = Parse(kStep);
  Verify(*graph);
  const auto feeds = [&](std::string_view name) { return FeedsHostRead(*graph->FindValue(name)); };
  EXPECT_TRUE(feeds("counts"));
  EXPECT_TRUE(feeds("copy"));
  EXPECT_TRUE(feeds("there"));
  EXPECT_FALSE(feeds("away"));
  EXPECT_FALSE(feeds("kept"));
  // What is computed from a value is another value; what is copied is not the copy.
  EXPECT_FALSE(feeds("held"));
  EXPECT_FALSE(feeds("n"));
}

TEST(HostReads, CopiesThatAreReadHaveTheirOwnQueue) {
  auto graph = Parse(kStep);
  const auto queue = [&](std::string_view name) {
    return QueueOf(*graph->FindValue(name)->producer());
  };
  EXPECT_EQ(queue("away"), "host copies");
  EXPECT_EQ(queue("kept"), "host copies");
  EXPECT_EQ(queue("counts"), "count copies");
  EXPECT_EQ(queue("copy"), "count copies");
  EXPECT_EQ(queue("in"), "host copies back");
  EXPECT_EQ(queue("there"), "");
}

}  // namespace
}  // namespace gt::host_reads_test
