#include "gt/compile/post_trace_policy.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "gt/base/fqn_pattern.h"
#include "gt/job/config.h"
#include "gt/passes/pipeline/autoparallel_pipeline.h"
#include "gt/passes/pipeline/pipeline.h"

namespace gt {
namespace {

bool Reshards(const Config& config) {
  return config.parallelism.fsdp_reshard_after_forward != ReshardAfterForward::kNever;
}

// The step of a plan was placed without duplicates, and a value is moved once for all its users. What is equal
// in it beyond that may be so on this rank alone, whose shards along two axes are both the first: merged here,
// it would be in another place than on other ranks, and with it whatever passes put beside it.
bool SharesSubexpressions(const Config& config) { return !config.compile.enable_autoparallel; }

// Whether the pattern cuts mixtures of experts by themselves, without the blocks around them.
bool CutsMixtures(const ModuleTable& modules, std::string_view pattern) {
  const std::span<const Name> mixtures = modules.With(ModuleRole::kMoe);
  return std::any_of(mixtures.begin(), mixtures.end(), [&](Name moe) {
    return MatchingPrefix(pattern, moe.str()) == std::string_view(moe.str());
  });
}

FuseOptions FuseOptionsOf(const CompileSection& compile, const ModuleTable& modules) {
  FuseOptions options;
  if (compile.inductor_compilation != InductorCompilation::kRegional) return options;
  options.fusion_module_fqn = compile.fusion_module_fqn;
  if (!options.fusion_module_fqn.empty()) return options;
  for (Name block : modules.With(ModuleRole::kBlock))
    options.fusion_module_fqn.push_back(block.str());
  return options;
}

// Memory policies, resharding, buckets by block, chunks and their schedule.
class NativePolicy : public PostTracePolicy {
 public:
  NativePolicy(const Config& config, bool on_gpu) : config_(config), on_gpu_(on_gpu) {}

  std::string PipelineFor(const Graph& graph, const EpOverlapSection& overlap) const override {
    PipelineOptions options;
    const CompileSection& compile = config_.compile;
    options.memory = {compile.memory_policy, compile.full_recompute_save_ops};
    options.offload = {compile.cpu_offload_budget_gb, compile.cpu_offload_defer_n_layers,
                       compile.cpu_offload_prefetch_n_layers};
    options.share_subexpressions = SharesSubexpressions(config_);
    options.reshard_after_forward = Reshards(config_);
    options.reassign_gathers = compile.enable_fsdp_ag_rs_overlap;
    if (compile.fsdp_bucketing) options.bucket_prefetch = compile.fsdp_prefetch;
    options.dense_regions = compile.enable_fsdp_dense_region_overlap;
    if (on_gpu_ && compile.inductor_compilation != InductorCompilation::kNone) {
      options.fuse = FuseOptionsOf(compile, graph.modules());
    }
    if (overlap.enabled != AutoSwitch::kFalse) AddChunks(graph, overlap, options);
    return DefaultPipelineText(options);
  }

 private:
  static void AddChunks(const Graph& graph, const EpOverlapSection& overlap,
                        PipelineOptions& options) {
    if (overlap.strategy == ChunkStrategy::kGraph) {
      options.chunk = {.module_fqn = overlap.module_fqn,
                       .chunk_dim = overlap.chunk_dim,
                       .num_chunks = overlap.num_chunks,
                       .disable_early_grad_accumulation = overlap.disable_early_grad_accumulation,
                       .keep_chunks_across_roots = overlap.keep_chunks_across_roots};
      options.concretize = true;
    }
    options.isolate_ep_group = overlap.isolate_process_group;
    options.overlap = {.schedule = overlap.schedule,
                       .memory_headroom = overlap.memory_headroom,
                       .pair_first = CutsMixtures(graph.modules(), overlap.module_fqn)};
  }

  const Config& config_;
  const bool on_gpu_;
};

// Staged recomputation, buckets by size, prefetch by distance; the whole graph is one region of
// generated kernels, where there are any.
class AutoparallelPolicy : public PostTracePolicy {
 public:
  AutoparallelPolicy(const Config& config, bool on_gpu) : config_(config), on_gpu_(on_gpu) {}

  std::string PipelineFor(const Graph& /*graph*/,
                          const EpOverlapSection& /*overlap*/) const override {
    const CompileSection& compile = config_.compile;
    AutoparallelPipelineOptions options;
    options.share_subexpressions = SharesSubexpressions(config_);
    options.reshard_after_forward = Reshards(config_);
    options.recompute = {.ac_stage_size_gb = compile.ac_stage_size_gb};
    options.reassign_gathers = compile.enable_fsdp_ag_rs_overlap;
    if (compile.fsdp_bucketing) {
      options.buckets = {.bucket_cap_mb = compile.bucket_cap_mb,
                         .max_topo_span = compile.max_topo_span};
    }
    options.prefetch = {.max_compute_pre_fetch = compile.max_compute_pre_fetch,
                        .max_in_flight_gb = compile.max_in_flight_gb};
    options.fuse = on_gpu_;
    return AutoparallelPipelineText(options);
  }

 private:
  const Config& config_;
  const bool on_gpu_;
};

}  // namespace

std::unique_ptr<PostTracePolicy> MakePostTracePolicy(const Config& config, bool on_gpu) {
  if (config.compile.inductor_compilation == InductorCompilation::kAutoparallelBackend) {
    return std::make_unique<AutoparallelPolicy>(config, on_gpu);
  }
  return std::make_unique<NativePolicy>(config, on_gpu);
}

}  // namespace gt
