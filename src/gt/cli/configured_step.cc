#include "gt/cli/configured_step.h"

#include <ctime>

#include "gt/compile/configured_model.h"
#include "gt/compile/job_summary.h"
#include "gt/compile/memory_advice.h"
#include "gt/job/config.h"
#include "gt/job/dump_folder.h"
#include "gt/placement/device_mesh.h"
#include "gt/torch_bridge/device.h"

namespace gt::cli {

namespace {

// The fewest ranks on which the degrees fit.
int64_t RanksFor(const ParallelismSection& degrees) {
  const int64_t inner = degrees.context_parallel_degree * degrees.tensor_parallel_degree;
  int64_t shards = degrees.data_parallel_shard_degree;
  if (shards < 1) {  // the rest of the ranks: as many as experts need
    shards = 1;
    while (shards * inner % degrees.expert_parallel_degree != 0) ++shards;
  }
  return degrees.pipeline_parallel_degree * degrees.data_parallel_replicate_degree * shards * inner;
}

}  // namespace

void PlanForCluster(Config* config) {
  if (config->ranks == 0) {
    config->ranks = config->mesh == Config().mesh
                        ? RanksFor(config->parallelism)
                        : placement::DeviceMesh::Parse(config->mesh).ranks();
  }
  config->comm.backend = CommBackend::kFake;
  config->dump_folder = FillDumpFolder(*config, std::time(nullptr));
  if (config->device == DeviceChoice::kAuto) config->device = DeviceChoice::kCuda;
}

void ShowStepOfThisMachine(Config* config) {
  config->comm.backend = CommBackend::kFake;
  config->dump_folder = FillDumpFolder(*config, std::time(nullptr));
  if (config->device != DeviceChoice::kAuto) return;
  config->device =
      ChooseDevice(DeviceChoice::kAuto).is_cuda() ? DeviceChoice::kCuda : DeviceChoice::kCpu;
}

c10::Device DeviceOf(const Config& config) {
  return config.device == DeviceChoice::kCuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

ConfiguredStep CompileConfigured(const Config& config, World& world, const JobCluster& cluster) {
  ConfiguredStep made{.mesh = Mesh(config.parallelism, world.size(), world.rank())};
  made.model = BuildConfiguredModel(config, world, made.mesh);
  made.step = Compile({.model = *made.model,
                       .config = config,
                       .device = DeviceOf(config),
                       .mesh = made.mesh,
                       .world = &world,
                       .cluster = cluster});
  return made;
}

JobSummary Summarize(const Config& config, World& world, const ConfiguredStep& planned,
                     const MemoryCurve& memory, const Timeline& timeline, const JobCluster& cluster,
                     int64_t tokens) {
  const c10::Device device = DeviceOf(config);
  JobSummary summary = SummaryOfJob(config, planned.mesh, device, planned.model.get(), cluster);
  AddStep(summary, config, memory, timeline, cluster);
  summary.tokens = tokens;
  if (!summary.fits() && planned.model != nullptr) {
    summary.cure = MemoryAdvice(config, world, planned.mesh, device, summary.available, cluster);
  }
  return summary;
}

}  // namespace gt::cli
