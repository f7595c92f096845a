#include "gt/compile/job_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "gt/base/machine_memory.h"
#include "gt/compile/memory_capacity.h"
#include "gt/job/config.h"
#include "gt/report/overlap_report.h"
#include "gt/sim/node_cost.h"

namespace gt {
namespace {

// What a rank may use, as MemoryCapacity says for steps on GPUs. Ranks on CPUs share this machine.
void SetAvailable(JobSummary& summary, const Config& config, c10::Device device,
                  const Cluster& cluster) {
  summary.available = MemoryCapacity(config, nullptr, device);
  if (config.training.memory_limit_gb > 0) {
    summary.available_source = "--training.memory_limit_gb";
  } else if (device.is_cuda()) {
    summary.available_source = fmt::format("92 % of the {:g} GiB of a GPU", cluster.gpu.memory_gb);
  } else {
    summary.available = UsableMemory(AvailableMemory()) / summary.ranks;
    summary.available_source =
        summary.ranks == 1
            ? "what is free on this machine"
            : fmt::format("what is free on this machine, for {} ranks", summary.ranks);
  }
}

// AdamW reads and writes parameters and its two states and reads gradients.
double UpdateMicroseconds(const MemoryCurve& memory, const DeviceSpeed& device) {
  const auto bytes = [&memory](MemoryCategory category) {
    return static_cast<double>(memory.constant[static_cast<size_t>(category)]);
  };
  const double parameters = bytes(MemoryCategory::kParameter);
  const double traffic = 3 * parameters + 2 * bytes(MemoryCategory::kOptimizer);
  return traffic / (1e3 * device.memory_gb_per_s);
}

}  // namespace

JobSummary SummaryOfJob(const Config& config, const Mesh& mesh, c10::Device device,
                        const LanguageModel* model, const JobCluster& cluster) {
  JobSummary summary;
  summary.ranks = mesh.world_size();
  summary.device = device.is_cuda() ? "GPU" : "rank";
  SetAvailable(summary, config, device, *cluster.cluster);
  if (model == nullptr) return summary;
  const int64_t at_a_time = config.training.local_batch_size * mesh.size(MeshAxis::kBatch);
  summary.batches = std::max<int64_t>(1, config.training.global_batch_size / at_a_time);
  summary.sequences = summary.batches * at_a_time;
  summary.sequence_length = config.training.seq_len;
  summary.flops_per_token = static_cast<double>(model->FlopsPerToken(config.training.seq_len));
  if (device.is_cuda()) summary.peak_flops = 1e12 * SpeedOf(*cluster.cluster).peak_tflops;
  return summary;
}

void AddStep(JobSummary& summary, const Config& config, const MemoryCurve& memory,
             const Timeline& timeline, const JobCluster& cluster) {
  summary.peak = memory.peak;
  const bool records = RecordsSteps(config) && memory.device == DeviceKind::kCuda;
  if (records) summary.recorded_peak = memory.recorded_peak;
  if (!cluster.is_known) return;
  const OverlapSummary overlap = SummarizeOverlap(timeline);
  summary.time = {.step_us = overlap.step,
                  .exposed_us = overlap.exposed,
                  .update_us = UpdateMicroseconds(memory, SpeedOf(*cluster.cluster))};
}

}  // namespace gt
