// What a context answers, keeps and forgets.
#include "gt/passes/framework/context.h"

#include <gtest/gtest.h>

#include "gt/analysis/dependencies.h"
#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/passes/framework/registry.h"
#include "gt/testing/temp_folder.h"

namespace gt::context_test {
namespace {

constexpr const char* kGraph = R"(graph @g(%x: input "x" f32[4]) {
  %dead = aten::neg(%x) : f32[4]
  %y = aten::relu(%x) : f32[4]
  return result "y" %y
})";

TEST(PassContext, AnalysesAreMadeOnceUntilTheGraphChanges) {
  auto graph = Parse(kGraph);
  PassContext context;
  const auto* first = &context.Get<Dependencies>(*graph);
  EXPECT_EQ(&context.Get<Dependencies>(*graph), first);
  EXPECT_EQ(first->count(), 2);
  EXPECT_TRUE(MakePass("dce")->Run(*graph, context));
  EXPECT_EQ(context.Get<Dependencies>(*graph).count(), 1);
  EXPECT_FALSE(MakePass("dce")->Run(*graph, context));
  EXPECT_EQ(context.Get<Dependencies>(*graph).count(), 1);
  auto other = Parse(kGraph);
  EXPECT_EQ(context.Get<Dependencies>(*other).count(), 2);
}

TEST(PassContext, OutsideOfAJobNothingIsKnown) {
  auto graph = Parse(kGraph);
  PassContext context;
  EXPECT_EQ(context.MemoryBudget(), 0);
  EXPECT_EQ(context.ConstantBytes(*graph), 0);
  EXPECT_EQ(context.Noted("peak"), std::nullopt);
  EXPECT_NE(context.Costs(*graph), nullptr);
  EXPECT_EQ(context.Decide("it", [] { return std::string("so"); }), "so");
  EXPECT_NE(context.groups().Find("a").identity, context.groups().Find("b").identity);
  EXPECT_EQ(context.groups().Separate("a", ProcessGroups::Purpose::kTokens), "a.tokens");
}

// Two names of one group, a third of another, and a group that was made with a name of its own.
class JobGroups : public ProcessGroups {
 public:
  Info Find(std::string_view name) override {
    ++asked;
    return {name == "other" ? 4711 : 42, {3, 1}};
  }
  std::string Separate(std::string_view, Purpose) override {
    ++asked;
    return "made";
  }
  int asked = 0;
};

TEST(PassContext, GroupsAreRecordedAndReplayed) {
  JobGroups groups;
  PassContext context({.groups = &groups});
  context.StartRecording();
  for (const char* name : {"ep", "fsdp", "other"}) context.groups().Find(name);
  context.groups().Separate("ep", ProcessGroups::Purpose::kCounts);
  const std::string text = context.TakeRecording().ToJson();
  PassContext replayed(ContextRecord::FromJson(text, "x.context"));
  ProcessGroups& found = replayed.groups();
  EXPECT_EQ(found.Find("ep").identity, found.Find("fsdp").identity);
  EXPECT_NE(found.Find("ep").identity, found.Find("other").identity);
  EXPECT_NE(found.Find("ep").identity, found.Find("unknown").identity);
  EXPECT_NE(found.Find("other").identity, found.Find("unknown").identity);
  EXPECT_EQ(found.Find("ep").ranks, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(found.Separate("ep", ProcessGroups::Purpose::kCounts), "made");
  EXPECT_EQ(found.Separate("ep", ProcessGroups::Purpose::kTokens), "ep.tokens");
}

// Passes that are rerun after a failure must not wait for ranks that do not rerun them.
TEST(PassContext, AReplayAsksNoOtherRank) {
  int decided = 0;
  JobGroups groups;
  PassContext context({.groups = &groups, .decide_for_all = [&](auto, const auto&) {
                         return std::to_string(++decided);
                       }});
  const auto decide = [&] { return context.Decide("it", [] { return std::string("own"); }); };
  EXPECT_EQ(decide(), "1");
  const size_t position = context.position();
  EXPECT_EQ(decide(), "2");
  EXPECT_EQ(decide(), "3");
  context.groups().Separate("ep", ProcessGroups::Purpose::kTokens);
  const int asked = groups.asked;
  context.Replay(position);
  EXPECT_EQ(decide(), "2");
  EXPECT_EQ(decide(), "3");
  EXPECT_EQ(decide(), "own");
  EXPECT_EQ(context.groups().Separate("ep", ProcessGroups::Purpose::kTokens), "made");
  EXPECT_EQ(decided, 3);
  EXPECT_EQ(groups.asked, asked);
}

TEST(ContextRecord, IsReadBack) {
  ContextRecord record;
  EXPECT_TRUE(record.empty());
  record.memory_budget = int64_t{1} << 60;
  record.constant_bytes = 0;
  record.notes["whole_peak"] = 7;
  record.costs.emplace();
  record.costs->device = SpeedOf("hopper");
  record.costs->contention = true;
  record.costs->nodes["a"] = {.us = 1.0 / 3, .arithmetic_us = 0.1};
  record.costs->nodes["#0"] = {};
  record.costs->nodes["d"] = {.us = 20, .link = {5, 15, LinkResource::kNetwork}, .taken = 0.125};
  record.decisions = {{"it", "1 \"2\"\n3"}};
  const std::string text = record.ToJson();
  const ContextRecord again = ContextRecord::FromJson(text, "x.context");
  EXPECT_EQ(again.ToJson(), text);
  EXPECT_FALSE(again.empty());
  EXPECT_EQ(again.memory_budget, record.memory_budget);
  EXPECT_EQ(again.costs->nodes.at("a").us, 1.0 / 3);
  EXPECT_EQ(again.costs->nodes.at("d").link, record.costs->nodes.at("d").link);
  EXPECT_EQ(again.costs->device.launch_us, record.costs->device.launch_us);
  EXPECT_EQ(again.decisions.at(0).text, "1 \"2\"\n3");
  EXPECT_TRUE(ContextRecord::FromJson(ContextRecord().ToJson(), "x.context").empty());
}

TEST(ContextRecord, DamagedFilesAreErrors) {
  for (const char* text :
       {"", "[", "{\"memory_budget\": \"much\"}", "{\"device\": {}}", "[1]",
        "{\"groups\": {\"ep\": {\"identity\": 0}}}", "{\"decisions\": [{\"what\": 1}]}"}) {
    testing::ExpectError(ErrorCode::kBadOptionValue, {"x.context"},
                         [&] { ContextRecord::FromJson(text, "x.context"); });
  }
}

}  // namespace
}  // namespace gt::context_test
