#include "gt/train/finish.h"

#include <fmt/format.h>

#include <string>

#include "gt/base/byte_text.h"
#include "gt/base/text.h"
#include "gt/compile/configured_model.h"
#include "gt/job/config.h"
#include "gt/launch/child_process.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/report/progress_bar.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/metrics.h"
#include "gt/train/say.h"
#include "gt/train/state_hash.h"
#include "gt/train/tokenizer_export.h"

namespace gt {
namespace {

void ExportWeights(Job& job) {
  const std::string folder = job.config.dump_folder + "/hf";
  const std::string& hf_path = job.config.model.hf_path;
  if (job.folder) job.folder->WillWrite("hf");
  SaveHfFolder(*job.model, folder, ToTorch(job.config.checkpoint.export_dtype), hf_path,
               &job.world);
  if (job.world.first()) ExportTokenizer(*job.codec, hf_path, folder);
  Say(job.world, "weights in {} (gt generate --model {})", folder, ShellWord(folder));
}

void SayDone(const Job& job, int64_t steps, const Loop& loop, const TrainSummary& summary) {
  auto tokens = static_cast<double>(job.SequencesPerStep() * job.config.training.seq_len * steps);
  std::string predicted = summary.predicted_memory == 0
                              ? ""
                              : fmt::format(" (predicted {})", ByteText(summary.predicted_memory));
  Say(job.world, "done: {} in {}, loss {:.4f} -> {:.4f}, {} tok/s, peak memory {}{}",
      Counted(steps, "step"), DurationText(loop.seconds()), summary.first_loss, summary.last_loss,
      FormatCount(tokens / loop.training_seconds()), ByteText(summary.peak_memory), predicted);
}

}  // namespace

void Finish(Job& job, TrainingState& state, const RunningStep& running, const RunReports& reports,
            const Loop& loop, TrainSummary& summary) {
  const Config& config = job.config;
  const int64_t steps_done = state.progress.step - loop.first_step();
  summary.state_hash = StateHash(*job.model, job.world);
  summary.metrics_path = reports.metrics_path();
  summary.peak_memory = MemoryOf(job.device).peak;
  summary.predicted_memory = running.predicted_peak();
  const bool worked = steps_done > 0, whole = !job.world.pretended();
  const bool complete = state.progress.step >= config.training.steps;
  const bool saves = config.checkpoint.enable || summary.signal != 0;
  std::string continued_by;
  if (worked && saves && whole) continued_by = SaveLastCheckpoint(job, state);
  if (complete && whole && config.checkpoint.last_save_in_hf) ExportWeights(job);
  if (summary.signal != 0) {
    Say(job.world,
        "stopped by {} after step {}; the same command with --checkpoint.enable{} continues",
        SignalName(summary.signal), state.progress.step, continued_by);
  } else if (worked) {
    SayDone(job, steps_done, loop, summary);
  }
  Say(job.world, "state hash {:016x}; metrics in {}", summary.state_hash, summary.metrics_path);
  if (reports.has_overlap_table()) {
    Say(job.world, "what communication was predicted to take, and to hide: {}/overlap.txt",
        config.dump_folder);
  }
}

}  // namespace gt
