#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"
#include "gt/config/problems.h"
#include "gt/job/config.h"
#include "gt/job/derived_options.h"
#include "gt/job/dump_folder.h"
#include "gt/job/pass_needs.h"
#include "gt/sim/moe_load.h"

namespace gt {
namespace {

void CheckEpOverlap(const Config& config, bool rewrites, Problems& problems) {
  const CompileSection& compile = config.compile;
  const EpOverlapSection& overlap = compile.ep_overlap;
  const bool eager = overlap.strategy == ChunkStrategy::kEager;
  const bool enabled = overlap.enabled == AutoSwitch::kTrue;  // auto chooses what is possible
  if (enabled && !eager && !rewrites) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.ep_overlap.strategy graph rewrites the captured graph, which {} leaves "
                 "out; use compile.ep_overlap.strategy eager",
                 compile.enable_passes ? "compile.mode eager" : "compile.enable_passes=false");
  }
  const bool batch = overlap.chunk_dim == ChunkDim::kBatch;
  const std::int64_t ranks =
      config.parallelism.tensor_parallel_degree * config.parallelism.context_parallel_degree;
  const std::int64_t extent =
      batch ? config.training.local_batch_size : config.training.seq_len / ranks;
  if (enabled && extent < overlap.num_chunks) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.ep_overlap.num_chunks {} needs at least as many {}, but a rank has {} at "
                 "a time; lower it or raise {}",
                 overlap.num_chunks, batch ? "sequences" : "positions of a sequence", extent,
                 batch ? "training.local_batch_size" : "training.seq_len");
  }
  if (overlap.disable_early_grad_accumulation && eager) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.ep_overlap.disable_early_grad_accumulation belongs to "
                 "compile.ep_overlap.strategy graph: strategy eager never adds gradients early");
  }
  if (std::string why = FqnPatternProblem(overlap.module_fqn); !why.empty()) {
    problems.Add(ErrorCode::kBadOptionValue, "compile.ep_overlap.module_fqn '{}': {}",
                 overlap.module_fqn, why);
  }
}

void CheckAutoparallel(const Config& config, Problems& problems) {
  const CompileSection& compile = config.compile;
  if (!compile.enable_autoparallel) {
    if (!compile.autoparallel_plan.empty()) {
      problems.Add(ErrorCode::kConflictingOptions,
                   "compile.autoparallel_plan names a plan to train, but "
                   "compile.enable_autoparallel is off");
    }
    return;
  }
  if (compile.mode == CompileMode::kEager) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.enable_autoparallel rewrites a captured step, which compile.mode eager "
                 "does without; use compile.mode aot_fx_trace");
  }
  if (config.parallelism.pipeline_parallel_degree > 1) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.enable_autoparallel places one step on all ranks; pipelines "
                 "(parallelism.pipeline_parallel_degree {}) would need several",
                 config.parallelism.pipeline_parallel_degree);
  }
  const EpOverlapSection& overlap = compile.ep_overlap;
  if (overlap.enabled != AutoSwitch::kFalse && overlap.strategy == ChunkStrategy::kEager) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.enable_autoparallel captures the step of one device, whose modules know "
                 "no chunks; use compile.ep_overlap.strategy graph");
  }
}

// The policy of AutoParallel's backend rewrites the captured graph, and decides about memory, chunks
// and the places of collectives itself.
void CheckAutoparallelBackend(const CompileSection& compile, Problems& problems) {
  if (compile.inductor_compilation != InductorCompilation::kAutoparallelBackend) return;
  const auto refuse = [&problems](std::string_view option, std::string_view why) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.inductor_compilation autoparallel_backend does not go together with "
                 "compile.{}: {}",
                 option, why);
  };
  if (compile.mode != CompileMode::kAotFxTrace) {
    refuse(fmt::format("mode {}", EnumName(compile.mode)),
           "it compiles the captured graph; use compile.mode aot_fx_trace");
  }
  if (!compile.enable_passes) refuse("enable_passes=false", "its policy is a list of passes");
  if (compile.memory_policy != MemoryPolicy::kNone) {
    refuse(fmt::format("memory_policy {}", EnumName(compile.memory_policy)),
           "it recomputes by stages of compile.ac_stage_size_gb; leave the policy out");
  }
  if (compile.enable_fsdp_dense_region_overlap) {
    refuse("enable_fsdp_dense_region_overlap",
           "it places collectives by compile.max_compute_pre_fetch; leave one of them out");
  }
  const bool cuts = compile.ep_overlap.enabled == AutoSwitch::kTrue &&
                    compile.ep_overlap.strategy == ChunkStrategy::kGraph;
  if (cuts) {
    refuse("ep_overlap.enabled",
           "it cuts no graph; use compile.inductor_compilation none, regional or full, or "
           "compile.ep_overlap.strategy eager");
  }
}

void CheckFusion(const Config& config, Problems& problems) {
  const CompileSection& compile = config.compile;
  for (const std::string& pattern : compile.fusion_module_fqn) {
    if (std::string why = FqnPatternProblem(pattern); !why.empty()) {
      problems.Add(ErrorCode::kBadOptionValue, "compile.fusion_module_fqn '{}': {}", pattern, why);
    }
  }
  if (!compile.fusion_module_fqn.empty() &&
      compile.inductor_compilation != InductorCompilation::kRegional) {
    problems.Add(
        ErrorCode::kConflictingOptions,
        "compile.fusion_module_fqn belongs to compile.inductor_compilation regional; {} "
        "compiles {}",
        EnumName(compile.inductor_compilation),
        compile.inductor_compilation == InductorCompilation::kNone ? "none" : "all modules");
  }
}

void CheckMoeLoad(const Config& config, Problems& problems) {
  const std::string& text = config.debug.moe_load;
  if (std::string why = MoeLoadProblem(text); !why.empty()) {
    problems.Add(ErrorCode::kBadOptionValue, "debug.moe_load {}: {}", Quoted(text), why);
    return;
  }
  const MoeLoad::Kind kind = ParseMoeLoad(text).kind;
  const bool contradicts = kind == MoeLoad::Kind::kZipf || kind == MoeLoad::Kind::kFile;
  if (config.debug.moe_force_load_balance && contradicts) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "debug.moe_force_load_balance gives every expert equally many tokens, but "
                 "debug.moe_load is {}; leave out one of them",
                 Quoted(text));
  }
}

void CheckValidation(const Config& config, Problems& problems) {
  const ValidationSection& validation = config.validation;
  if (validation.enable && validation.dataset_path.empty() && validation.split == 0) {
    problems.Add(ErrorCode::kMissingArgument,
                 "validation.enable needs data that is not trained on: name it with "
                 "validation.dataset_path, or hold out a share of the training data with "
                 "validation.split, such as 0.05");
  }
  if (validation.split > 0 && !validation.dataset_path.empty()) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "validation.split {} holds out a share of the training data to validate on, but "
                 "validation.dataset_path names other data for that; leave one of them out",
                 validation.split);
  }
  if (!config.checkpoint.keep_best) return;
  if (!Validates(config)) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "checkpoint.keep_best keeps the checkpoint with the lowest validation loss, but "
                 "there is no validation; add validation.split, or validation.enable with "
                 "validation.dataset_path");
  }
  if (!config.checkpoint.enable) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "checkpoint.keep_best belongs to checkpoint.enable, which is off");
  }
}

void CheckTogether(const Config& config, Problems& problems) {
  const CompileSection& compile = config.compile;
  if (!compile.full_recompute_save_ops.empty() && compile.memory_policy != MemoryPolicy::kFull) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.full_recompute_save_ops belongs to compile.memory_policy full, but the "
                 "policy is {}",
                 EnumName(compile.memory_policy));
  }
  bool rewrites = compile.mode != CompileMode::kEager && compile.enable_passes;
  if (compile.memory_policy != MemoryPolicy::kNone && !rewrites) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.memory_policy {} rewrites the captured graph, which {} leaves out",
                 EnumName(compile.memory_policy),
                 compile.enable_passes ? "compile.mode eager" : "compile.enable_passes=false");
  }
  if (const std::string why = RankListProblem(compile.debug_graph_passes_ranks); !why.empty()) {
    problems.Add(ErrorCode::kBadOptionValue, "compile.debug_graph_passes_ranks: {}", why);
  }
  if (const std::string why = DumpFolderProblem(config.dump_folder); !why.empty()) {
    problems.Add(ErrorCode::kBadOptionValue, "dump_folder {}: {}", Quoted(config.dump_folder), why);
  }
  CheckEpOverlap(config, rewrites, problems);
  CheckAutoparallel(config, problems);
  CheckAutoparallelBackend(compile, problems);
  CheckFusion(config, problems);
  CheckPassLists(config, problems);
  CheckMoeLoad(config, problems);
  CheckValidation(config, problems);
  if (compile.enable_fsdp_dense_region_overlap && !compile.fsdp_bucketing) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "compile.enable_fsdp_dense_region_overlap moves the buckets of "
                 "compile.fsdp_bucketing, which is off");
  }
  const CommBackend backend = config.comm.backend;
  if (config.debug.share_gpu && config.device == DeviceChoice::kCpu) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "debug.share_gpu lets ranks share a GPU, but device is cpu, which ranks share "
                 "anyway; leave one of them out");
  }
  if (config.debug.share_gpu && !FactsOf(backend).shares_gpu) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "debug.share_gpu communicates with gloo, but comm.backend is {}{}; leave one of "
                 "them out",
                 EnumName(backend),
                 backend == CommBackend::kNccl ? ", which refuses two ranks on one GPU" : "");
  }
  const TrainingSection& training = config.training;
  // Kernels index tokens with 32 bits. The ranges of the factors keep the product far from
  // overflow.
  const std::int64_t tokens = training.local_batch_size * training.seq_len;
  if (tokens > std::numeric_limits<std::int32_t>::max()) {
    problems.Add(ErrorCode::kConflictingOptions,
                 "training.local_batch_size {} times training.seq_len {} is {} tokens a step, more "
                 "than the {} that fit in 32 bits; lower one of them",
                 training.local_batch_size, training.seq_len, tokens,
                 std::numeric_limits<std::int32_t>::max());
  }
}

}  // namespace

void Validate(const Config& config) {
  Problems problems;
  ForEachOption(config, [&](const Option& option) { option.Check(option.path(), problems); });
  // Rules between options may rely on the ranges.
  if (problems.empty()) CheckTogether(config, problems);
  problems.ThrowIfAny();

  const std::int64_t warmup = config.lr_scheduler.warmup_steps;
  if (warmup > config.training.steps) {
    log::Warn("lr_scheduler.warmup_steps {} is cut to training.steps {}", warmup,
              config.training.steps);
  }
  const bool casts_up = config.training.mixed_precision_param == ComputeDtype::kFloat32 &&
                        config.training.dtype == TrainingDtype::kBfloat16;
  if (casts_up) {
    log::Warn(
        "training.mixed_precision_param float32: parameters are kept in bfloat16 (training.dtype) "
        "and cast up in every step");
  }
}

}  // namespace gt
