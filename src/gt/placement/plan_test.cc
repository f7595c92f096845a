// Plans as JSON: what is written can be read, what cannot be read is refused in words, and a plan that is
// read makes the search find it again.
#include "gt/placement/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/testing/small_placement.h"

namespace gt::plan_test {
namespace {

using namespace placement;
using testing::SmallPlacement;
using testing::SmallStep;

std::string RefusalOf(const std::string& text) {
  try {
    PlanFromJson(text, "plan.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadPlan) << error.what();
    return error.what();
  }
  return "";
}

Plan PlanOf(const SmallPlacement& placed) {
  return MakePlan(placed.problem(), placed.placement(), "a \"small\" step");
}

void ExpectEqual(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.mesh, b.mesh);
  EXPECT_EQ(a.title, b.title);
  EXPECT_EQ(a.step_hash, b.step_hash);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.nodes, b.nodes);
  EXPECT_EQ(a.kept, b.kept);
  EXPECT_EQ(a.step_us, b.step_us);
  EXPECT_EQ(a.bound_us, b.bound_us);
  EXPECT_EQ(a.peak_bytes, b.peak_bytes);
}

// Nodes have one, two and three operands and results: JSON libraries take lists of pairs for objects.
TEST(Plan, IsReadAsItWasWritten) {
  for (const char* mesh : {"2", "2x2", "4x2"}) {
    const SmallPlacement placed(SmallStep(4, 64, 256), mesh);
    ASSERT_TRUE(placed.placement().feasible);
    const Plan plan = PlanOf(placed);
    EXPECT_EQ(plan.inputs.size(), 6u);
    EXPECT_EQ(plan.nodes.size(), 20u) << "every layer, not one for all";
    ExpectEqual(PlanFromJson(ToJson(plan), "plan.json"), plan);
  }
  Plan plan;
  plan.mesh = {2, 2};
  for (size_t operands : {0, 1, 2, 3}) {
    for (size_t results : {1, 2, 3}) {
      plan.nodes[std::to_string(operands) + "_" + std::to_string(results)] = {
          std::vector<std::string>(operands, "S(0)R"), std::vector<std::string>(results, "RR")};
    }
  }
  ExpectEqual(PlanFromJson(ToJson(plan), "plan.json"), plan);
  plan.nodes.clear();
  ExpectEqual(PlanFromJson(ToJson(plan), "plan.json"), plan);
}

// What is no UTF-8 in a name must not end the program.
TEST(Plan, NamesMayHoldAnyBytes) {
  Plan plan;
  plan.mesh = {2};
  plan.title = "\xff\xfe";
  plan.inputs["w\x80"] = "R";
  EXPECT_EQ(PlanFromJson(ToJson(plan), "plan.json").inputs.size(), 1u);
}

TEST(Plan, WhatCannotBeReadIsRefusedInWords) {
  const std::string good = ToJson(PlanOf(SmallPlacement(SmallStep(2, 64, 256), "2x2")));
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_EQ(RefusalOf(good), "");
  EXPECT_NE(RefusalOf(""), "");
  EXPECT_NE(RefusalOf("[]").find("JSON object"), std::string::npos);
  EXPECT_NE(RefusalOf(good.substr(0, good.size() / 2)).find("plan.json"), std::string::npos);
  EXPECT_NE(RefusalOf("{}").find("\"mesh\""), std::string::npos);
  EXPECT_NE(RefusalOf(R"({"mesh": [2, "x"]})").find("\"mesh\""), std::string::npos);
  EXPECT_NE(RefusalOf(R"({"mesh": [2]})").find("params"), std::string::npos);
  EXPECT_NE(RefusalOf(R"({"mesh": [2], "params": {"w": "S0"}})").find('w'), std::string::npos);
  EXPECT_NE(RefusalOf(with("gt-plan-1", "gt-plan-2")).find("gt-plan-1"), std::string::npos);
  EXPECT_NE(RefusalOf(with("\"step_us\"", "\"step\"")).find("step_us"), std::string::npos);
  EXPECT_NE(RefusalOf(with("\"step_hash\": \"", "\"step_hash\": \"no")).find("step_hash"),
            std::string::npos);
  EXPECT_NE(RefusalOf(with("\"kept\": {", "\"kept\": {\"a\": 1")), "");
}

TEST(Plan, ListsOfParametersAreRead) {
  const Plan plan = PlanFromJson(
      R"({"mesh": [4, 2], "params": {"w1": ["f32[16,8]", "S0S0", "S0S0"], "w2": ["f32[8]", "RR"]}})",
      "plan.json");
  EXPECT_EQ(plan.mesh, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(plan.inputs.at("w1"), "S0S0");
  EXPECT_EQ(plan.inputs.at("w2"), "RR");
}

TEST(Plan, DifferencesNameWhatDiffers) {
  const Plan a = PlanOf(SmallPlacement(SmallStep(2, 64, 256), "2x2"));
  EXPECT_EQ(Differences(a, a), std::vector<std::string>());
  Plan b = a;
  b.mesh = {4};
  b.inputs["layers.0.weight"] = "here";
  b.inputs["more"] = "R";
  b.nodes.erase("x1");
  const std::vector<std::string> lines = Differences(a, b);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "mesh  2x2  4");
  EXPECT_EQ(lines[1], "layers.0.weight  " + a.inputs.at("layers.0.weight") + "  here");
  EXPECT_EQ(lines[2], "more  -  R");
  EXPECT_EQ(lines[3].substr(0, 4), "x1  ");
  EXPECT_EQ(lines[3].substr(lines[3].size() - 3), "  -");
}

TEST(Plan, IsFoundAgainFromItsPins) {
  SmallPlacement first(SmallStep(3, 64, 256), "2x2", {.pins = {{"layers.1.weight", "RS(1)"}}});
  ASSERT_TRUE(first.placement().feasible);
  const Plan plan = PlanOf(first);
  EXPECT_EQ(plan.inputs.at("layers.1.weight"), "RS(1)");
  const DeviceMesh mesh({2, 2});
  SmallPlacement again(SmallStep(3, 64, 256), "2x2", {.pins = PinsOf(plan, mesh, first.graph())});
  const Plan found = PlanOf(again);
  EXPECT_EQ(found.inputs, plan.inputs);
  EXPECT_NEAR(found.step_us, plan.step_us, 1e-3 * plan.step_us);
  EXPECT_EQ(found.step_hash, plan.step_hash);
}

// Layers that are folded have one variable, and a name each.
TEST(Plan, IsFoundAgainWithFoldedLayers) {
  const std::string step = SmallStep(12, 4096, 1024);
  SmallPlacement first(step, "2x2");
  size_t largest = 0;
  for (const FoldedClass& of : first.problem().folding().classes) {
    if (of.input != nullptr) largest = std::max(largest, of.members.size());
  }
  EXPECT_GT(largest, 4u);
  const Plan plan = PlanOf(first);
  SmallPlacement again(step, "2x2", {.pins = PinsOf(plan, DeviceMesh({2, 2}), first.graph())});
  EXPECT_EQ(PlanOf(again).inputs, plan.inputs);
  const SmallPlacement one(step, "2x2", {.pins = {{"layers.5.weight", "RS(1)"}}});
  EXPECT_EQ(PlanOf(one).inputs.at("layers.6.weight"), "RS(1)");
  try {
    const SmallPlacement contradicting(
        step, "2x2", {.pins = {{"layers.5.weight", "RS(1)"}, {"layers.6.weight", "RR"}}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadPin);
    EXPECT_NE(std::string(error.what()).find("--fold=false"), std::string::npos) << error.what();
  }
}

TEST(Plan, OfAnotherMeshOrModelIsRefused) {
  SmallPlacement placed(SmallStep(2, 64, 256), "2x2");
  const Plan plan = PlanOf(placed);
  auto refusal = [&](const DeviceMesh& mesh, const Graph& graph) -> std::string {
    try {
      PinsOf(plan, mesh, graph);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadPlan);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(DeviceMesh({2, 2}), placed.graph()), "");
  EXPECT_NE(refusal(DeviceMesh({4}), placed.graph()).find("2x2"), std::string::npos);
  const auto other = Parse(SmallStep(1, 64, 256), "other");
  EXPECT_NE(refusal(DeviceMesh({2, 2}), *other).find("layers.1.weight"), std::string::npos);
}

TEST(Plan, TwoSearchesFindTheSame) {
  const std::string step = SmallStep(5, 4096, 1024);
  const std::string first = ToJson(PlanOf(SmallPlacement(step, "4x2")));
  EXPECT_EQ(first, ToJson(PlanOf(SmallPlacement(step, "4x2"))));
  EXPECT_EQ(first, ToJson(PlanOf(SmallPlacement(step, "4x2", {}, {.threads = 2}))));
}

}  // namespace
}  // namespace gt::plan_test
