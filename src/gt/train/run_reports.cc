#include "gt/train/run_reports.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "gt/base/byte_text.h"
#include "gt/base/text.h"
#include "gt/compile/configured_model.h"
#include "gt/job/config.h"
#include "gt/report/overlap_report.h"
#include "gt/storage/file_writer.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/say.h"

namespace gt {
namespace {

// Checkpoints pile up, and the weights are written at the very end, when it would be too late to
// learn of a full disk.
void RequireRoom(const Job& job, const TrainingState& state) {
  const Config& config = job.config;
  std::vector<SpaceNeed> needs;
  if (config.checkpoint.enable) {
    needs.push_back(state.checkpoints->SpaceAfter(state.progress.step));
  }
  if (config.checkpoint.last_save_in_hf) {
    auto size = static_cast<int64_t>(c10::elementSize(ToTorch(config.checkpoint.export_dtype)));
    const int64_t bytes = nn::ParameterCount(*job.model) * size;
    needs.push_back(
        {config.dump_folder, bytes, fmt::format("weights of {}", ExactByteText(bytes))});
  }
  RequireSpace(needs);
}

}  // namespace

RunReports::RunReports(Job& job, const TrainingState& state, std::string overlap_table)
    : job_(job), steps_before_(state.progress.step), overlap_table_(std::move(overlap_table)) {
  if (!job.world.first()) return;
  RequireRoom(job, state);
  const double sequences = job.data->data().MeasureEpoch().sequences;
  if (sequences > 0) epochs_per_step_ = static_cast<double>(job.SequencesPerStep()) / sequences;
  if (steps_before_ > 0) return;
  for (const std::string& line : job.folder->WhatIsThere()) SayLine(line);
}

// The results of an earlier run stay where they are until this run has some of its own.
void RunReports::BeginResults() {
  if (metrics_) return;
  RunFolder& folder = *job_.folder;
  folder.Begin(/*continues=*/steps_before_ > 0);
  metrics_ = std::make_unique<MetricsFile>(job_.config.dump_folder, steps_before_);
  Config config = job_.config;
  config.overwrite = false;  // was meant for this start
  WriteFile(folder.Path("config.toml"), ToToml(config));
  if (job_.placed) WriteFile(folder.Path(kPlanFile), ToJson(job_.placed->plan));
  if (has_overlap_table()) WriteFile(folder.Path("overlap.txt"), overlap_table_);
  if (!job_.config.metrics.enable_tensorboard) return;
  folder.WillWrite("tb");
  tensorboard_ = std::make_unique<TensorBoardWriter>(folder.Path("tb"));
}

void RunReports::Begin(int64_t done) {
  bar_ = std::make_unique<ProgressBar>(job_.config.training.steps, done, stderr);
}

void RunReports::Interject(const std::string& line) {
  bar_->Clear();
  Say(job_.world, "{}", line);
}

void RunReports::OnStep(StepMetrics metrics) {
  if (!job_.world.first()) return;
  if (epochs_per_step_ > 0) metrics.epoch = epochs_per_step_ * static_cast<double>(metrics.step);
  BeginResults();
  metrics_->Write(metrics);
  if (tensorboard_) WriteTensorBoard(metrics);
  const int64_t steps = job_.config.training.steps;
  if (metrics.step % job_.config.metrics.log_freq == 0 || metrics.step == steps ||
      metrics.validation_loss) {
    Interject(ProgressLine(metrics, steps));
  }
  bar_->Update(metrics.step, fmt::format("loss {:.4f}", metrics.loss));
}

void RunReports::WriteTensorBoard(const StepMetrics& metrics) {
  double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  auto add = [&](const char* tag, double value) {
    tensorboard_->AddScalar(tag, metrics.step, now, value);
  };
  add("loss", metrics.loss);
  add("grad_norm", metrics.grad_norm);
  add("lr", metrics.learning_rate);
  add("tokens_per_second", metrics.tokens_per_second);
  add("memory_gib", static_cast<double>(metrics.memory_bytes) / (1 << 30));
  if (metrics.mfu >= 0) add("mfu", metrics.mfu);
  if (metrics.validation_loss) add("validation_loss", *metrics.validation_loss);
  tensorboard_->Flush();
}

void RunReports::OnProfile(StepProfile& profile, int64_t step, const RunningStep& running) {
  World& world = job_.world;
  const std::string folder = job_.config.dump_folder + "/profile";
  const std::string path = world.first()
                               ? fmt::format("{}/step_{}.json", folder, step)
                               : fmt::format("{}/step_{}_rank_{}.json", folder, step, world.rank());
  if (world.first()) {
    BeginResults();
    job_.folder->WillWrite("profile");
  }
  world.Barrier();  // the folder of an earlier run has moved before any rank writes into its own
  std::optional<StepProfile::Shown> shown = profile.Finish(path);
  if (!world.first()) return;
  Interject(fmt::format("profile of step {} in {}", step, path));
  if (!shown) return;
  shown->costs.device = job_.device.is_cuda() ? "cuda" : "cpu";
  WriteFile(folder + "/costs.json", shown->costs.ToJson());
  SayLine(fmt::format("times of its operators in {}/costs.json, for --compile.costs_file", folder));
  if (!running.predicted()) return;
  SayLine(OverlapTable(*shown->graph, shown->timeline, MemoryOf(job_.device).peak) +
          CompareTable(*shown->graph, *running.predicted(), shown->timeline));
}

}  // namespace gt
