#include "gt/job/torchtitan.h"

#include <algorithm>
#include <array>

#include "gt/base/text.h"
#include "gt/job/config.h"

namespace gt {
namespace {

using enum TorchtitanOption::Answer;

constexpr std::string_view kMode = "activation_checkpoint.mode";
constexpr std::string_view kSelective = "activation_checkpoint.selective_ac_option";
constexpr std::string_view kProfile = "profiling.enable_profiling";
constexpr std::string_view kProfileEvery = "profiling.profile_freq";
constexpr std::string_view kLoadHf = "checkpoint.initial_load_in_hf";
constexpr std::string_view kLoadPath = "checkpoint.initial_load_path";
constexpr std::string_view kAssets = "model.hf_assets_path";

// Notes of several rows.
constexpr std::string_view kResolvedConfig =
    "the resolved configuration is dump_folder/config.toml";
constexpr std::string_view kNoPipelines = "there is no pipeline parallelism yet";
constexpr std::string_view kNoFloat8 = "gt has no float8 kernels";
constexpr std::string_view kOfNoConverter = "settings of model.converters, of which gt has none";
constexpr std::string_view kWholeCheckpoints =
    "checkpoints are whole; the weights alone are exported to dump_folder/hf";
constexpr std::string_view kPolicyChooses =
    "compile.memory_policy chooses; gt memory shows what each needs";
constexpr std::string_view kAlwaysCaptured =
    "the step is always captured; compile.mode eager is without";
constexpr std::string_view kNoPython = "gt runs no Python: there are no options but its own";
constexpr std::string_view kAlwaysFused = "updates are always fused";
constexpr std::string_view kScheduledTensorParallel =
    "collectives of tensor parallelism are scheduled in the graph";
constexpr std::string_view kRankZeroReports = "rank 0 reports for all";
constexpr std::string_view kRunGtMemory = "run gt memory with the same file instead";

constexpr auto kOptions = std::to_array<TorchtitanOption>({
    {"job.dump_folder", kRenamed, "dump_folder"},
    {"job.description", kIgnored},
    {"job.config_file", kIgnored, "", "", "the flag --job.config_file FILE is --config FILE"},
    {"job.print_args", kIgnored, "", "", kResolvedConfig},
    {"job.print_config", kIgnored, "", "", kResolvedConfig},
    {"job.save_config_file", kIgnored, "", "", kResolvedConfig},
    {"job.use_for_integration_test", kIgnored},
    {"job.custom_config_module", kRefused, "", "", kNoPython},

    {kAssets, kCombined, "model.tokenizer_path", "",
     "with checkpoint.initial_load_in_hf it is model.hf_path"},
    {"model.converters", kRefused, "", "[]",
     "gt has no float8 or MX kernels; leave it empty to train in --training.mixed_precision_param"},
    {"model.print_after_conversion", kIgnored},
    {"model.norm_type", kRefused, "", "rmsnorm|fused_rmsnorm|compiled_rmsnorm",
     "the models of gt norm with RMSNorm"},

    {"optimizer.name", kRefused, "", "AdamW|adamw", "gt has AdamW alone"},
    {"optimizer.implementation", kIgnored, "", "", kAlwaysFused},
    {"optimizer.fused", kIgnored, "", "", kAlwaysFused},
    {"optimizer.early_step_in_backward", kRefused, "", "false",
     "updates follow the whole backward, so that gradients can be clipped"},
    {"lr_scheduler.lr_min", kRenamed, "lr_scheduler.min_lr_factor"},
    {"lr_scheduler.total_steps", kRefused, "", "",
     "the schedule spans training.steps; to stop early, interrupt the run (Ctrl-C saves a "
     "checkpoint)"},

    {"compile.autoparallel", kRenamed, "compile.enable_autoparallel"},

    {"training.batch_size", kRenamed, "training.local_batch_size"},
    {"training.global_batch_size", kRenamed, "training.global_batch_size", "-1=0"},
    {"training.warmup_steps", kRenamed, "lr_scheduler.warmup_steps"},
    {"training.data_parallel_degree", kRenamed, "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_shard_degree", kRenamed, "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_replicate_degree", kRenamed,
     "parallelism.data_parallel_replicate_degree"},
    {"training.sequence_parallel_degree", kRenamed, "parallelism.tensor_parallel_degree"},
    {"training.tensor_parallel_degree", kRenamed, "parallelism.tensor_parallel_degree"},
    {"training.pipeline_parallel_degree", kRenamed, "parallelism.pipeline_parallel_degree"},
    {"training.fsdp_reshard_after_forward", kRenamed, "parallelism.fsdp_reshard_after_forward"},
    {"training.debug_moe_force_load_balance", kRenamed, "debug.moe_force_load_balance"},
    {"training.compile", kIgnored, "", "", kAlwaysCaptured},
    {"training.fp8_linear", kRefused, "", "|false", kNoFloat8},
    {"training.enable_float8_linear", kRefused, "", "false", kNoFloat8},
    {"training.enable_cpu_offload", kRefused, "", "false",
     "parameters stay on the device; compile.memory_policy sac_and_offload moves activations"},
    {"training.mixed_precision_reduce", kRefused, "", "float32",
     "gradients are reduced in float32"},
    {"training.gc_freq", kIgnored},
    {"training.gc_debug", kIgnored},
    {"training.dataloader.*", kIgnored, "", "",
     "training.prefetch says how many batches are prepared ahead"},

    {"debug.seed", kRenamed, "training.seed"},
    {"debug.deterministic", kRenamed, "training.deterministic"},
    {"debug.deterministic_warn_only", kIgnored, "", "false",
     "an operator without a deterministic kernel is an error"},
    {"debug.print_config", kIgnored, "", "", kResolvedConfig},
    {"debug.save_config_file", kIgnored, "", "", kResolvedConfig},
    {"debug.enable_structured_logging", kIgnored},

    {"parallelism.enable_compiled_autograd", kIgnored},
    {"parallelism.disable_loss_parallel", kIgnored, "", "",
     "the loss is computed where the vocabulary's shards are"},
    {"parallelism.enable_async_tensor_parallel", kIgnored, "", "false", kScheduledTensorParallel},
    {"parallelism.enable_sequence_parallel", kIgnored, "", "true",
     "sequences are always sharded between layers"},
    {"parallelism.pipeline_parallel_schedule", kIgnored, "", "", kNoPipelines},
    {"parallelism.pipeline_parallel_schedule_csv", kIgnored, "", "", kNoPipelines},
    {"parallelism.pipeline_parallel_split_points", kIgnored, "", "", kNoPipelines},
    {"parallelism.pipeline_parallel_layers_per_stage", kIgnored, "", "", kNoPipelines},
    {"parallelism.pipeline_parallel_first_stage_less_layers", kIgnored, "", "", kNoPipelines},
    {"parallelism.pipeline_parallel_last_stage_less_layers", kIgnored, "", "", kNoPipelines},
    {"parallelism.pipeline_parallel_microbatch_size", kIgnored, "", "", kNoPipelines},
    {"parallelism.module_fqns_per_model_part", kIgnored, "", "", kNoPipelines},
    {"parallelism.context_parallel_load_balancer", kIgnored, "", "",
     "gt balances causal attention itself"},
    {"parallelism.context_parallel_rotate_method", kIgnored, "", "",
     "gt chooses how keys and values travel"},
    {"parallelism.expert_tensor_parallel_degree", kRefused, "", "1",
     "experts are split over expert_parallel_degree alone"},
    {"parallelism.expert_parallel_comm_backend", kIgnored, "", "standard",
     "tokens travel by all-to-all of comm.backend"},

    {"experimental.context_parallel_degree", kRenamed, "parallelism.context_parallel_degree"},
    {"experimental.pipeline_parallel_degree", kRenamed, "parallelism.pipeline_parallel_degree"},
    {"experimental.enable_async_tensor_parallel", kIgnored, "", "false", kScheduledTensorParallel},
    {"experimental.custom_import", kRefused, "", "",
     "gt runs no Python; docs/adding_a_model.md adds models"},
    {"experimental.custom_args_module", kRefused, "", "", kNoPython},

    {"checkpoint.enable_checkpoint", kRenamed, "checkpoint.enable"},
    {"checkpoint.async_mode", kRenamed, "checkpoint.async_mode", "async_with_pinned_mem=async"},
    {"checkpoint.interval_type", kRefused, "", "steps", "checkpoint.interval counts steps"},
    {kLoadHf, kCombined, "model.hf_path", "",
     "true takes weights and architecture from initial_load_path, else from model.hf_assets_path"},
    {kLoadPath, kCombined, "model.hf_path", "",
     "with initial_load_in_hf; other checkpoints cannot be read"},
    {"checkpoint.initial_load_in_hf_quantized", kRefused, "", "false",
     "weights are read in bfloat16, float16 and float32; convert the folder first"},
    {"checkpoint.initial_load_model_only", kIgnored, "", "", "model.hf_path holds a model alone"},
    {"checkpoint.model_weights_only", kIgnored, "", "", kWholeCheckpoints},
    {"checkpoint.last_save_model_only", kIgnored, "", "", kWholeCheckpoints},
    {"checkpoint.last_save_model_weights_only", kIgnored, "", "", kWholeCheckpoints},
    {"checkpoint.enable_first_step_checkpoint", kIgnored, "", "false",
     "the first checkpoint is that of checkpoint.interval"},
    {"checkpoint.create_seed_checkpoint", kIgnored, "", "false",
     "a seed gives the same model on any number of ranks"},
    {"checkpoint.exclude_from_loading", kRefused, "", "[]", "checkpoints are loaded whole"},
    {"checkpoint.load_only", kRefused, "", "false",
     "leave out checkpoint.enable, and name the weights with model.hf_path"},
    {"checkpoint.enable_ft_dataloader_checkpoints", kIgnored},

    {kMode, kCombined, "compile.memory_policy", "none=none|full=full|selective=eager",
     "no policy changes a bit of the results"},
    {kSelective, kCombined, "compile.memory_policy", "op=eager",
     "with mode selective; every second layer and the like become eager"},
    {"activation_checkpoint.memory_budget", kIgnored, "", "", kPolicyChooses},
    {"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", kIgnored, "", "",
     kPolicyChooses},
    {"activation_checkpoint.visualize_memory_budget_pareto", kIgnored, "", "false",
     "gt memory shows what each compile.memory_policy needs"},
    {"activation_checkpoint.early_stop", kIgnored},
    {"activation_checkpoint.preserve_rng_state", kIgnored, "", "",
     "recomputed random operators always draw the same numbers"},
    {"activation_checkpoint.determinism_check", kIgnored},
    {"activation_checkpoint.debug", kIgnored},

    {"compile.enable", kIgnored, "", "", kAlwaysCaptured},
    {"compile.components", kIgnored, "", "", "the step is captured as a whole"},
    {"compile.model_backend_override", kIgnored},
    {"compile.backend", kIgnored, "", "", "passes and executor are gt's own"},

    {"float8.enable_float8_linear", kRefused, "", "false", kNoFloat8},
    {"float8.*", kIgnored, "", "", kOfNoConverter},
    {"mx.*", kIgnored, "", "", kOfNoConverter},
    {"quantize.*", kIgnored, "", "", kOfNoConverter},

    {"profiling.run_profiler", kRenamed, kProfile},
    {"profiling.profile_every_x_iter", kRenamed, kProfileEvery},
    {kProfile, kCombined, "profiling.steps", "", "true profiles the step of profile_freq"},
    {kProfileEvery, kCombined, "profiling.steps", "", "with enable_profiling"},
    {"profiling.profiler_active", kIgnored, "", "1",
     "profiling.steps names the steps, such as 10-12"},
    {"profiling.profiler_warmup", kIgnored},
    {"profiling.save_traces_folder", kIgnored, "", "", "timelines are in dump_folder/profile"},
    {"profiling.enable_memory_snapshot", kIgnored, "", "false",
     "gt memory shows what is alive at the peak, without running the step"},
    {"profiling.save_memory_snapshot_folder", kIgnored},

    {"metrics.enable_wandb", kIgnored, "", "false",
     "gt uploads nothing: feed dump_folder/metrics.jsonl to wandb, see docs/torchtitan.md"},
    {"metrics.save_tb_folder", kIgnored, "", "tb", "event files are in dump_folder/tb"},
    {"metrics.disable_color_printing", kIgnored},
    {"metrics.enable_color_printing", kIgnored},
    {"metrics.rank_0_only", kIgnored, "", "", kRankZeroReports},
    {"metrics.save_for_all_ranks", kIgnored, "", "false", kRankZeroReports},

    {"comm.save_traces_file_prefix", kIgnored},
    {"comm.mode", kRefused, "", "default",
     "gt trace, memory and simulate run one process for all ranks; --comm.backend emulated trains "
     "so"},
    {"memory_estimation.enabled", kRefused, "", "false", kRunGtMemory},
    {"memory_estimation.enable", kRefused, "", "false", kRunGtMemory},
    {"memory_estimation.disable_fake_mode", kIgnored},
    {"fault_tolerance.enable", kRefused, "", "false",
     "gt launch --max-restarts with --checkpoint.enable continues after a failure"},
    {"fault_tolerance.*", kIgnored},

    {"validation.enabled", kRenamed, "validation.enable"},
    {"validation.dataset", kIgnored, "", "", "validation.dataset_path names the file or folder"},
    {"validation.local_batch_size", kIgnored, "", "", "validation uses training.local_batch_size"},
    {"validation.seq_len", kIgnored, "", "", "validation uses training.seq_len"},
    {"validation.dataloader.*", kIgnored},
});

// The row of the option itself is before that of its section.
const TorchtitanOption* RowOf(std::string_view key) {
  const TorchtitanOption* section = nullptr;
  for (const TorchtitanOption& option : kOptions) {
    if (option.key == key) return &option;
    if (NamesOption(option.key, key)) section = &option;
  }
  return section;
}

// Whether one of the values, separated by |, is this one; "" is one as well.
bool IsAmong(std::string_view values, std::string_view value) {
  while (true) {
    const std::size_t bar = values.find('|');
    if (values.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    values.remove_prefix(bar + 1);
  }
}

std::optional<std::string> MappedValue(std::string_view values, std::string_view value) {
  for (const std::string& pair : Split(values, '|')) {
    const std::size_t equals = pair.find('=');
    if (equals != std::string::npos && pair.substr(0, equals) == value) {
      return pair.substr(equals + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const TorchtitanOption> TorchtitanOptions() { return kOptions; }

bool TorchtitanReader::Knows(std::string_view key) const { return RowOf(key) != nullptr; }

bool TorchtitanReader::KnowsSection(std::string_view path) const {
  const std::string inside = std::string(path) + ".";
  return std::any_of(
             kOptions.begin(), kOptions.end(),
             [&](const TorchtitanOption& option) { return option.key.starts_with(inside); }) ||
         Knows(inside);
}

bool TorchtitanReader::IsSwitch(std::string_view key, std::span<const OptionGroup> groups) const {
  const TorchtitanOption* option = RowOf(key);
  if (option == nullptr) return false;
  for (const OptionGroup& group : groups) {
    for (const Option& target : group.options) {
      if (target.path() == option->target && target.is_flag()) return true;
    }
  }
  const std::string_view name = key.substr(key.rfind('.') + 1);
  return IsAmong(option->values, "false") || IsAmong(option->values, "true") ||
         name.starts_with("enable") || name.starts_with("disable") || name.starts_with("print") ||
         key == kLoadHf;
}

std::string TorchtitanReader::Translated(std::string_view key, const std::string& value) const {
  const TorchtitanOption* option = RowOf(key);
  if (option == nullptr || option->target != key) return value;
  return MappedValue(option->values, value).value_or(value);
}

bool TorchtitanReader::Take(const std::string& key, const std::string& value,
                            const std::string& where) {
  const TorchtitanOption* option = RowOf(key);
  if (option == nullptr) return false;
  // An older name of torchtitan's own.
  const bool older = option->answer == kRenamed && Knows(option->target) && option->target != key;
  given_[older ? std::string(option->target) : key] = {value, where};
  return true;
}

bool TorchtitanReader::IsFresh(std::string_view key) const {
  const auto found = given_.find(key);
  return found != given_.end() && found->second.fresh;
}

std::string TorchtitanReader::ValueOf(std::string_view key) const {
  const auto found = given_.find(key);
  return found == given_.end() ? "" : found->second.value;
}

void TorchtitanReader::Set(std::string_view target, const std::string& value,
                           std::string_view key) {
  for (OptionGroup& group : groups_) {
    for (Option& option : group.options) {
      if (option.path() != target) continue;
      option.SetFromText(value, given_.find(key)->second.where, /*append=*/false, *problems_);
      return;
    }
  }
  GT_CHECK(false, "torchtitan's {} stands for {}, which is no option", key, target);
}

void TorchtitanReader::ApplyOne(const TorchtitanOption& option, const std::string& key,
                                const Given& given) {
  switch (option.answer) {
    case kRenamed:
      Set(option.target, MappedValue(option.values, given.value).value_or(given.value), key);
      return;
    case kRefused:
      if (IsAmong(option.values, given.value)) return;
      problems_->Add(ErrorCode::kUnknownOption, "{} = {}, an option of torchtitan: {}", given.where,
                     Quoted(given.value), option.note);
      return;
    case kIgnored:
      if (option.values.empty()) {
        without_effect_.push_back(key);
      } else if (!IsAmong(option.values, given.value)) {
        notices_.push_back(fmt::format("{} = {} has no effect here: {}", given.where,
                                       Quoted(given.value), option.note));
      }
      return;
    case kCombined:
      return;
  }
}

void TorchtitanReader::ApplyActivationCheckpoint() {
  if (!IsFresh(kMode) && !IsFresh(kSelective)) return;
  const std::string mode = ValueOf(kMode), option = ValueOf(kSelective);
  if (mode.empty()) return;  // the option alone says nothing
  const TorchtitanOption& row = *RowOf(kMode);
  const std::optional<std::string> policy = MappedValue(row.values, mode);
  const std::string& where = given_.find(kMode)->second.where;
  if (!policy) {
    problems_->Add(
        ErrorCode::kBadOptionValue,
        "{} = {}, an option of torchtitan: choose a compile.memory_policy (none, default, "
        "eager, full, sac_and_offload); gt memory shows what each needs",
        where, Quoted(mode));
    return;
  }
  Set(row.target, *policy, kMode);
  if (mode == "selective" && !option.empty() && option != "op") {
    notices_.push_back(
        fmt::format("{}: gt recomputes alike in all layers, so that {} {} is taken as "
                    "compile.memory_policy eager; results do not depend on it",
                    where, kSelective, Quoted(option)));
  }
}

void TorchtitanReader::ApplyProfiling() {
  if ((!IsFresh(kProfile) && !IsFresh(kProfileEvery)) || ValueOf(kProfile) != "true") return;
  constexpr std::string_view kTorchtitansDefault = "10";
  const std::string every = ValueOf(kProfileEvery);
  const std::string step(every.empty() ? kTorchtitansDefault : std::string_view(every));
  Set(RowOf(kProfile)->target, step, kProfile);
  notices_.push_back(
      fmt::format("{}: step {} is profiled, once; profiling.steps names others, such as 10,20,30",
                  given_.find(kProfile)->second.where, step));
}

// torchtitan's hf_assets_path is a folder with the tokenizer, and with weights when it is told so.
void TorchtitanReader::ApplyInitialLoad() {
  if (IsFresh(kAssets)) Set("model.tokenizer_path", ValueOf(kAssets), kAssets);
  if (!IsFresh(kLoadHf) && !IsFresh(kLoadPath) && !IsFresh(kAssets)) return;
  const std::string path = ValueOf(kLoadPath);
  if (ValueOf(kLoadHf) == "true") {
    const std::string folder = path.empty() ? ValueOf(kAssets) : path;
    if (!folder.empty()) Set("model.hf_path", folder, kLoadHf);
  } else if (!path.empty() && IsFresh(kLoadPath)) {
    problems_->Add(
        ErrorCode::kUnknownOption,
        "{}: gt cannot read torchtitan's own checkpoints; export the weights to a Hugging "
        "Face folder and name it with model.hf_path",
        given_.find(kLoadPath)->second.where);
  }
}

void TorchtitanReader::Apply(std::span<OptionGroup> groups, Problems& problems) {
  groups_ = groups;
  problems_ = &problems;
  ApplyActivationCheckpoint();
  ApplyProfiling();
  ApplyInitialLoad();
  for (const auto& [key, given] : given_) {
    if (given.fresh) ApplyOne(*RowOf(key), key, given);
  }
  for (auto& [key, given] : given_) given.fresh = false;
}

std::vector<std::string> TorchtitanReader::Notices() const {
  std::vector<std::string> all = notices_;
  if (!without_effect_.empty()) {
    all.push_back(fmt::format("options of torchtitan without effect here (docs/torchtitan.md): {}",
                              Join(without_effect_, ", ")));
  }
  return all;
}

}  // namespace gt
