#include "gt/job/torchtitan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/config/command_line.h"
#include "gt/job/config.h"

namespace gt::torchtitan_test {
namespace {

// Without the notices, which have a test of their own.
class Quiet {
 public:
  Quiet() { log::SetLevel(log::Level::kWarn); }
  ~Quiet() { log::SetLevel(before_); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  log::Level before_ = log::CurrentLevel();
};

Config ConfigFrom(std::string_view text) {
  const Quiet quiet;
  Config config;
  LoadToml(text, "titan.toml", &config);
  return config;
}

Config ConfigFromFlags(std::vector<std::string> flags) {
  const Quiet quiet;
  Config config;
  CommandLine line("gt train", "trains a model");
  line.WithConfig(&config);
  EXPECT_TRUE(line.Parse(flags));
  return config;
}

Error FileError(std::string_view text) {
  try {
    ConfigFrom(text);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error for " << text;
  return {ErrorCode::kInternal, ""};
}

// What a file of torchtitan's says that gt does not have an effect for.
std::vector<std::string> NoticesOf(const std::vector<std::pair<std::string, std::string>>& given) {
  Config config;
  std::vector<OptionGroup> groups = BindOptions(&config);
  TorchtitanReader reader;
  Problems problems;
  for (const auto& [key, value] : given) EXPECT_TRUE(reader.Take(key, value, "a.toml:1: " + key));
  reader.Apply(groups, problems);
  problems.ThrowIfAny();
  return reader.Notices();
}

// All the sections and keys of torchtitan's own file for a small model.
constexpr std::string_view kWholeFile = R"([job]
dump_folder = "./elsewhere"
description = "debug training"
print_config = false

[profiling]
enable_profiling = false
save_traces_folder = "profile_trace"
profile_freq = 10
enable_memory_snapshot = false
save_memory_snapshot_folder = "memory_snapshot"

[metrics]
log_freq = 2
disable_color_printing = false
enable_tensorboard = true
save_tb_folder = "tb"
enable_wandb = false

[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./assets/tokenizer"

[optimizer]
name = "AdamW"
lr = 3e-4
eps = 1e-8

[lr_scheduler]
warmup_steps = 2
decay_ratio = 0.8
decay_type = "linear"
min_lr_factor = 0.0

[training]
local_batch_size = 4
global_batch_size = -1
seq_len = 2048
max_norm = 1.0
steps = 10
dataset = "c4_test"

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "default"
tensor_parallel_degree = 1
enable_async_tensor_parallel = false
pipeline_parallel_degree = 1
pipeline_parallel_schedule = "Interleaved1F1B"
context_parallel_degree = 1
expert_tensor_parallel_degree = 1

[checkpoint]
enable = false
folder = "checkpoint"
interval = 10
last_save_model_only = false
export_dtype = "float32"
async_mode = "async_with_pinned_mem"

[activation_checkpoint]
mode = "selective"
selective_ac_option = 'op'

[compile]
enable = false
components = ["model", "loss"]

[quantize.linear.float8]
enable_fsdp_float8_all_gather = false
filter_fqns = ["output"]

[validation]
enable = false
dataset = "c4_validation"
freq = 5
steps = 10
)";

TEST(Torchtitan, AFileIsReadWhereItMeansTheSame) {
  const Config config = ConfigFrom(kWholeFile);
  EXPECT_EQ(config.dump_folder, "./elsewhere");
  EXPECT_EQ(config.model.tokenizer_path, "./assets/tokenizer");
  EXPECT_EQ(config.model.hf_path, "");
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.training.global_batch_size, 0);
  EXPECT_EQ(config.checkpoint.async_mode, CheckpointAsync::kAsync);
  EXPECT_EQ(config.compile.memory_policy, MemoryPolicy::kEager);
  EXPECT_EQ(config.profiling.steps, "");
  EXPECT_TRUE(config.metrics.enable_tensorboard);
}

TEST(Torchtitan, WhatIsNotPossibleIsListedTogether) {
  const Error error = FileError(
      "[optimizer]\nname = \"Muon\"\n[model]\nconverters = [\"float8\"]\n"
      "[training]\nenable_cpu_offload = true\n[fault_tolerance]\nenable = true\n"
      "[checkpoint]\ninitial_load_path = \"dcp\"\n[parallelism]\nbanana = 1\n");
  EXPECT_EQ(error.code(), ErrorCode::kUnknownOption);
  for (const char* part :
       {"6 problems", "titan.toml:2: optimizer.name = \"Muon\"", "AdamW",
        "titan.toml:4: model.converters", "mixed_precision_param", "enable_cpu_offload",
        "sac_and_offload", "--max-restarts", "model.hf_path", "unknown key parallelism.banana"}) {
    EXPECT_NE(error.message().find(part), std::string::npos) << part << "\n" << error.message();
  }
}

TEST(Torchtitan, WhatHasNoEffectIsStatedOnce) {
  const std::vector<std::string> notices =
      NoticesOf({{"job.description", "a run"},
                 {"compile.enable", "true"},
                 {"metrics.enable_wandb", "true"},
                 {"metrics.save_tb_folder", "tb"},
                 {"profiling.enable_memory_snapshot", "false"}});
  ASSERT_EQ(notices.size(), 2u) << Join(notices, "\n");
  EXPECT_NE(notices[0].find("metrics.jsonl"), std::string::npos) << notices[0];
  EXPECT_TRUE(notices[1].ends_with("compile.enable, job.description")) << notices[1];
}

TEST(Torchtitan, ActivationCheckpointsBecomeMemoryPolicies) {
  const auto policy = [](std::string_view text) {
    return ConfigFrom(fmt::format("[activation_checkpoint]\n{}\n", text)).compile.memory_policy;
  };
  EXPECT_EQ(policy("mode = \"none\""), MemoryPolicy::kNone);
  EXPECT_EQ(policy("mode = \"full\""), MemoryPolicy::kFull);
  EXPECT_EQ(policy("mode = \"selective\""), MemoryPolicy::kEager);
  EXPECT_EQ(policy("mode = \"selective\"\nselective_ac_option = \"2\""), MemoryPolicy::kEager);
  EXPECT_EQ(policy("selective_ac_option = \"2\""), MemoryPolicy::kNone);
  EXPECT_EQ(FileError("[activation_checkpoint]\nmode = \"memory_budget\"").code(),
            ErrorCode::kBadOptionValue);
  EXPECT_EQ(NoticesOf({{"activation_checkpoint.mode", "selective"},
                       {"activation_checkpoint.selective_ac_option", "2"}})
                .size(),
            1u);
}

TEST(Torchtitan, ProfilingTakesTheStepOfItsFrequency) {
  EXPECT_EQ(ConfigFrom("[profiling]\nenable_profiling = true\nprofile_freq = 7").profiling.steps,
            "7");
  EXPECT_EQ(ConfigFrom("[profiling]\nprofile_freq = 7").profiling.steps, "");
  EXPECT_EQ(ConfigFrom("[profiling]\nrun_profiler = true").profiling.steps, "10");
}

TEST(Torchtitan, WeightsComeFromTheAssetsWhenAskedFor) {
  const Config config =
      ConfigFrom("[model]\nhf_assets_path = \"hf/llama\"\n[checkpoint]\ninitial_load_in_hf = true");
  EXPECT_EQ(config.model.hf_path, "hf/llama");
  EXPECT_EQ(ConfigFrom("[checkpoint]\ninitial_load_in_hf = true\ninitial_load_path = \"w\"")
                .model.hf_path,
            "w");
}

TEST(Torchtitan, FlagsAreReadAsWell) {
  const Config config = ConfigFromFlags(
      {"--job.dump_folder", "there", "--compile.enable", "--training.steps", "3",
       "--activation_checkpoint.mode=full", "--debug.seed", "7", "--debug.deterministic",
       "--metrics.enable_wandb", "false", "--training.global_batch_size", "-1"});
  EXPECT_EQ(config.dump_folder, "there");
  EXPECT_EQ(config.training.steps, 3);
  EXPECT_EQ(config.compile.memory_policy, MemoryPolicy::kFull);
  EXPECT_EQ(config.training.seed, 7);
  EXPECT_TRUE(config.training.deterministic);
  EXPECT_EQ(config.training.global_batch_size, 0);
  // gt's own name, given as a flag, wins over what a file of torchtitan's says.
  EXPECT_THROW(ConfigFromFlags({"--optimizer.name", "Muon"}), Error);
  EXPECT_THROW(ConfigFromFlags({"--debug.seed"}), Error);
}

TEST(Torchtitan, TheTableIsSound) {
  Config config;
  std::vector<std::string> ours;
  ForEachOption(config, [&](const Option& option) { ours.push_back(option.path()); });
  const auto is_ours = [&](std::string_view name) {
    return std::find(ours.begin(), ours.end(), name) != ours.end();
  };
  std::vector<std::string_view> keys;
  for (const TorchtitanOption& option : TorchtitanOptions()) {
    EXPECT_EQ(std::count(keys.begin(), keys.end(), option.key), 0) << option.key;
    keys.push_back(option.key);
    const bool names_target = option.answer == TorchtitanOption::Answer::kRenamed ||
                              option.answer == TorchtitanOption::Answer::kCombined;
    EXPECT_EQ(names_target, !option.target.empty()) << option.key;
    if (names_target) {
      EXPECT_TRUE(is_ours(option.target) || TorchtitanReader().Knows(option.target)) << option.key;
    }
    // An option of gt by that name would never be looked up in the table, but for its values.
    EXPECT_TRUE(!is_ours(option.key) || option.key == option.target) << option.key;
    const bool needs_note =
        option.answer == TorchtitanOption::Answer::kRefused ||
        (option.answer == TorchtitanOption::Answer::kIgnored && !option.values.empty());
    EXPECT_TRUE(!needs_note || !option.note.empty()) << option.key;
  }
}

}  // namespace
}  // namespace gt::torchtitan_test
