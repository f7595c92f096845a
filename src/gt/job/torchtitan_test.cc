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

TEST(Torchtitan, SwitchesAreReadInAnyCase) {
  EXPECT_TRUE(ConfigFromFlags({"--debug.deterministic", "True"}).training.deterministic);
  EXPECT_FALSE(ConfigFromFlags({"--debug.deterministic=False"}).training.deterministic);
  EXPECT_FALSE(ConfigFromFlags({"--debug.no-deterministic"}).training.deterministic);
  // What may only be false is not refused for its case.
  EXPECT_EQ(ConfigFromFlags({"--fault_tolerance.enable", "False"}), Config());
  EXPECT_EQ(ConfigFromFlags({"--fault_tolerance.no-enable"}), Config());
  EXPECT_THROW(ConfigFromFlags({"--fault_tolerance.enable", "True"}), Error);
  // A name is a name.
  EXPECT_EQ(ConfigFromFlags({"--job.dump_folder", "False"}).dump_folder, "False");
}

Error FlagError(const std::vector<std::string>& flags) {
  try {
    ConfigFromFlags(flags);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error for " << Join(flags, " ");
  return {ErrorCode::kInternal, ""};
}

// Each says what to write here.
TEST(Torchtitan, OptionsOfItsGraphTrainerAreAnswered) {
  for (const auto& [flags, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--compile.chunk_modules", "layers.*"}, "--compile.ep_overlap.module_fqn PATTERN"},
           {{"--compile.chunk_batch_modules", "layers.*"}, "--compile.ep_overlap.chunk_dim batch"},
           {{"--compile.chunk_seq_modules=layers.*.moe"}, "--compile.ep_overlap.chunk_dim seq"},
           {{"--compile.extra_passes", "cse"}, "--compile.passes=+NAME,..."},
           {{"--compile.extra_passes", "ep_overlap"}, "--compile.ep_overlap.enabled"},
           {{"--compile.pass_pipeline", "mine"}, "--compile.inductor_compilation"},
           {{"--compile.precompile_artifact_dir", "/tmp"}, "jobs capture their step"},
           {{"--training.max_context_length", "4096"}, "training.seq_len"},
           {{"--module", "graph_trainer.deepseek_v3"}, "write --model.name deepseek_v3"},
           {{"--module=llama3"}, "write --model.name llama3"}}) {
    const Error error = FlagError(flags);
    EXPECT_EQ(error.code(), ErrorCode::kUnknownOption) << error.what();
    EXPECT_NE(error.message().find(part), std::string::npos) << part << "\n" << error.message();
  }
  const Error file = FileError("[compile]\nchunk_modules = [\"layers.*\"]\n");
  EXPECT_NE(file.message().find("titan.toml:2: compile.chunk_modules"), std::string::npos)
      << file.message();
  EXPECT_EQ(ConfigFrom("[compile]\nchunk_modules = []\npass_pipeline = \"default\"\n"), Config());
  EXPECT_EQ(NoticesOf({{"compile.numerics_changing_optim", "true"}}).size(), 1u);
  EXPECT_EQ(NoticesOf({{"compile.numerics_changing_optim", "false"}}).size(), 0u);
}

TEST(Torchtitan, EarlierNamesOfEpOverlapOptionsAreRead) {
  const Config config = ConfigFromFlags({"--compile.ep_overlap_chunk_dim", "seq",
                                         "--compile.ep_overlap_module_fqn=layers.*.moe",
                                         "--compile.ep_overlap_disable_early_grad_accumulation"});
  EXPECT_EQ(config.compile.ep_overlap.chunk_dim, ChunkDim::kSeq);
  EXPECT_EQ(config.compile.ep_overlap.module_fqn, "layers.*.moe");
  EXPECT_TRUE(config.compile.ep_overlap.disable_early_grad_accumulation);
  EXPECT_EQ(ConfigFromFlags({"--compile.chunk_mode", "seq"}).compile.ep_overlap.chunk_dim,
            ChunkDim::kSeq);
  EXPECT_FALSE(ConfigFromFlags({"--training.disable_cuda_graphs"}).compile.cuda_graphs);
  EXPECT_EQ(ConfigFromFlags({"--compile.memory_policy", "cpu_offload_all"}).compile.memory_policy,
            MemoryPolicy::kSacAndOffload);
}

// The flag of the pull request, and the one that was merged.
TEST(Torchtitan, AutoparallelHasTwoNames) {
  EXPECT_TRUE(ConfigFromFlags({"--compile.autoparallel"}).compile.enable_autoparallel);
  EXPECT_TRUE(ConfigFromFlags({"--compile.enable_autoparallel"}).compile.enable_autoparallel);
  EXPECT_TRUE(ConfigFrom("[compile]\nautoparallel = true\n").compile.enable_autoparallel);
  EXPECT_FALSE(ConfigFromFlags({"--compile.autoparallel", "False"}).compile.enable_autoparallel);
}

// Names that other programs have for our options, and torchtitan's in the wrong section.
TEST(Torchtitan, OtherNamesAreHintedAt) {
  for (const char* flag :
       {"--training.sequence_length", "--sequence_length", "--model.max_seq_len"}) {
    EXPECT_EQ(FlagError({flag, "128"}).message(),
              fmt::format("unknown flag {}; did you mean --training.seq_len?", flag));
  }
  EXPECT_EQ(FileError("[training]\nsequence_length = 128\n").message(),
            "titan.toml:2: unknown key training.sequence_length; did you mean training.seq_len?");
  EXPECT_EQ(FlagError({"--tp", "2"}).message(),
            "unknown flag --tp; did you mean --parallelism.tensor_parallel_degree?");
  EXPECT_EQ(FlagError({"--compile.ep_overlap", "True"}).message(),
            "unknown flag --compile.ep_overlap; did you mean --compile.ep_overlap.enabled?");
  EXPECT_EQ(FlagError({"--lr_min", "0.1"}).message(),
            "unknown flag --lr_min; did you mean --lr_scheduler.min_lr_factor?");
  const Error error = FlagError({"--chunk_modules", "layers.*"});
  EXPECT_NE(error.message().find("torchtitan's compile.chunk_modules: write "), std::string::npos)
      << error.message();
}

// torchtitan's name and ours for one option are the option twice.
TEST(Torchtitan, BothNamesOfAnOptionAreOneTooMany) {
  const Error flags = FlagError({"--job.dump_folder", "a", "--dump_folder", "b"});
  EXPECT_EQ(flags.code(), ErrorCode::kDuplicateKey);
  EXPECT_EQ(flags.message(),
            "--dump_folder and --job.dump_folder both set dump_folder; keep one of them");
  const Error file = FileError("dump_folder = \"a\"\n[job]\ndump_folder = \"b\"\n");
  EXPECT_EQ(file.code(), ErrorCode::kDuplicateKey);
  EXPECT_NE(file.message().find("titan.toml:3: job.dump_folder"), std::string::npos)
      << file.message();
  EXPECT_EQ(FlagError({"--profiling.run_profiler", "--profiling.enable_profiling"}).code(),
            ErrorCode::kDuplicateKey);
  // Not over sources: flags win.
  const Quiet quiet;
  Config config;
  LoadToml("[job]\ndump_folder = \"a\"\n", "titan.toml", &config);
  LoadToml("dump_folder = \"b\"\n", "other.toml", &config);
  EXPECT_EQ(config.dump_folder, "b");
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
