// Plans that are found for ranks on CPUs: by the judge's own figures none is slower than a hand-written
// layout, and the batch is cut. bench/cpu_plans.py measures the steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "gt/compile/configured_model.h"
#include "gt/compile/plan_finder.h"
#include "gt/job/config.h"

namespace gt::cpu_plans_test {
namespace {

// Four threads on two cores, as they were measured once.
JobCluster SmallMachine() {
  constexpr const char* kText = R"([cluster]
name = "two cores"
generation = "cpu"
gpus_per_node = 4

[simple.node]
latency_us = 700
bandwidth_gb_per_s = 1.5
[simple.network]
latency_us = 700
bandwidth_gb_per_s = 1.5

[device]
half_tflops = 0.01
float_tflops = 0.03
memory_gb_per_s = 3
kernel_us = 4
launch_us = 0
host_read_us = 0
host_link_gb_per_s = 3
)";
  return {std::make_shared<Cluster>(ParseCluster(kText, "two_cores.toml"))};
}

class Job {
 public:
  explicit Job(Config config)
      : config_(std::move(config)),
        model_(BuildConfiguredModel(config_)),
        request_{.model = *model_,
                 .config = config_,
                 .device = c10::Device(c10::kCPU),
                 .mesh = Mesh(config_.parallelism, config_.ranks, 0),
                 .cluster = SmallMachine()},
        whole_(request_),
        finder_(request_, whole_) {
    EpOverlapSection off;
    off.enabled = AutoSwitch::kFalse;
    chosen_ = finder_.Fastest(off);
  }

  const ChosenPlan& chosen() const { return chosen_; }
  const HandWritten& rival() const { return finder_.rival(); }

  // Whether every input of a batch is cut along its first dimension.
  bool SplitsTheBatch() const {
    for (const char* input : {"tokens", "labels"}) {
      if (chosen_.plan.inputs.at(input).find("S(0)") == std::string::npos) return false;
    }
    return true;
  }

 private:
  const Config config_;
  const ModelPtr model_;
  const StepRequest request_;
  SingleDeviceStep whole_;
  PlanFinder finder_;
  ChosenPlan chosen_;
};

Config JobOf(const std::string& model, const std::string& flavor) {
  Config config;
  config.model.name = model;
  config.model.flavor = flavor;
  config.model.n_layers = 2;
  config.device = DeviceChoice::kCpu;
  config.ranks = 4;
  config.training.seq_len = 64;
  config.training.local_batch_size = 2;
  config.training.mixed_precision_param = ComputeDtype::kFloat32;
  config.compile.enable_autoparallel = true;
  config.comm.backend = CommBackend::kFake;
  config.training.check_memory = false;
  return config;
}

TEST(CpuPlans, AreNoSlowerThanLayoutsByHand) {
  std::mt19937 random(7);
  const auto pick = [&random](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  const std::pair<const char*, const char*> models[] = {{"llama3", "debugmodel"},
                                                        {"qwen3", "debugmodel"},
                                                        {"qwen3", "debugmodel_moe"},
                                                        {"deepseek_v3", "debugmodel"}};
  for (int i = 0; i < 8; ++i) {
    const auto& [model, flavor] = models[i % 4];
    Config config = JobOf(model, flavor);
    config.training.seq_len = pick({32, 64, 128});
    config.training.local_batch_size = pick({1, 2, 4});
    SCOPED_TRACE(fmt::format("{} {}, {} x {}", model, flavor, config.training.local_batch_size,
                             config.training.seq_len));
    const Job job(config);
    ASSERT_FALSE(job.rival().name.empty());
    EXPECT_LE(job.chosen().prediction.microseconds, job.rival().prediction.microseconds);
    EXPECT_TRUE(job.SplitsTheBatch());
  }
}

// A machine whose links are this slow would leave the batch whole, if it could.
TEST(CpuPlans, TheBatchMayStayWholeIfTheUserSaysSo) {
  Config config = JobOf("llama3", "debugmodel");
  config.training.local_batch_size = 1;
  config.training.seq_len = 4;
  EXPECT_TRUE(Job(config).SplitsTheBatch());
  config.compile.autoparallel_split_batch = false;
  EXPECT_FALSE(Job(config).SplitsTheBatch());
}

}  // namespace
}  // namespace gt::cpu_plans_test
