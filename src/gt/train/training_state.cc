#include "gt/train/training_state.h"

#include <cmath>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/compile/configured_model.h"
#include "gt/job/trajectory.h"
#include "gt/train/run_folder.h"
#include "gt/train/say.h"

namespace gt {
namespace {

// Exactly where each rank's loader was, or, when the data is now sharded over another number of
// ranks, as far as all of them together had read.
void ContinueData(Job& job, Progress& progress, const DataProgress& data) {
  auto readers = static_cast<int64_t>(data.loaders.size());
  const auto readers_now = static_cast<int64_t>(job.share.savers().size());
  if (readers == readers_now) {
    job.data->Restore(data.loaders);
    return;
  }
  job.data->data().RequireSameData(data.loaders.front());
  int64_t rows = progress.batches * data.rows * readers;
  int64_t at_a_time = job.config.training.local_batch_size * readers_now;
  progress.batches = rows / at_a_time;
  Say(job.world,
      "the data was shared out among {} rank{} and is now among {}: every rank skips {} batches",
      readers, readers == 1 ? "" : "s", readers_now, progress.batches);
  for (int64_t i = 0; i < progress.batches; ++i) job.data->Next();
}

void SayBest(const Job& job, const TrainingState& state) {
  const std::optional<BestCheckpoint>& best = state.progress.best;
  if (!best) return;
  const std::string& folder = state.checkpoints->folder();
  Say(job.world, "best validation loss: {:.5f} after step {} (gt generate --model {} --step best)",
      best->validation_loss, best->step, ShellWord(folder));
}

}  // namespace

TrainingState::TrainingState(Job& job) {
  InitializeModel(*job.model, job.config, job.device);
  parameters = job.model->parameters();
  std::unordered_map<const c10::TensorImpl*, std::optional<bool>> owned;
  for (const nn::StateTensor& state : nn::NamedState(*job.model)) {
    owned[state.tensor.unsafeGetTensorImpl()] = state.owned;
  }
  for (const at::Tensor& parameter : parameters) {
    owned_.push_back(owned[parameter.unsafeGetTensorImpl()]);
  }
  optimizer = std::make_unique<AdamW>(NamedParameters(*job.model), job.config.optimizer);
  checkpoints = std::make_unique<Checkpointer>(job.config, *job.model, *optimizer, job.device,
                                               job.world, job.share);
}

std::vector<at::Tensor> TrainingState::OwnedGradients(const std::vector<at::Tensor>& gradients,
                                                      int64_t rank) const {
  std::vector<at::Tensor> own;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (owned_[i].value_or(rank == 0)) own.push_back(gradients[i]);
  }
  return own;
}

void Resume(Job& job, TrainingState& state) {
  Checkpointer& checkpoints = *state.checkpoints;
  Progress& progress = state.progress;
  checkpoints.Prepare();
  job.world.Barrier();  // the folder exists
  std::optional<DataProgress> data = checkpoints.Load(&progress);
  if (!data) return;
  ContinueData(job, progress, *data);
  Say(job.world, "continuing after step {} from {}", progress.step, checkpoints.folder());
  SayBest(job, state);
  for (const OptionChange& change : checkpoints.changes()) {
    Say(job.world, "  changed since then: {} {} -> {}", change.name, change.before, change.now);
  }
  const int64_t steps = job.config.training.steps;
  if (progress.step > steps) {
    Fail(ErrorCode::kConflictingOptions,
         "--training.steps {} ends before step {}, which the checkpoint in {} has reached; raise "
         "it, "
         "or go back with --checkpoint.load_step",
         steps, progress.step, checkpoints.folder());
  }
  if (progress.step == steps) {
    Say(job.world, "all {} steps are done already; raise --training.steps to go on", steps);
  }
}

bool NoteValidation(const Job& job, Progress& progress, const StepMetrics& metrics) {
  const CheckpointSection& options = job.config.checkpoint;
  if (!options.keep_best || !metrics.validation_loss) return false;
  const double loss = *metrics.validation_loss;
  if (!std::isfinite(loss) || (progress.best && loss >= progress.best->validation_loss))
    return false;
  const bool is_due = metrics.step % options.interval == 0;
  progress.best = {.step = metrics.step, .validation_loss = loss, .saved_for_this = !is_due};
  return true;
}

void SaveCheckpoint(Job& job, TrainingState& state) {
  const Progress& progress = state.progress;
  double seconds = state.checkpoints->Save(progress);
  if (!job.world.first()) return;
  const bool is_best = progress.best && progress.best->step == progress.step;
  const std::string best =
      is_best ? fmt::format(", the best so far (validation {:.5f})", progress.best->validation_loss)
              : "";
  log::Info("checkpoint of step {}{}: {:.2f} s of the loop", progress.step, best, seconds);
}

std::string SaveLastCheckpoint(Job& job, TrainingState& state) {
  Checkpointer& checkpoints = *state.checkpoints;
  std::string folder = checkpoints.folder();
  if (job.config.checkpoint.enable) {
    std::optional<BestCheckpoint>& best = state.progress.best;
    if (best && best->step == state.progress.step) best->saved_for_this = false;
    checkpoints.SaveAndWait(state.progress);
  } else {
    folder = job.world.DecideForAll("the folder of the last checkpoint",
                                    [&] { return FolderWithoutCheckpoints(folder); });
    checkpoints.SaveTo(folder, state.progress);
  }
  Say(job.world, "checkpoint of step {} in {}", state.progress.step, folder);
  SayBest(job, state);
  if (folder == checkpoints.folder()) return "";
  return " --checkpoint.folder " + ShellWord(std::filesystem::absolute(folder).string());
}

void FailNonFinite(Job& job, TrainingState& state, const StepMetrics& metrics, BeforeStep before) {
  Progress progress = state.progress;
  progress.data = std::move(before.data);
  progress.batches -= job.micro_batches;
  progress.tokens = before.tokens;
  const std::string& dump_folder = job.config.dump_folder;
  if (job.folder) job.folder->WillWrite("nonfinite");
  std::string folder = (std::filesystem::absolute(dump_folder) / "nonfinite").string();
  state.checkpoints->SaveTo(folder, progress);
  Fail(ErrorCode::kNonFiniteLoss,
       "step {}: the loss is {} and the gradient norm {}; the update was not applied. Lower "
       "--optimizer.lr (now {}), lengthen --lr_scheduler.warmup_steps, or check the data. The "
       "state before the step is in {}; this runs the step again: gt train --config {} "
       "--checkpoint.enable --checkpoint.folder {} --dump_folder {}",
       metrics.step, metrics.loss, metrics.grad_norm, job.config.optimizer.lr, folder,
       ShellWord(dump_folder + "/config.toml"), ShellWord(folder),
       ShellWord(dump_folder + "/again"));
}

}  // namespace gt
