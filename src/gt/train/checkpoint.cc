#include "gt/train/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <chrono>
#include <filesystem>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/exec/convert.h"
#include "gt/exec/stored_tensor.h"
#include "gt/train/setup.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerator = "random.";

// What two runs must have in common for one to continue the other's checkpoint.
nlohmann::json IdentityOf(const Config& config) {
  return {{"model", ModelTitle(config)},
          {"layers", config.model.n_layers},
          {"vocab", config.model.vocab_size},
          {"dtype", EnumName(config.training.dtype)}};
}

at::Tensor GeneratorState(at::Device device) {
  return at::globalContext().defaultGenerator(device).get_state();
}

// Copies in host memory: training goes on while they are written.
std::vector<TensorSource> Snapshot(const NamedTensors& tensors) {
  std::vector<TensorSource> sources;
  sources.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    at::Tensor copy = tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    sources.push_back(SourceOf(name, copy));
  }
  return sources;
}

nlohmann::json StateOf(const Config& config, const Progress& progress) {
  return {{"step", progress.step},
          {"tokens", progress.tokens},
          {"data", progress.data},
          {"identity", IdentityOf(config)},
          {"config", ToToml(config)}};
}

NamedTensors ModelTensors(LanguageModel& model) {
  NamedTensors tensors;
  for (auto& [name, tensor] : nn::NamedState(model)) tensors.emplace_back("model." + name, tensor);
  return tensors;
}

NamedTensors AllTensors(LanguageModel& model, const AdamW& optimizer, at::Device device) {
  NamedTensors tensors = ModelTensors(model);
  for (auto& entry : optimizer.State()) tensors.push_back(std::move(entry));
  tensors.emplace_back(kGenerator + std::string("cpu"), GeneratorState(at::kCPU));
  if (device.is_cuda())
    tensors.emplace_back(kGenerator + std::string("cuda"), GeneratorState(device));
  return tensors;
}

// Every tensor must be there with its very shape and dtype; all differences are one error, and then
// nothing has been changed.
void FillFrom(const CheckpointReader& reader, const NamedTensors& targets) {
  std::vector<std::string> problems;
  for (const auto& [name, target] : targets) {
    const TensorEntry* stored = reader.Find(name);
    if (stored == nullptr) {
      problems.push_back("missing: " + name);
    } else if (target.sizes() != at::IntArrayRef(stored->sizes) ||
               ToTorch(stored->dtype) != target.scalar_type()) {
      problems.push_back(name + " has another shape or dtype");
    }
  }
  if (!problems.empty()) {
    constexpr size_t kShown = 20;
    size_t hidden = problems.size() > kShown ? problems.size() - kShown : 0;
    if (hidden > 0) problems.resize(kShown);
    Fail(ErrorCode::kCheckpointMismatch,
         "the checkpoint {} is of another model:\n  {}{}\nUse the settings it was made with, or "
         "another --checkpoint.folder",
         reader.path(), Join(problems, "\n  "),
         hidden > 0 ? fmt::format("\n  and {} more", hidden) : "");
  }
  at::NoGradGuard no_gradients;
  for (const auto& [name, target] : targets) {
    at::Tensor destination = target;
    destination.copy_(ToTensor(*reader.Find(name)));
  }
}

void RestoreGenerator(const CheckpointReader& reader, const std::string& name, at::Device device) {
  const TensorEntry* stored = reader.Find(kGenerator + name);
  if (stored == nullptr) return;  // saved on a machine without this device
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_state(ToTensor(*stored));
}

void RequireSameIdentity(const CheckpointReader& reader, const Config& config) {
  nlohmann::json mine = IdentityOf(config);
  const nlohmann::json& theirs = reader.state().at("identity");
  for (const auto& [key, value] : mine.items()) {
    if (!theirs.contains(key) || theirs[key] != value) {
      Fail(ErrorCode::kCheckpointMismatch,
           "the checkpoint {} was made with {} {}, this run has {}; use the settings it was made "
           "with, or another --checkpoint.folder",
           reader.path(), key, theirs.contains(key) ? theirs[key].dump() : "unknown", value.dump());
    }
  }
}

std::string FolderOf(const Config& config) {
  return (fs::path(config.dump_folder) / config.checkpoint.folder).string();
}

}  // namespace

Checkpointer::Checkpointer(const Config& config, LanguageModel& model, const AdamW& optimizer,
                           at::Device device)
    : config_(config),
      model_(model),
      optimizer_(optimizer),
      device_(device),
      folder_(FolderOf(config)),
      store_(folder_),
      saver_(store_) {}

NamedTensors Checkpointer::Tensors() const { return AllTensors(model_, optimizer_, device_); }

void Checkpointer::Prepare() const {
  int64_t bytes = 1 << 20;
  for (const auto& [name, tensor] : Tensors()) bytes += static_cast<int64_t>(tensor.nbytes());
  store_.Prepare(bytes);
}

CheckpointReader Checkpointer::OpenLatest(const std::vector<int64_t>& steps) const {
  for (size_t i = steps.size(); i-- > 1;) {
    try {
      return store_.Open(steps[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpointDamaged) throw;
      log::Warn("{}; trying the one before", error.what());
    }
  }
  return store_.Open(steps.front());
}

bool Checkpointer::Load(Progress* progress) {
  std::vector<int64_t> steps = store_.CompleteSteps();
  bool chosen = config_.checkpoint.load_step >= 0;
  if (steps.empty() && !chosen) return false;
  CheckpointReader reader = chosen ? store_.Open(config_.checkpoint.load_step) : OpenLatest(steps);
  RequireSameIdentity(reader, config_);
  NamedTensors targets = ModelTensors(model_);
  for (auto& entry : optimizer_.State()) targets.push_back(std::move(entry));
  FillFrom(reader, targets);
  RestoreGenerator(reader, "cpu", at::kCPU);
  if (device_.is_cuda()) RestoreGenerator(reader, "cuda", device_);
  progress->step = reader.state().at("step").get<int64_t>();
  progress->tokens = reader.state().at("tokens").get<int64_t>();
  progress->data = reader.state().at("data");
  return true;
}

double Checkpointer::Save(const Progress& progress) {
  auto start = std::chrono::steady_clock::now();
  saver_.Wait();  // before the next copy is made: host memory holds one at a time
  saver_.Start(progress.step, Snapshot(Tensors()), StateOf(config_, progress),
               config_.checkpoint.keep_latest_k);
  if (config_.checkpoint.async_mode == CheckpointAsync::kDisabled) saver_.Wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void SaveCheckpointTo(const std::string& folder, const Config& config, LanguageModel& model,
                      const AdamW& optimizer, at::Device device, const Progress& progress) {
  CheckpointStore store{fs::path(folder)};
  store.Prepare(0);
  store.Save(progress.step, Snapshot(AllTensors(model, optimizer, device)),
             StateOf(config, progress), /*keep_latest=*/0);
}

int64_t LoadModelFromCheckpoint(const std::string& folder, int64_t step, LanguageModel& model) {
  CheckpointStore store{fs::path(folder)};
  std::vector<int64_t> steps = store.CompleteSteps();
  if (steps.empty()) {
    Fail(ErrorCode::kCheckpointDamaged, "there is no complete checkpoint in '{}'", folder);
  }
  if (step < 0) step = steps.back();
  CheckpointReader reader = store.Open(step);
  FillFrom(reader, ModelTensors(model));
  return step;
}

}  // namespace gt
