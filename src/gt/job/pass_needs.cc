#include "gt/job/pass_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "gt/base/error.h"
#include "gt/job/config.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/pipeline/pipeline.h"

namespace gt {
namespace {

using Names = std::set<std::string, std::less<>>;

bool UsesBackendPolicy(const CompileSection& compile) {
  return compile.inductor_compilation == InductorCompilation::kAutoparallelBackend;
}

// Placed steps apply their memory policy before placement (compile/placed_step.h), except for offloading.
bool PolicyIsInThePipeline(const CompileSection& compile) {
  if (compile.memory_policy == MemoryPolicy::kNone || UsesBackendPolicy(compile)) return false;
  return !compile.enable_autoparallel || compile.memory_policy == MemoryPolicy::kSacAndOffload;
}

class Needs {
 public:
  explicit Needs(const Config& config) : config_(config), compile_(config.compile) {}

  std::vector<PassNeed> All() {
    if (UsesBackendPolicy(compile_)) {
      AddBackendPolicy();
    } else {
      AddOverlap();
      AddNativePolicy();
    }
    return std::move(needs_);
  }

 private:
  // The option with this value needs `passes`; the value `off` turns it off.
  void Add(std::initializer_list<std::string_view> passes, std::string_view option,
           std::string_view value, std::string_view off, bool was_set = true) {
    for (std::string_view pass : passes) {
      needs_.push_back({pass, fmt::format("{} {}", option, value),
                        fmt::format("--{}={}", option, off), was_set});
    }
  }

  void AddOverlap() {
    const EpOverlapSection& overlap = compile_.ep_overlap;
    const EpOverlapSection defaults;
    if (overlap.enabled == AutoSwitch::kFalse) return;
    const bool cuts = overlap.strategy == ChunkStrategy::kGraph;
    const bool by_cost = overlap.schedule == OverlapSchedule::kCost;
    const std::string_view enabled = EnumName(overlap.enabled);
    if (cuts) {
      Add({"chunk"}, "compile.ep_overlap.enabled", enabled, "false");
      Add({"concretize"}, "compile.ep_overlap.enabled", enabled, "false", /*was_set=*/false);
    }
    if (overlap.isolate_process_group) {
      Add({"isolate_ep_process_group"}, "compile.ep_overlap.isolate_process_group", "true", "false",
          /*was_set=*/false);
    }
    if (overlap.schedule != OverlapSchedule::kNone) {
      const bool was_set = overlap.schedule != defaults.schedule ||
                           overlap.memory_headroom != defaults.memory_headroom ||
                           overlap.replan_interval != defaults.replan_interval;
      Add({"ep_overlap_schedule"}, "compile.ep_overlap.schedule", EnumName(overlap.schedule),
          "none", was_set);
    }
    if (cuts && by_cost && overlap.memory_headroom >= 0) {
      Add({"measure_peak"}, "compile.ep_overlap.memory_headroom",
          fmt::format("{}", overlap.memory_headroom), "-1");
    }
  }

  void AddNativePolicy() {
    const CompileSection defaults;
    if (PolicyIsInThePipeline(compile_)) {
      const std::string_view policy = EnumName(compile_.memory_policy);
      Add({"memory_policy", "rematerialize"}, "compile.memory_policy", policy, "none");
      if (compile_.memory_policy == MemoryPolicy::kSacAndOffload) {
        Add({"cpu_offload"}, "compile.memory_policy", policy, "none");
      }
    }
    if (config_.parallelism.fsdp_reshard_after_forward == ReshardAfterForward::kAlways) {
      Add({"reshard_after_forward"}, "parallelism.fsdp_reshard_after_forward", "always", "never");
    }
    if (compile_.enable_fsdp_dense_region_overlap) {
      Add({"bucket_fsdp", "fsdp_dense_regions"}, "compile.enable_fsdp_dense_region_overlap", "true",
          "false");
    }
    if (compile_.fsdp_bucketing && compile_.fsdp_prefetch != defaults.fsdp_prefetch) {
      Add({"bucket_fsdp"}, "compile.fsdp_prefetch", fmt::format("{}", compile_.fsdp_prefetch),
          fmt::format("{}", defaults.fsdp_prefetch));
    }
    // Kernels are generated for GPUs only.
    const bool regional = compile_.inductor_compilation == InductorCompilation::kRegional;
    if (regional && config_.device != DeviceChoice::kCpu) {
      Add({"fuse"}, "compile.inductor_compilation", "regional", "none");
    }
  }

  // Single passes of the policy may be disabled, unless one of their options was set.
  void AddBackendPolicy() {
    const CompileSection defaults;
    const std::string_view option = "compile.inductor_compilation";
    const auto add_policy = [&](std::initializer_list<std::string_view> passes) {
      Add(passes, option, "autoparallel_backend", "full", /*was_set=*/false);
    };
    add_policy({"tag_parameter_gathers", "staged_recompute", "rematerialize"});
    if (compile_.fsdp_bucketing) add_policy({"bucket_by_size"});
    add_policy({"prefetch_collectives"});
    const auto add_set = [&](std::initializer_list<std::string_view> passes, std::string_view name,
                             const auto& value, const auto& normal) {
      if (value == normal) return;
      Add(passes, name, fmt::format("{}", value), fmt::format("{}", normal));
    };
    add_set({"staged_recompute", "rematerialize"}, "compile.ac_stage_size_gb",
            compile_.ac_stage_size_gb, defaults.ac_stage_size_gb);
    if (compile_.fsdp_bucketing) {
      add_set({"bucket_by_size"}, "compile.bucket_cap_mb", compile_.bucket_cap_mb,
              defaults.bucket_cap_mb);
      add_set({"bucket_by_size"}, "compile.max_topo_span", compile_.max_topo_span,
              defaults.max_topo_span);
    }
    add_set({"prefetch_collectives"}, "compile.max_compute_pre_fetch",
            compile_.max_compute_pre_fetch, defaults.max_compute_pre_fetch);
    add_set({"prefetch_collectives"}, "compile.max_in_flight_gb", compile_.max_in_flight_gb,
            defaults.max_in_flight_gb);
    if (config_.parallelism.fsdp_reshard_after_forward == ReshardAfterForward::kAlways) {
      Add({"tag_parameter_gathers", "rematerialize"}, "parallelism.fsdp_reshard_after_forward",
          "always", "never");
    }
  }

  const Config& config_;
  const CompileSection& compile_;
  std::vector<PassNeed> needs_;
};

// One line per option: its missing passes and the flag that turns it off.
std::string Lines(const std::vector<PassNeed>& missing) {
  std::string text;
  for (std::size_t i = 0; i < missing.size();) {
    std::vector<std::string> passes;
    const PassNeed& first = missing[i];
    for (; i < missing.size() && missing[i].option == first.option; ++i) {
      passes.emplace_back(missing[i].pass);
    }
    text += fmt::format("\n    {}: needed by {}, which {} turns off", Join(passes, ", "),
                        first.option, first.cure);
  }
  return text;
}

void CheckReplacingList(const std::string& list, const Names& runs, const Names& disabled,
                        const std::vector<PassNeed>& needs, Problems& problems) {
  std::vector<PassNeed> missing;
  std::copy_if(needs.begin(), needs.end(), std::back_inserter(missing), [&](const PassNeed& need) {
    return !runs.contains(need.pass) && !disabled.contains(need.pass);
  });
  if (missing.empty()) return;
  problems.Add(ErrorCode::kConflictingOptions,
               "compile.passes {} replaces the passes of the job, but lacks passes that other "
               "options need:{}\n  add them to the list, or use --compile.passes={} to add to the "
               "passes of the job",
               list, Lines(missing), ShellWord("+" + list));
}

void CheckDisabled(const Names& disabled, const std::vector<PassNeed>& needs, Problems& problems) {
  std::vector<PassNeed> missing;
  std::copy_if(needs.begin(), needs.end(), std::back_inserter(missing),
               [&](const PassNeed& need) { return need.was_set && disabled.contains(need.pass); });
  if (missing.empty()) return;
  problems.Add(ErrorCode::kConflictingOptions,
               "compile.disable_passes disables passes that other options need; remove them from "
               "the list, or turn the options off:{}",
               Lines(missing));
}

// Runs `read`, which throws for unknown names, and reports that as a problem of the option.
template <typename Read>
bool ReadNames(std::string_view option, Problems& problems, const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    problems.Add(error.code(), "{}: {}", option, error.message());
    return false;
  }
}

}  // namespace

std::vector<PassNeed> PassNeedsOf(const Config& config) { return Needs(config).All(); }

void CheckPassLists(const Config& config, Problems& problems) {
  const CompileSection& compile = config.compile;
  Names runs, disabled;
  const bool readable = ReadNames("compile.passes", problems, [&] {
    for (const auto& pass : ChangedPipeline({}, compile.passes)) runs.insert(pass->name());
  });
  const bool all_known = ReadNames("compile.disable_passes", problems, [&] {
    for (const std::string& name : compile.disable_passes) disabled.insert(ResolvePassName(name));
  });
  if (!readable || !all_known) return;
  const bool rewrites = compile.mode != CompileMode::kEager && compile.enable_passes;
  if (!rewrites) {
    if (compile.passes.empty()) return;
    problems.Add(
        ErrorCode::kConflictingOptions,
        "compile.passes {} has no effect with {}, which runs no passes; remove one of them",
        compile.passes,
        compile.enable_passes ? "compile.mode eager" : "compile.enable_passes=false");
    return;
  }
  const std::vector<PassNeed> needs = PassNeedsOf(config);
  const bool replaces = !compile.passes.empty() && !compile.passes.starts_with('+');
  if (replaces) CheckReplacingList(compile.passes, runs, disabled, needs, problems);
  CheckDisabled(disabled, needs, problems);
}

}  // namespace gt
