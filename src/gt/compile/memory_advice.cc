#include "gt/compile/memory_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/job/config.h"
#include "gt/sim/memory_curve.h"

namespace gt {
namespace {

struct Alternative {
  std::string flags;
  Config config;
};

// From the one that costs the least time to the one that costs the most.
std::vector<Alternative> Alternatives(const Config& config, c10::Device device) {
  std::vector<Alternative> found;
  if (CopiesForCheckpoints(config) && device.is_cpu()) {
    Alternative& alternative = found.emplace_back();
    alternative.config = config;
    alternative.config.checkpoint.async_mode = CheckpointAsync::kDisabled;
    alternative.flags = "--checkpoint.async_mode disabled";
  }
  const bool recomputes =
      config.compile.inductor_compilation == InductorCompilation::kAutoparallelBackend;
  auto add = [&](const Config& changed, MemoryPolicy policy, std::string before) {
    Alternative& alternative = found.emplace_back();
    alternative.config = changed;
    alternative.config.compile.memory_policy = policy;
    if (recomputes) {  // in its own way, which leaves no choice of a policy
      alternative.config.compile.inductor_compilation = InductorCompilation::kNone;
      before += "--compile.inductor_compilation none ";
    }
    alternative.flags = fmt::format("{}--compile.memory_policy {}", before, EnumName(policy));
    if (policy != MemoryPolicy::kFull) alternative.config.compile.full_recompute_save_ops.clear();
  };
  for (MemoryPolicy policy :
       {MemoryPolicy::kDefault, MemoryPolicy::kSacAndOffload, MemoryPolicy::kFull}) {
    if (recomputes || policy != config.compile.memory_policy) add(config, policy, "");
  }
  if (config.training.local_batch_size > 1) {
    Config smaller = config;
    int64_t rows = smaller.training.local_batch_size /= 2;
    std::string flags = fmt::format("--training.local_batch_size {} ", rows);
    // There cannot be more chunks than rows.
    EpOverlapSection& overlap = smaller.compile.ep_overlap;
    if (overlap.enabled != AutoSwitch::kFalse && overlap.chunk_dim == ChunkDim::kBatch &&
        overlap.num_chunks > rows) {
      if (rows <= 1) overlap.enabled = AutoSwitch::kFalse;
      overlap.num_chunks = std::max<int64_t>(rows, 2);
      flags += rows > 1 ? fmt::format("--compile.ep_overlap.num_chunks {} ", rows)
                        : "--compile.ep_overlap.enabled=false ";
    }
    add(smaller, MemoryPolicy::kFull, flags);
  }
  return found;
}

int64_t PeakOf(Config config, World& world, const Mesh& mesh, c10::Device device,
               const JobCluster& cluster) {
  config.compile.costs = CostSource::kEstimated;  // there may be no memory to measure in
  config.training.check_memory = false;           // what is too much is told as well
  constexpr double kSeconds = 5;                  // for each placement
  config.compile.autoparallel_time_limit =
      std::min(config.compile.autoparallel_time_limit, kSeconds);
  ModelPtr model = BuildConfiguredModel(config, world, mesh);
  // Only looked at, so without the world's groups: this rank may be the only one that asks.
  const CompiledStep step = Compile(
      {.model = *model, .config = config, .device = device, .mesh = mesh, .cluster = cluster});
  return MeasureMemory(*step.graph, StepMemory(config, mesh, MeshOf(step.placed.get()))).peak;
}

}  // namespace

std::string MemoryAdvice(const Config& config, World& world, const Mesh& mesh, c10::Device device,
                         int64_t available, const JobCluster& cluster) {
  std::string text = "what other options would need\n";
  for (const Alternative& alternative : Alternatives(config, device)) {
    try {
      const int64_t peak = PeakOf(alternative.config, world, mesh, device, cluster);
      text += fmt::format("  {:>11}  {:<12}  {}\n", ByteText(peak),
                          peak <= available ? "would fit" : "is too much", alternative.flags);
    } catch (const Error& error) {  // a stored plan may be none for another batch
      log::Debug("{}: {}", alternative.flags, error.what());
    }
  }
  return text +
         "  more ranks share parameters, gradients and optimizer state: "
         "--parallelism.data_parallel_shard_degree\n";
}

std::string WhatMemoryCosts(const PipelineReport& passes) {
  for (const PassRun& run : passes.runs) {
    int64_t missing = 0, unlimited = 0, now = 0;
    for (const auto& [name, value] : run.counters) {
      if (name == "bytes_missing") missing = value;
      if (name == "microseconds_unlimited") unlimited = value;
      if (name == "microseconds_after") now = value;
    }
    constexpr double kNoticeable = 0.99;
    if (missing <= 0 || static_cast<double>(unlimited) > kNoticeable * static_cast<double>(now)) {
      continue;
    }
    return fmt::format(
        "memory holds the step back: with {} more it is predicted to take {:.1f} ms instead of "
        "{:.1f} "
        "(--compile.memory_policy, --training.memory_limit_gb and "
        "--compile.ep_overlap.memory_headroom "
        "change what there is)",
        ByteText(missing), static_cast<double>(unlimited) / 1e3, static_cast<double>(now) / 1e3);
  }
  return "";
}

}  // namespace gt
