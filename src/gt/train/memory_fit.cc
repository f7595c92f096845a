#include "gt/train/memory_fit.h"

#include <string_view>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/machine_memory.h"
#include "gt/compile/memory_advice.h"
#include "gt/compile/memory_capacity.h"
#include "gt/report/memory_report.h"

namespace gt {
namespace {

// Checkpoints that are written in the background need host memory that a small machine with a large
// GPU may not have; it would be taken in the middle of the run. Activations that are moved to the
// host have an error of their own.
void RequireFitOnHost(const World& world, const MemoryCurve& curve) {
  const int64_t copies = curve.state_copies, available = HostMemoryForRank(world);
  if (copies == 0 || curve.elsewhere_peak <= available) return;
  Fail(ErrorCode::kDoesNotFit,
       "checkpoints that are written in the background need {} of host memory in all, {} of it "
       "for copies of the state, and this machine has {}, for each rank; write them with "
       "--checkpoint.async_mode disabled, which takes no copies",
       ByteText(curve.elsewhere_peak), ByteText(copies), ByteText(available));
}

// What the step may take, and who says so.
struct MemoryLimit {
  int64_t bytes = 0;
  std::string_view source;
};

MemoryLimit LimitOf(const Job& job) {
  MemoryLimit limit{MemoryForRank(job.world, job.device),
                    job.device.is_cuda() ? "the GPU has" : "this machine has room for"};
  const double allowed = job.config.training.memory_limit_gb;
  if (allowed > 0 && Gibibytes(allowed) < limit.bytes) {
    limit = {Gibibytes(allowed), "--training.memory_limit_gb allows"};
  }
  return limit;
}

}  // namespace

void RequireFit(Job& job, const Graph& graph, const MemoryCurve& curve) {
  const bool on_gpu = job.device.is_cuda();
  if (on_gpu) RequireFitOnHost(job.world, curve);
  const auto [available, source] = LimitOf(job);
  if (curve.peak <= available) return;
  constexpr size_t kRows = 8;
  const int64_t sharing = on_gpu ? job.world.ranks_on_device() : job.world.ranks_on_machine();
  Fail(ErrorCode::kDoesNotFit, "the step needs {} at its peak, and {} {}{}\n{}{}",
       ByteText(curve.peak), source, ByteText(available), sharing > 1 ? " for each rank" : "",
       AliveTable(graph, curve, kRows),
       MemoryAdvice(job.config, job.world, job.mesh, job.device, available, job.cluster));
}

bool RecordingsFit(const Job& job, const MemoryCurve& curve) {
  const auto [available, source] = LimitOf(job);
  if (curve.recorded_peak <= available) return true;
  log::Warn(
      "CUDA graphs are not used: with them the step needs {}, {} of it for what they share, and {} "
      "{}",
      ByteText(curve.recorded_peak), ByteText(curve.recording_pool), source, ByteText(available));
  return false;
}

}  // namespace gt
