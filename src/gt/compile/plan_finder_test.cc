// Plans within the memory of a rank, by the account that also says what a step needs.
#include "gt/compile/plan_finder.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "gt/base/error.h"
#include "gt/base/machine_memory.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/compile/placement_judge.h"
#include "gt/job/config.h"

namespace gt::plan_finder_test {
namespace {

constexpr double kGibi = 1024.0 * 1024 * 1024;

// A few layers of a published size on H100s.
Config JobOf(const std::string& model, const std::string& flavor, const std::string& mesh) {
  Config config;
  config.model.name = model;
  config.model.flavor = flavor;
  config.model.n_layers = 4;
  config.device = DeviceChoice::kCuda;
  config.mesh = mesh;
  config.ranks = placement::DeviceMesh::Parse(mesh).ranks();
  config.training.seq_len = 4096;
  config.training.local_batch_size = 2;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.compile.enable_autoparallel = true;
  config.comm.backend = CommBackend::kFake;
  return config;
}

class Finding {
 public:
  explicit Finding(Config config)
      : config_(std::move(config)),
        model_(BuildConfiguredModel(config_)),
        request_{*model_, config_, c10::Device(c10::kCUDA, 0),
                 Mesh(config_.parallelism, config_.ranks, 0)},
        whole_(request_) {
    off_.enabled = AutoSwitch::kFalse;
  }

  ChosenPlan Fastest() { return PlanFinder(request_, whole_).Fastest(off_); }

  // The message of the refusal; empty: there is none.
  std::string WhyNot() {
    try {
      Fastest();
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNoPlacement);
      return error.message();
    }
  }

  // What placement counts for each plan that would be judged, and what its step needs of operators alone.
  std::vector<std::pair<double, double>> Accounts() {
    Config plain = config_;
    plain.compile.inductor_compilation = InductorCompilation::kNone;
    plain.debug.share_gpu = true;  // without communicators
    plain.training.memory_limit_gb = 4096;
    const StepRequest request{*model_, plain, request_.device, request_.mesh};
    std::vector<std::pair<double, double>> accounts;
    PlanFinder finder(request, whole_);
    for (const placement::Plan& plan : finder.plans()) {
      const Prediction needed = PredictPlan(request, off_, whole_, plan);
      accounts.emplace_back(static_cast<double>(plan.peak_bytes), static_cast<double>(needed.peak));
    }
    return accounts;
  }

 private:
  const Config config_;
  const ModelPtr model_;
  const StepRequest request_;
  SingleDeviceStep whole_;
  EpOverlapSection off_;
};

struct Job {
  const char *name, *model, *flavor, *mesh;
  MemoryPolicy policy = MemoryPolicy::kNone;
};
class PlanMemory : public ::testing::TestWithParam<Job> {
 protected:
  static Config ConfigOf() {
    Config config = JobOf(GetParam().model, GetParam().flavor, GetParam().mesh);
    config.compile.memory_policy = GetParam().policy;
    return config;
  }
};

// Views share the memory of what they look into, gradients are not there before they are made, and optimizer
// states are as large as their parameters say.
TEST_P(PlanMemory, IsCountedAsStepsNeedIt) {
  for (const TrainingDtype dtype : {TrainingDtype::kFloat32, TrainingDtype::kBfloat16}) {
    Config config = ConfigOf();
    config.training.dtype = dtype;
    // Of few layers much is packed collectives and logits, which are not counted.
    config.model.n_layers = 20;
    const std::vector<std::pair<double, double>> accounts = Finding(config).Accounts();
    ASSERT_FALSE(accounts.empty());
    for (const auto& [counted, needed] : accounts) {
      EXPECT_GT(counted, 0.75 * needed) << counted / kGibi << " of " << needed / kGibi << " GiB";
      EXPECT_LT(counted, 1.2 * needed) << counted / kGibi << " of " << needed / kGibi << " GiB";
    }
  }
}

// A refusal names what would be enough; with that much there is a plan, and with a little less than what a
// plan needs there is another or none.
TEST_P(PlanMemory, WhatARefusalNamesIsEnough) {
  Config config = ConfigOf();
  config.training.memory_limit_gb = 0.5;
  const std::string why = Finding(config).WhyNot();
  std::smatch enough;
  ASSERT_TRUE(std::regex_search(why, enough, std::regex("one needs ([0-9.e-]+) GiB"))) << why;
  config.training.memory_limit_gb = std::stod(enough[1]);
  const ChosenPlan chosen = Finding(config).Fastest();
  EXPECT_EQ(chosen.prediction.excess, 0);
  EXPECT_LE(chosen.prediction.peak, Gibibytes(config.training.memory_limit_gb));
}

// Whatever the limit, a plan that is found fits, and more memory is never refused.
TEST_P(PlanMemory, PlansFitBetweenTooLittleAndPlenty) {
  Config config = ConfigOf();
  config.training.memory_limit_gb = 4096;
  const double plenty = static_cast<double>(Finding(config).Fastest().prediction.peak) / kGibi;
  bool found = false;
  for (const double share : {0.4, 0.85, 1.001}) {
    config.training.memory_limit_gb = share * plenty;
    Finding finding(config);
    const std::string why = finding.WhyNot();
    if (why.empty()) {
      EXPECT_LE(finding.Fastest().prediction.peak, Gibibytes(config.training.memory_limit_gb));
      found = true;
    } else {
      EXPECT_FALSE(found) << share << ": " << why;
    }
  }
  EXPECT_TRUE(found);
}

// Memory that a rank may fill but need not never makes the step much slower: where faster plans do not fit,
// others are searched that do.
TEST(PlanMemoryCheck, MoreMemoryIsHardlyEverSlower) {
  Config config = JobOf("llama3", "8B", "16x8");
  config.training.seq_len = 8192;
  config.parallelism.tensor_parallel_degree = 8;
  config.model.n_layers = 8;
  double before = std::numeric_limits<double>::infinity();
  for (const double limit : {10.0, 14.0, 24.0, 70.0}) {
    config.training.memory_limit_gb = limit;
    const double now = Finding(config).Fastest().prediction.microseconds;
    EXPECT_LT(now, 1.03 * before) << limit;
    before = std::min(before, now);
  }
}

// A user who wants to see a step that does not fit gets the one that comes nearest.
TEST(PlanMemoryCheck, CanBeSwitchedOff) {
  Config config = JobOf("llama3", "8B", "8");
  config.training.memory_limit_gb = 0.5;
  config.training.check_memory = false;
  EXPECT_GT(Finding(config).Fastest().prediction.excess, 0);
}

INSTANTIATE_TEST_SUITE_P(Jobs, PlanMemory,
                         ::testing::Values(Job{"llama3_8", "llama3", "8B", "8"},
                                           Job{"qwen3_moe_2x4_default", "qwen3", "30B-A3B", "2x4",
                                               MemoryPolicy::kDefault},
                                           Job{"llama3_4x2_slow", "llama3", "8B", "4x2"},
                                           Job{"llama3_8_full_slow", "llama3", "8B", "8",
                                               MemoryPolicy::kFull},
                                           Job{"llama3_2x2x2_slow", "llama3", "8B", "2x2x2"},
                                           Job{"deepseek_v3_8_slow", "deepseek_v3", "16B", "8"},
                                           Job{"deepseek_v3_8x8_slow", "deepseek_v3", "16B", "8x8",
                                               MemoryPolicy::kFull}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gt::plan_finder_test
