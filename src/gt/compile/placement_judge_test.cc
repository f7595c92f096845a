// Which plans are judged, and that the fastest of them is chosen.
#include "gt/compile/placement_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/job/config.h"

namespace gt::placement_judge_test {
namespace {

// A few layers on nodes of GPUs, where gathers of parameters and exchanges of activations compete.
Config ConfigOf(const std::string& model, const std::string& flavor) {
  Config config;
  config.model.name = model;
  config.model.flavor = flavor;
  config.model.n_layers = 4;
  config.device = DeviceChoice::kCuda;
  config.ranks = 64;
  config.mesh = "8x8";
  config.training.seq_len = 4096;
  config.training.local_batch_size = 2;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.compile.enable_autoparallel = true;
  config.comm.backend = CommBackend::kFake;
  return config;
}

class JudgedPlans : public ::testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  JudgedPlans() : found_(Find(/*overlap=*/true)) {
    for (const auto& one : found_.candidates) {
      plans_.push_back(MakePlan(*one.plan->problem, one.plan->placement, "candidate"));
    }
    off_.enabled = AutoSwitch::kFalse;
  }

  FoundPlacement Find(bool overlap) {
    return FindPlacement({.config = config_,
                          .step = whole_.graph(),
                          .meshes = MeshesOf(config_, config_.ranks),
                          .memory_bytes = int64_t{70} << 30,
                          .batch = overlap ? 2 * config_.ranks : 0,
                          .overlap = overlap,
                          .for_judging = overlap});
  }
  FastestOf Fastest(const std::vector<placement::Plan>& plans, int64_t threads) {
    Config config = config_;
    config.threads = threads;
    const StepRequest request{*model_, config, request_.device, request_.mesh};
    return FastestPlan(request, off_, whole_, plans);
  }

  const Config config_ = ConfigOf(GetParam().first, GetParam().second);
  const ModelPtr model_ = BuildConfiguredModel(config_);
  const StepRequest request_{*model_, config_, c10::Device(c10::kCUDA, 0),
                             Mesh(config_.parallelism, config_.ranks, 0)};
  SingleDeviceStep whole_{request_};
  const FoundPlacement found_;
  std::vector<placement::Plan> plans_;
  EpOverlapSection off_;
};

// If moves hide well the one is the fastest, if they hide badly the other.
TEST_P(JudgedPlans, HaveTheBestIfAllMovesHideAndTheBestIfNoneDoes) {
  const auto least = [this](bool overlap) {
    double us = std::numeric_limits<double>::infinity();
    for (const auto& one : found_.candidates) {
      us = std::min(us, one.plan->placement.cost.step_us(overlap));
    }
    return us;
  };
  EXPECT_LE(least(true), found_.best->placement.step_us * (1 + 1e-9));
  EXPECT_LE(least(false), Find(/*overlap=*/false).best->placement.step_us * 1.005);
  for (size_t i = 0; i < plans_.size(); ++i) {
    EXPECT_TRUE(found_.candidates[i].plan->placement.feasible);
    for (size_t j = 0; j < i; ++j) {
      const PlacedProblem &one = *found_.candidates[i].plan, &other = *found_.candidates[j].plan;
      EXPECT_FALSE(one.problem == other.problem && one.placement.labels == other.placement.labels);
    }
  }
}

TEST_P(JudgedPlans, NoneIsFasterThanTheChosenOneWithAnyNumberOfThreads) {
  const FastestOf chosen = Fastest(plans_, 0);
  for (int64_t threads : {1, 2}) {
    const FastestOf again = Fastest(plans_, threads);
    EXPECT_EQ(again.index, chosen.index);
    EXPECT_EQ(again.prediction.microseconds, chosen.prediction.microseconds);
    EXPECT_EQ(again.prediction.peak, chosen.prediction.peak);
  }
  ASSERT_EQ(chosen.prediction.excess, 0);
  for (const placement::Plan& plan : plans_) {
    const Prediction alone = Fastest({plan}, 1).prediction;
    if (alone.excess > 0) continue;
    EXPECT_LE(chosen.prediction.microseconds, alone.microseconds);
  }
}

// A plan of another model can be neither the fastest nor in the way of one that can be carried out.
TEST_P(JudgedPlans, WhatCannotBeCarriedOutIsLeftOut) {
  placement::Plan broken = plans_.front();
  for (auto& [name, layout] : broken.inputs) layout = "S(9)S(9)";
  broken.step_us = 1;
  EXPECT_EQ(Fastest({broken, plans_.front(), broken}, 0).index, 1u);
  EXPECT_THROW(Fastest({broken, broken, broken}, 0), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, JudgedPlans,
                         ::testing::Values(std::pair("llama3", "8B"),
                                           std::pair("deepseek_v3", "16B")),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace gt::placement_judge_test
