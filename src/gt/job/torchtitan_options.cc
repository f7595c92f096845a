// torchtitan's options that are not gt's: one row each.
#include <array>

#include "gt/job/torchtitan.h"

namespace gt {
namespace {

using enum TorchtitanOption::Answer;

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

constexpr std::string_view kNoProducts = "gt has no fused matmul-collective kernels";
constexpr std::string_view kSequenceOptions =
    "set training.seq_len and training.local_batch_size instead";

constexpr auto kOptions = std::to_array<TorchtitanOption>({
    {"job.dump_folder", kRenamed, "dump_folder"},
    {"job.description", kIgnored},
    {"job.config_file", kIgnored, "", "", "the flag --job.config_file FILE is --config FILE"},
    {"job.print_args", kIgnored, "", "", kResolvedConfig},
    {"job.print_config", kIgnored, "", "", kResolvedConfig},
    {"job.save_config_file", kIgnored, "", "", kResolvedConfig},
    {"job.use_for_integration_test", kIgnored},
    {"job.custom_config_module", kRefused, "", "", kNoPython},

    {"model.hf_assets_path", kCombined, "model.tokenizer_path", "",
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

    {"module", kRefused, "", "", "write --model.name FAMILY and --model.flavor SIZE"},

    {"compile.autoparallel", kRenamed, "compile.enable_autoparallel"},
    {"compile.chunk_modules", kRefused, "", "[]|",
     "write --compile.ep_overlap.enabled --compile.ep_overlap.module_fqn PATTERN (a single "
     "pattern)"},
    {"compile.chunk_batch_modules", kRefused, "", "[]|",
     "write --compile.ep_overlap.enabled --compile.ep_overlap.chunk_dim batch "
     "--compile.ep_overlap.module_fqn PATTERN"},
    {"compile.chunk_seq_modules", kRefused, "", "[]|",
     "write --compile.ep_overlap.enabled --compile.ep_overlap.chunk_dim seq "
     "--compile.ep_overlap.module_fqn PATTERN"},
    {"compile.chunk_mode", kRenamed, "compile.ep_overlap.chunk_dim"},
    {"compile.ep_overlap_chunk_dim", kRenamed, "compile.ep_overlap.chunk_dim"},
    {"compile.ep_overlap_strategy", kRenamed, "compile.ep_overlap.strategy"},
    {"compile.ep_overlap_module_fqn", kRenamed, "compile.ep_overlap.module_fqn"},
    {"compile.ep_overlap_disable_early_grad_accumulation", kRenamed,
     "compile.ep_overlap.disable_early_grad_accumulation"},
    {"compile.extra_passes", kRefused, "", "[]|",
     "write --compile.passes=+NAME,... to add passes, or --compile.ep_overlap.enabled for "
     "ep_overlap"},
    {"compile.pass_pipeline", kRefused, "", "default",
     "choose a pipeline with --compile.inductor_compilation, or list passes with "
     "--compile.passes=NAME,..."},
    {"compile.numerics_changing_optim", kIgnored, "", "false",
     "generated norm kernels keep eager's bits; --compile.inductor_compilation selects what is "
     "compiled"},
    {"compile.precompile_artifact_dir", kRefused, "", "",
     "leave it out: jobs capture their step at startup; --compile.kernel_cache keeps generated "
     "kernels"},
    {"compile.enable_async_tensor_parallel", kIgnored, "", "false", kNoProducts},
    {"compile.memory_policy", kRenamed, "compile.memory_policy", "cpu_offload_all=sac_and_offload",
     "results do not depend on it"},
    {"training.max_context_length", kRefused, "", "", kSequenceOptions},
    {"training.num_tokens_per_microbatch_per_dp_rank", kRefused, "", "", kSequenceOptions},
    {"training.disable_cuda_graphs", kRenamed, "compile.cuda_graphs", "true=false|false=true"},

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
    {"parallelism.num_pp_microbatches", kIgnored, "", "", kNoPipelines},
    {"parallelism.spmd_backend", kIgnored, "", "", "collectives are part of the captured step"},
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
    {"checkpoint.initial_load_in_hf", kCombined, "model.hf_path", "",
     "true takes weights and architecture from initial_load_path, else from model.hf_assets_path"},
    {"checkpoint.initial_load_path", kCombined, "model.hf_path", "",
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

    {"activation_checkpoint.mode", kCombined, "compile.memory_policy",
     "none=none|full=full|selective=eager", "no policy changes a bit of the results"},
    {"activation_checkpoint.selective_ac_option", kCombined, "compile.memory_policy", "op=eager",
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

    {"profiling.run_profiler", kRenamed, "profiling.enable_profiling"},
    {"profiling.profile_every_x_iter", kRenamed, "profiling.profile_freq"},
    {"profiling.enable_profiling", kCombined, "profiling.steps", "",
     "true profiles the step of profile_freq"},
    {"profiling.profile_freq", kCombined, "profiling.steps", "", "with enable_profiling"},
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

}  // namespace

std::span<const TorchtitanOption> TorchtitanOptions() { return kOptions; }

}  // namespace gt
