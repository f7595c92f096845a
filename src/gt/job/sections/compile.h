// [compile]: how the train step runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/auto_switch.h"
#include "gt/config/option_struct.h"
#include "gt/fusion/fuse_options.h"
#include "gt/passes/autoparallel/bucket_by_size_options.h"
#include "gt/passes/autoparallel/prefetch_collectives_options.h"
#include "gt/passes/autoparallel/staged_recompute_options.h"
#include "gt/passes/chunk/chunk_options.h"
#include "gt/passes/fsdp/bucket_fsdp_options.h"
#include "gt/passes/memory/cpu_offload_options.h"
#include "gt/passes/memory/memory_policy_options.h"
#include "gt/passes/overlap/ep_overlap_options.h"
#include "gt/sim/cost_source.h"

namespace gt {

enum class CompileMode { kEager, kAotFxTrace };
enum class ExecutorKind { kFast, kReference };
// What generated kernels are made of, and with the last, whose policy decides between capture and
// kernels (compile/post_trace_policy.h).
enum class InductorCompilation { kNone, kRegional, kFull, kAutoparallelBackend };

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<CompileMode> = {"eager",
                                                                            "aot_fx_trace"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<ExecutorKind> = {"fast", "reference"};
template <>
inline constexpr std::array<std::string_view, 4> kEnumNames<InductorCompilation> = {
    "none", "regional", "full", "autoparallel_backend"};

struct EpOverlapSection {
  GT_OPTION(AutoSwitch, enabled, AutoSwitch::kFalse, Any(),
            "cut the modules that module_fqn names; auto chooses modules, dimension, number of "
            "chunks and schedule, or no chunks, by predicted time");
  GT_OPTION_OF(
      ChunkOptions, chunk_dim,
      "what is cut: batch, the sequences; seq, each sequence, for modules without attention");
  GT_OPTION(ChunkStrategy, strategy, ChunkStrategy::kGraph, Any(),
            "graph rewrites the captured step; eager runs the modules chunk by chunk, captured or "
            "not, and is the numerical reference");
  GT_OPTION_OF(
      ChunkOptions, module_fqn,
      "modules to cut, by pattern: components separated by dots, * for any one, ** for any "
      "number; those without experts are left alone");
  GT_OPTION_OF(ChunkOptions, num_chunks, "into how many; their sizes differ by one at the most");
  GT_OPTION_OF(
      ChunkOptions, disable_early_grad_accumulation,
      "with strategy graph: send each chunk's gradients through their own cast and collective and "
      "add the results, bit for bit as strategy eager does, instead of adding first");
  GT_OPTION_OF(ChunkOptions, keep_chunks_across_roots,
               "with strategy graph: hand chunks on from module to module where nothing needs the "
               "whole value; changes no bit");
  GT_OPTION_OF(EpOverlapOptions, schedule,
               "order of the chunks' operations: cost fills the time of exchanges with compute of "
               "other chunks as long as it is known to take; structural fills by rule alone; none "
               "leaves chunk after chunk");
  GT_OPTION_OF(EpOverlapOptions, memory_headroom,
               "with schedule cost: share by which the peak of the step's memory may grow for the "
               "sake of overlap; negative: as far as the step fits the device "
               "(training.memory_limit_gb, else 92 % of what it has)");
  GT_OPTION(bool, isolate_process_group, true, Any(),
            "give exchanges of tokens a process group of their own, of high priority, where they "
            "share one with other collectives");
  GT_OPTION(int64_t, replan_interval, 16, Within(0, 1e12),
            "with schedule cost: ranks compare the rows that arrive at their experts after steps 2 "
            "and 4 and then every so many steps, and order the step anew when they are no longer "
            "those it was planned for; 0: never");
  GT_END_OPTIONS(EpOverlapSection);
};

struct CompileSection {
  GT_OPTION(CompileMode, mode, CompileMode::kAotFxTrace, Any(),
            "aot_fx_trace captures forward, loss and backward as one graph and replays it; eager "
            "does not");
  GT_OPTION(bool, enable_autoparallel, false, Any(),
            "capture the step of one device, find how every value is laid out on the mesh of the "
            "ranks, and train that; parallelism.* then only says how long axes are");
  GT_OPTION(std::string, autoparallel_plan, "", Any(),
            "with enable_autoparallel: train this plan, which gt place has written, instead of "
            "searching one");
  GT_OPTION(
      bool, autoparallel_split_batch, true, Any(),
      "with enable_autoparallel: cut the batch along the data-parallel axes that parallelism.* "
      "names, of another mesh along its first axis; false: it may stay whole on every rank");
  GT_OPTION(double, autoparallel_time_limit, 30, AtLeast(0.1),
            "with enable_autoparallel: seconds after which the search ends with the best it has");
  GT_OPTION(bool, enable_passes, true, Any(), "rewrite the captured graph before running it");
  GT_OPTION(
      StringList, disable_passes, {}, Any(),
      "passes to disable, by gt's or torchtitan's name; an error if another option that was set "
      "needs one of them");
  GT_OPTION(
      std::string, passes, "", Any(),
      "passes as name,name{option=value}, or a list in a file. After a leading + they run after "
      "the job's own passes and before the schedule; otherwise they replace the job's own "
      "(GT_LOG=debug prints them), and must contain the passes that other options need");
  GT_OPTION(StringList, debug_graph_passes_ranks, {"0"}, Any(),
            "with debug_graph_passes: ranks that dump their graphs, such as 0,3, or all; each has "
            "a folder of "
            "its own");
  GT_OPTION(
      bool, debug_graph_passes, false, Any(),
      "for every pass: dump the graph before and after, and log time and changed operator counts");
  // Not the default of the pass: a job that keeps everything does without it.
  GT_OPTION(
      MemoryPolicy, memory_policy, MemoryPolicy::kNone, Any(),
      "what backward recomputes instead of keeping it: none keeps all; default keeps results of "
      "matrix products, attention and exchanges; eager recomputes every second product of a layer "
      "as well; full recomputes everything but full_recompute_save_ops; sac_and_offload is default "
      "with kept values moved to host memory until the backward needs them");
  GT_OPTION_OF(
      MemoryPolicyOptions, full_recompute_save_ops,
      "with memory_policy full: what is kept all the same, as MODULE_PATTERN::OPERATOR, such "
      "as layers.*.attention.**::aten::mm");
  GT_OPTION_OF(
      CpuOffloadOptions, cpu_offload_budget_gb,
      "with memory_policy sac_and_offload: GiB of host memory that each rank may fill with "
      "activations; 0: no limit");
  GT_OPTION_OF(
      CpuOffloadOptions, cpu_offload_defer_n_layers,
      "with sac_and_offload: layers after its own in which a value may still be on its way "
      "to the host; 0 waits as soon as the last forward use is done");
  GT_OPTION_OF(
      CpuOffloadOptions, cpu_offload_prefetch_n_layers,
      "with sac_and_offload: layers of the backward that a value starts back to the device "
      "ahead of its use; 0 fetches it at its use");
  GT_OPTION(bool, cuda_graphs, true, Any(),
            "on a GPU, record the kernels of the captured step once and replay them, which costs "
            "the host next to nothing; what the host has a part in (token counts, offload, "
            "collectives that cannot be recorded) runs between the recordings");
  GT_OPTION(
      InductorCompilation, inductor_compilation, InductorCompilation::kFull, Any(),
      "on a GPU, compute groups of operators of the captured step in one generated kernel each, "
      "bit for bit as the operators do: full, wherever that is possible; regional, inside of "
      "the modules that fusion_module_fqn names; none, nowhere; autoparallel_backend is full, with "
      "the "
      "policy of AutoParallel's backend in place of memory_policy, fsdp_prefetch and ep_overlap");
  GT_OPTION_OF(
      FuseOptions, fusion_module_fqn,
      "with inductor_compilation regional: modules to compile, each by itself, by pattern; "
      "empty: every transformer block");
  GT_OPTION(std::string, kernel_cache, "", Any(),
            "folder of compiled kernels, which runs share; empty: graphtrainer/kernels in "
            "$XDG_CACHE_HOME, or in ~/.cache");
  GT_OPTION(ExecutorKind, executor, ExecutorKind::kFast, Any(),
            "fast runs the lowered graph; reference runs it node by node with every check on");
  GT_OPTION(bool, fsdp_bucketing, true, Any(),
            "gather and reduce the parameters of a transformer block together, dense ones and "
            "experts apart, and start gathers ahead of their use; changes no bit");
  GT_OPTION_OF(BucketFsdpOptions, fsdp_prefetch,
               "with fsdp_bucketing: blocks ahead of its own in which a gather starts; more hides "
               "slower links and takes more memory");
  GT_OPTION(bool, enable_fsdp_ag_rs_overlap, true, Any(),
            "give gathers of parameters a process group of their own, so that they do not queue "
            "behind reductions of gradients");
  GT_OPTION(bool, enable_fsdp_dense_region_overlap, false, Any(),
            "with fsdp_bucketing: place collectives of parameters and gradients where dense layers "
            "compute, away from exchanges of tokens");
  GT_OPTION_OF(StagedRecomputeOptions, ac_stage_size_gb,
               "with autoparallel_backend: GiB that the forward produces between values that are "
               "kept for the backward; 0: the square root of what it produces in all");
  GT_OPTION_OF(BucketBySizeOptions, bucket_cap_mb,
               "with autoparallel_backend and fsdp_bucketing: MiB of parameters or gradients that "
               "are sent together, at the most");
  GT_OPTION_OF(BucketBySizeOptions, max_topo_span,
               "with autoparallel_backend and fsdp_bucketing: nodes from the first to the last "
               "collective that are sent together, at the most; 0: any number");
  GT_OPTION_OF(PrefetchCollectivesOptions, max_compute_pre_fetch,
               "with autoparallel_backend: matrix products and attention by which a gather of "
               "parameters starts ahead of its use, at the most");
  GT_OPTION_OF(PrefetchCollectivesOptions, max_in_flight_gb,
               "with autoparallel_backend: GiB that collectives may have under way at the same "
               "time");
  GT_OPTION(CostSource, costs, CostSource::kEstimated, Any(),
            "how long operators take, for schedules and predictions: estimated from their "
            "arithmetic and bytes, or measured on the device before the first step");
  GT_OPTION(std::string, costs_file, "", Any(),
            "file of measured times: read when it is there, and added to by costs=measured. Empty: "
            "dump_folder/costs.json, for costs=measured alone");
  GT_SECTION(EpOverlapSection, ep_overlap,
             "cutting MoE modules into chunks, whose tokens travel while another computes");
  GT_END_OPTIONS(CompileSection);
};

}  // namespace gt
