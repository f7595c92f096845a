#include "gt/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/exec/device.h"
#include "gt/models/model.h"
#include "gt/train/data.h"
#include "gt/train/metrics.h"
#include "gt/train/optimizer.h"
#include "gt/train/step.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(format, std::forward<Args>(args)...);
  std::fputc('\n', stdout);
  std::fflush(stdout);  // a line is news: it must not wait in a pipe's buffer
}

at::ScalarType ToTorch(TrainingDtype dtype) {
  return dtype == TrainingDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

uint64_t HashState(LanguageModel& model) {
  uint64_t hash = 0xcbf29ce484222325ull;
  auto add = [&hash](const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  };
  auto add_tensor = [&](const std::string& name, const at::Tensor& tensor) {
    add(name.data(), name.size());
    at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
    add(host.const_data_ptr(), host.nbytes());
  };
  for (const auto& item : model.named_parameters()) add_tensor(item.key(), item.value());
  for (const auto& item : model.named_buffers()) add_tensor(item.key(), item.value());
  return hash;
}

class Run {
 public:
  explicit Run(const Config& config)
      : config_(config), device_(ChooseDevice(config.device)), metrics_(config.dump_folder) {
    SetThreads(config.threads);
    SetDeterministic(config.training.deterministic);
    std::ofstream(config.dump_folder + "/config.toml") << ToToml(config);
    model_ = BuildModel(config.model.name, config.model.flavor, config.training.seq_len);
    data_ = std::make_unique<TextData>(config.training.dataset, config.training.dataset_path,
                                       model_->vocab_size(), config.training.local_batch_size,
                                       config.training.seq_len, config.training.seed);
    Say("{} {}: {} parameters, {} on {}", config.model.name, config.model.flavor,
        FormatCount(static_cast<double>(nn::ParameterCount(*model_))), Precision(), Where());
    Say("data: {} ({} tokens), {} x {} tokens a step, {} steps", data_->source(),
        FormatCount(static_cast<double>(data_->token_count())), config.training.local_batch_size,
        config.training.seq_len, config.training.steps);
    nn::Materialize(*model_, device_, config.training.seed);
    if (config.training.dtype != TrainingDtype::kFloat32) {
      model_->to(ToTorch(config.training.dtype));
    }
    if (config.training.mixed_precision_param != config.training.dtype) {
      CastParametersForCompute(*model_, ToTorch(config.training.mixed_precision_param));
    }
    parameters_ = model_->parameters();
    optimizer_ = std::make_unique<AdamW>(parameters_, config.optimizer);
    MakeStep();
  }

  TrainSummary Train() {
    TrainSummary summary;
    Clock::time_point start = Clock::now(), before = start;
    for (int64_t i = 0; i < config_.training.steps; ++i) {
      StepMetrics metrics = OneStep(i);
      Clock::time_point now = Clock::now();
      metrics.seconds = Seconds(before, now);
      before = now;
      FillRates(metrics);
      metrics_.Write(metrics);
      if (metrics.step % config_.metrics.log_freq == 0 || metrics.step == config_.training.steps) {
        double each = Seconds(start, now) / static_cast<double>(metrics.step);
        double left = static_cast<double>(config_.training.steps - metrics.step);
        Say("{}", ProgressLine(metrics, config_.training.steps, each * left));
      }
      RequireFinite(metrics);
      if (i == 0) summary.first_loss = metrics.loss;
      summary.last_loss = metrics.loss;
      summary.steps = metrics.step;
    }
    double seconds = Seconds(start, Clock::now());
    summary.state_hash = HashState(*model_);
    summary.metrics_path = metrics_.path();
    Say("done: {} steps in {}, loss {:.4f} -> {:.4f}, {} tok/s, peak memory {}", summary.steps,
        FormatDuration(seconds), summary.first_loss, summary.last_loss,
        FormatCount(static_cast<double>(tokens_) / seconds), FormatBytes(MemoryOf(device_).peak));
    Say("state hash {:016x}; metrics in {}", summary.state_hash, summary.metrics_path);
    return summary;
  }

 private:
  std::string Precision() const {
    std::string stored(EnumName(config_.training.dtype));
    std::string compute(EnumName(config_.training.mixed_precision_param));
    return stored == compute ? stored : stored + " (compute in " + compute + ")";
  }

  std::string Where() const {
    if (device_.is_cuda()) return "cuda";
    return fmt::format("cpu with {} thread{}", at::get_num_threads(),
                       at::get_num_threads() == 1 ? "" : "s");
  }

  void MakeStep() {
    if (config_.compile.mode == CompileMode::kEager) {
      step_ = MakeEagerStep(*model_);
      Say("running eagerly");
      return;
    }
    CaptureReport report;
    Captured captured = CaptureStep(*model_, config_, device_, /*symbolic_batch=*/false, &report);
    Say("captured {} nodes in {:.0f} ms, {} after passes ({:.0f} ms)",
        FormatCount(static_cast<double>(report.captured_nodes)), report.capture_seconds * 1e3,
        FormatCount(static_cast<double>(report.nodes)), report.passes.seconds * 1e3);
    step_ = MakeCapturedStep(*model_, std::move(captured), config_.compile.executor);
  }

  StepMetrics OneStep(int64_t index) {
    Batch batch = data_->Next();
    batch.tokens = batch.tokens.to(device_);
    batch.labels = batch.labels.to(device_);
    StepResult result = step_->Run(batch);
    std::vector<at::Tensor> gradients = OwnGradients(parameters_, std::move(result.gradients));
    StepMetrics metrics;
    metrics.step = index + 1;
    metrics.grad_norm = ClipGradients(gradients, config_.training.max_norm);
    metrics.loss = result.loss.to(at::kDouble).item<double>();
    metrics.learning_rate = config_.optimizer.lr *
                            LearningRateFactor(index, config_.training.steps, config_.lr_scheduler);
    bool finite = std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm);
    // Weights are never updated from a broken gradient: they stay as they were before the step.
    if (finite) optimizer_->Step(gradients, metrics.learning_rate);
    tokens_ += batch.valid_tokens;
    metrics.tokens = tokens_;
    return metrics;
  }

  void FillRates(StepMetrics& metrics) const {
    double tokens =
        static_cast<double>(config_.training.local_batch_size * config_.training.seq_len);
    metrics.tokens_per_second = tokens / metrics.seconds;
    if (double peak = PeakFlops(device_); peak > 0) {
      double flops = static_cast<double>(model_->FlopsPerToken(config_.training.seq_len));
      metrics.mfu = 100.0 * flops * metrics.tokens_per_second / peak;
    }
    metrics.memory_bytes = MemoryOf(device_).current;
  }

  void RequireFinite(const StepMetrics& metrics) const {
    if (std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm)) return;
    Fail(ErrorCode::kNonFiniteLoss,
         "step {}: the loss is {} and the gradient norm {}; the update was not applied. Lower "
         "--optimizer.lr (now {}), "
         "lengthen --lr_scheduler.warmup_steps, or check the data; metrics up to this step are in "
         "{}",
         metrics.step, metrics.loss, metrics.grad_norm, config_.optimizer.lr, metrics_.path());
  }

  Config config_;
  c10::Device device_;
  MetricsFile metrics_;
  std::shared_ptr<LanguageModel> model_;
  std::unique_ptr<TextData> data_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<TrainStep> step_;
  int64_t tokens_ = 0;
};

}  // namespace

TrainSummary Train(const Config& config) { return Run(config).Train(); }

}  // namespace gt
