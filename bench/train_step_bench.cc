// Time and memory of whole train steps (forward, loss, backward, clipping, AdamW) at the widths of
// published models, bf16 parameters, one GPU, captured: the median of steady steps, and the host's
// part of it, which ends when the last kernel of forward and backward is queued. On a machine
// without a GPU the debug models run instead, eager beside captured, to show the ratio.
//
//   train_step_bench [CASE...]   runs the cases whose names contain one of the arguments
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/ir/graph.h"
#include "gt/job/config.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/profile.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/optimizer.h"
#include "gt/train/step/step.h"

namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Case {
  std::string name, model, flavor;
  int64_t layers, vocab, batch, length;
  double most_ms, most_gib, most_host_ms;  // 0: no limit
};

const Case kGpuCases[] = {
    {"llama3-8B", "llama3", "8B", 8, 32000, 2, 4096, 182, 24.6, 0},
    {"deepseek_v3-16B", "deepseek_v3", "16B", 6, 32000, 2, 4096, 99, 29.8, 8},
    {"deepseek_v3-16B-short", "deepseek_v3", "16B", 6, 32000, 1, 512, 25, 0, 0},
};
const Case kCpuCases[] = {
    {"llama3-debug", "llama3", "debugmodel", 0, 0, 2, 256, 0, 0, 0},
    {"qwen3-moe-tiny", "qwen3", "tiny_moe", 0, 0, 2, 256, 0, 0, 0},
    {"deepseek_v3-debug", "deepseek_v3", "debugmodel", 0, 0, 2, 256, 0, 0, 0},
};

void Report(const std::string& what, double value, const std::string& unit, double limit) {
  std::string bound = limit <= 0 ? "" : fmt::format("at most {}", limit);
  std::string verdict = limit <= 0 ? "" : value <= limit ? "ok" : "OVER";
  fmt::print("{:<52} {:>9.2f} {:<5} {:<14} {}\n", what, value, unit, bound, verdict);
  std::fflush(stdout);
}

// "layers.3.moe" and "layers.4.moe" are one kind.
std::string Kind(const std::string& module, gt::Phase phase) {
  std::string kind;
  for (char c : module) {
    if (c < '0' || c > '9') kind += c;
  }
  return fmt::format("({}, {})", kind, gt::Spelling(phase));
}

struct Times {
  double step = 0, host = 0, update = 0;
};

class Job {
 public:
  Job(const Case& c, gt::CompileMode mode, c10::Device device) : device_(device) {
    config_.model.name = c.model;
    config_.model.flavor = c.flavor;
    config_.model.n_layers = c.layers;
    config_.model.vocab_size = c.vocab;
    config_.training.local_batch_size = c.batch;
    config_.training.seq_len = c.length;
    config_.training.dtype =
        device.is_cuda() ? gt::TrainingDtype::kBfloat16 : gt::TrainingDtype::kFloat32;
    model_ = gt::BuildConfiguredModel(config_);
    gt::InitializeModel(*model_, config_, device);
    parameters_ = model_->parameters();
    optimizer_ = std::make_unique<gt::AdamW>(gt::NamedParameters(*model_), config_.optimizer);
    if (mode == gt::CompileMode::kEager) {
      step_ = gt::MakeEagerStep(*model_, gt::LossConfigOf(config_, *model_));
    } else {
      gt::CompiledStep captured =
          gt::Compile({.model = *model_, .config = config_, .device = device});
      nodes_ = captured.graph->node_count();
      step_ = gt::MakeCapturedStep(*model_, std::move(captured),
                                   {.device_graphs = std::getenv("GT_BENCH_NO_GRAPHS") == nullptr});
    }
    auto numbers = at::randint(model_->vocab_size(), {c.batch, c.length + 1}, at::kLong);
    batch_.tokens = numbers.narrow(1, 0, c.length).contiguous().to(device);
    batch_.labels = numbers.narrow(1, 1, c.length).contiguous().to(device);
    batch_.positions =
        at::arange(c.length, at::kLong).expand({c.batch, c.length}).contiguous().to(device);
    batch_.valid_tokens = c.batch * c.length;
  }

  Times Step() {
    gt::Synchronize(device_);
    Clock::time_point start = Clock::now();
    gt::StepResult result = step_->Run(batch_, batch_.valid_tokens);
    Clock::time_point queued = Clock::now();
    std::vector<at::Tensor> gradients = gt::OwnGradients(parameters_, std::move(result.gradients));
    gt::Clipping clipping = gt::ClippingFor(gt::GradientNorm(gradients), 1.0);
    norm_ = clipping.norm;
    Clock::time_point computed = Clock::now();  // the norm waits for the device
    model_->BeforeUpdate([](const at::Tensor& counts) { return counts; });
    optimizer_->Step(gradients, 1e-4, clipping.factor);
    result = {};
    gradients.clear();
    gt::Synchronize(device_);
    return {Milliseconds(start, Clock::now()), Milliseconds(start, queued),
            Milliseconds(computed, Clock::now())};
  }

  Times Measure(int warmup, int steps) {
    for (int i = 0; i < warmup; ++i) Step();
    std::vector<double> step, host, update;
    for (int i = 0; i < steps; ++i) {
      Times times = Step();
      step.push_back(times.step);
      host.push_back(times.host);
      update.push_back(times.update);
    }
    return {Median(step), Median(host), Median(update)};
  }

  // Device time by operator of one step, the largest first.
  void Profile(size_t shown) {
    gt::OpProfiler profiler(device_);
    step_->Run(batch_, batch_.valid_tokens);
    std::map<std::string, std::pair<double, int>> by_op;
    double total = 0;
    for (const auto& span : profiler.Finish()) {
      if (span.depth > 0) continue;
      double time = span.device_duration.value_or(span.host_duration);
      auto& [sum, count] = by_op[span.op + " " + Kind(span.module.str(), span.phase)];
      sum += time;
      ++count;
      total += time;
    }
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [op, sum] : by_op) {
      order.emplace_back(sum.first, fmt::format("{} x{}", op, sum.second));
    }
    std::sort(order.rbegin(), order.rend());
    order.resize(std::min(order.size(), shown));
    for (const auto& [time, op] : order) {
      fmt::print("    {:>9.2f} ms {:>5.1f}%  {}\n", time / 1e3, 100 * time / total, op);
    }
  }

  int64_t nodes() const { return nodes_; }
  double norm() const { return norm_; }

 private:
  gt::Config config_;
  c10::Device device_;
  gt::ModelPtr model_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<gt::AdamW> optimizer_;
  std::unique_ptr<gt::TrainStep> step_;
  gt::Batch batch_;
  int64_t nodes_ = 0;
  double norm_ = 0;
};

void RunGpu(const Case& c, c10::Device device) {
  Job job(c, gt::CompileMode::kAotFxTrace, device);
  gt::ResetPeakMemory(device);
  Times times = job.Measure(3, 10);
  double gib = static_cast<double>(gt::MemoryOf(device).peak) / (1 << 30);
  std::string name =
      fmt::format("{}, {} layers, {} x {} tokens", c.name, c.layers, c.batch, c.length);
  Report(name, times.step, "ms", c.most_ms);
  Report(fmt::format("  of it the update (gradient norm {:.2f})", job.norm()), times.update, "ms",
         0);
  Report("  peak memory", gib, "GiB", c.most_gib);
  Report(fmt::format("  host until queued ({} nodes)", job.nodes()), times.host, "ms",
         c.most_host_ms);
  if (std::getenv("GT_BENCH_PROFILE") != nullptr) job.Profile(40);
}

void RunCpu(const Case& c, c10::Device device) {
  Job eager(c, gt::CompileMode::kEager, device), captured(c, gt::CompileMode::kAotFxTrace, device);
  double eager_ms = eager.Measure(1, 5).step, captured_ms = captured.Measure(1, 5).step;
  Report(fmt::format("{}, {} x {} tokens, eager", c.name, c.batch, c.length), eager_ms, "ms", 0);
  Report("  captured", captured_ms, "ms", 0);
  Report("  captured against eager", captured_ms / eager_ms, "x", 0);
}

}  // namespace

int main(int count, char** arguments) {
  gt::PrepareCpu();
  c10::Device device = gt::ChooseDevice(gt::DeviceChoice::kAuto);
  auto wanted = [&](const Case& c) {
    bool any = count == 1;
    for (int i = 1; i < count; ++i) any |= c.name.find(arguments[i]) != std::string::npos;
    return any;
  };
  if (device.is_cuda()) {
    for (const Case& c : kGpuCases) {
      if (wanted(c)) RunGpu(c, device);
    }
  } else {
    for (const Case& c : kCpuCases) {
      if (wanted(c)) RunCpu(c, device);
    }
  }
}
