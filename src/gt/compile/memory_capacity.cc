#include "gt/compile/memory_capacity.h"

#include <algorithm>
#include <map>
#include <string>

#include "gt/base/machine_memory.h"
#include "gt/compile/configured_model.h"
#include "gt/job/config.h"
#include "gt/passes/placement/shard_geometry.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/link_model.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

// Fragmentation, and what libraries allocate without telling anybody.
constexpr double kUsableShare = 0.92;

std::map<std::string, int64_t> GroupSizes(const Mesh& mesh) {
  std::map<std::string, int64_t> sizes;
  for (size_t i = 0; i < kMeshAxes; ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    sizes.emplace(AxisName(axis), mesh.size(axis));
  }
  return sizes;
}

// Adds the groups along these axes and any further ones, in every order.
void AddGroupsOf(const placement::DeviceMesh& mesh, const AxisList& axes, int64_t gpus_per_node,
                 MemoryOptions& options) {
  for (int8_t axis = 0; axis < mesh.axes(); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    AxisList more = axes;
    more.push_back(axis);
    placement::AxisMask mask = 0;
    for (int8_t one : more) mask = static_cast<placement::AxisMask>(mask | 1 << one);
    const GroupSpan span = mesh.Span(mask, gpus_per_node);
    const std::string name = MeshGroupName(more);
    options.communicators.peers_on_node[name] =
        span.ranks_per_node - 1 + (span.extra_ranks > 0 ? 1 : 0);
    if (options.gloo) options.gloo->group_sizes[name] = span.ranks();
    AddGroupsOf(mesh, more, gpus_per_node, options);
  }
}

}  // namespace

MemoryOptions StepMemory(const Config& config, const Mesh& mesh,
                         const std::vector<int64_t>& placed_on) {
  MemoryOptions options;
  // AdamW keeps two numbers for each element, in the parameters' own dtype.
  options.optimizer_bytes_per_element =
      2 * static_cast<int64_t>(c10::elementSize(ToTorch(config.training.dtype)));
  // cuBLAS, for the one stream that computes.
  options.cuda_workspace_bytes = int64_t{32} << 20;
  const CommBackendFacts backend = FactsOf(config.comm.backend);
  if (backend.gpu_communicators && !config.debug.share_gpu) {
    options.communicators = NcclMemory();
  }
  // What is only looked at runs on gloo later, if it runs on a CPU.
  if (backend.host_buffers) {
    options.gloo = GlooMemory{.group_sizes = GroupSizes(mesh)};
  }
  if (!placed_on.empty()) {
    AddGroupsOf(placement::DeviceMesh(placed_on), {},
                ReadCluster(ClusterPath(config.comm.cluster)).gpus_per_node, options);
  }
  // Replicas write what the first of them holds.
  options.copies_state =
      CopiesForCheckpoints(config) && mesh.coordinate(MeshAxis::kDpReplicate) == 0;
  if (RecordsSteps(config)) {
    options.recordings =
        SpanOptions{.records_collectives = backend.recordable && !config.debug.share_gpu};
  }
  options.accumulates_gradients = config.training.global_batch_size >
                                  config.training.local_batch_size * mesh.size(MeshAxis::kBatch);
  return options;
}

bool RecordsSteps(const Config& config) {
  return config.compile.cuda_graphs && config.compile.executor == ExecutorKind::kFast;
}

bool CopiesForCheckpoints(const Config& config) {
  // The last step's checkpoint is written from the tensors: nothing changes them any more.
  const bool saves_earlier =
      config.checkpoint.interval < config.training.steps || config.checkpoint.keep_best;
  return config.checkpoint.enable && saves_earlier &&
         config.checkpoint.async_mode == CheckpointAsync::kAsync;
}

int64_t MemoryForRank(const World& world, c10::Device device) {
  if (!device.is_cuda()) return HostMemoryForRank(world);
  return AvailableMemoryOf(device) / world.ranks_on_device();
}

int64_t HostMemoryForRank(const World& world) {
  return UsableMemory(AvailableMemory()) / world.ranks_on_machine();
}

int64_t MemoryCapacity(const Config& config, const World* world, c10::Device device) {
  if (config.training.memory_limit_gb > 0) return Gibibytes(config.training.memory_limit_gb);
  const bool looked_at = world == nullptr || FactsOf(world->backend()).sends_nothing;
  double bytes = 0;
  if (device.is_cuda() && !looked_at) {
    bytes = static_cast<double>(TotalMemoryOf(device));
  } else if (device.is_cuda()) {
    const Cluster cluster = ReadCluster(ClusterPath(config.comm.cluster));
    bytes = static_cast<double>(Gibibytes(cluster.gpu.memory_gb));
  } else if (!looked_at) {
    return MemoryForRank(*world, device);
  }
  return static_cast<int64_t>(kUsableShare * bytes);
}

}  // namespace gt
