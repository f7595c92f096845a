#include "gt/compile/memory_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "gt/base/byte_text.h"
#include "gt/base/machine_memory.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

// Gloo holds host memory alone, and emulated groups have no communicator.
bool UsesNccl(const Config& config) {
  const CommBackend backend = config.comm.backend;
  return backend != CommBackend::kGloo && backend != CommBackend::kEmulated &&
         !config.debug.share_gpu;
}

bool CopiesForCheckpoints(const Config& config) {
  return config.checkpoint.enable && config.checkpoint.async_mode == CheckpointAsync::kAsync;
}

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
  auto add = [&](const Config& changed, MemoryPolicy policy, const std::string& before) {
    Alternative& alternative = found.emplace_back();
    alternative.config = changed;
    alternative.config.compile.memory_policy = policy;
    alternative.flags = fmt::format("{}--compile.memory_policy {}", before, EnumName(policy));
    if (policy != MemoryPolicy::kFull) alternative.config.compile.full_recompute_save_ops.clear();
  };
  for (MemoryPolicy policy :
       {MemoryPolicy::kDefault, MemoryPolicy::kSacAndOffload, MemoryPolicy::kFull}) {
    if (policy != config.compile.memory_policy) add(config, policy, "");
  }
  if (config.training.local_batch_size > 1) {
    Config smaller = config;
    int64_t rows = smaller.training.local_batch_size /= 2;
    std::string flags = fmt::format("--training.local_batch_size {} ", rows);
    // There cannot be more chunks than rows.
    Config::Compile::EpOverlap& overlap = smaller.compile.ep_overlap;
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

int64_t PeakOf(Config config, World& world, const Mesh& mesh, c10::Device device) {
  config.compile.costs = CostSource::kEstimated;  // there may be no memory to measure in
  ModelPtr model = BuildConfiguredModel(config, world, mesh);
  // Only looked at, so without the world's groups: this rank may be the only one that asks.
  Captured captured = CaptureStep(*model, config, device, /*symbolic_batch=*/false, nullptr, mesh);
  return MeasureMemory(*captured.graph, StepMemory(config, mesh)).peak;
}

std::map<std::string, int64_t> GroupSizes(const Mesh& mesh) {
  std::map<std::string, int64_t> sizes;
  for (size_t i = 0; i < kMeshAxes; ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    sizes.emplace(AxisName(axis), mesh.size(axis));
  }
  return sizes;
}

}  // namespace

MemoryOptions StepMemory(const Config& config, const Mesh& mesh) {
  MemoryOptions options;
  // AdamW keeps two numbers for each element, in the parameters' own dtype.
  options.optimizer_bytes_per_element =
      2 * static_cast<int64_t>(c10::elementSize(ToTorch(config.training.dtype)));
  // cuBLAS, for the one stream that computes.
  options.cuda_workspace_bytes = int64_t{32} << 20;
  if (UsesNccl(config)) options.communicators = NcclMemory();
  // What is only looked at runs on gloo later, if it runs on a CPU.
  if (config.comm.backend != CommBackend::kEmulated) {
    options.gloo = GlooMemory{.group_sizes = GroupSizes(mesh)};
  }
  // Replicas write what the first of them holds.
  options.copies_state =
      CopiesForCheckpoints(config) && mesh.coordinate(MeshAxis::kDpReplicate) == 0;
  options.accumulates_gradients = config.training.global_batch_size >
                                  config.training.local_batch_size * mesh.size(MeshAxis::kBatch);
  return options;
}

int64_t MemoryForRank(const World& world, c10::Device device) {
  if (!device.is_cuda()) return HostMemoryForRank(world);
  return AvailableMemoryOf(device) / world.ranks_on_device();
}

int64_t HostMemoryForRank(const World& world) {
  return UsableMemory(AvailableMemory()) / world.ranks_on_machine();
}

std::string MemoryAdvice(const Config& config, World& world, const Mesh& mesh, c10::Device device,
                         int64_t available) {
  std::string text = "what other options would need\n";
  for (const Alternative& alternative : Alternatives(config, device)) {
    int64_t peak = PeakOf(alternative.config, world, mesh, device);
    text += fmt::format("  {:>11}  {:<12}  {}\n", ByteText(peak),
                        peak <= available ? "would fit" : "is too much", alternative.flags);
  }
  return text +
         "  more ranks share parameters, gradients and optimizer state: "
         "--parallelism.data_parallel_shard_degree\n";
}

}  // namespace gt
