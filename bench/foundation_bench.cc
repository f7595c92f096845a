// What capturing, checking, rewriting, storing and running a train step costs, per node and as
// ratios within one run:
//   capture at 61 layers against 6 layers; verifier, passes, printing and parsing per node; the
//   executor's host time against libtorch eager with autograd. Absolute times on a shared machine
//   are noise; the best of several tries is shown.
// With the path of a Python that has torch as argument, make_fx captures the same model beside it
// (bench/make_fx.py).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "gt/compile/compile.h"
#include "gt/exec/program.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/models/model.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/pipeline/pipeline.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/step.h"

namespace {

using Clock = std::chrono::steady_clock;

double BestSeconds(int tries, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < tries; ++i) {
    Clock::time_point start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

gt::ModelPtr DebugModel(int64_t layers, const char* flavor = "debugmodel") {
  return gt::BuildModel("llama3", flavor, {.max_length = 64, .layers = layers});
}

gt::CompiledStep Capture(gt::LanguageModel& model, int64_t batch, int64_t length, bool symbolic,
                         c10::Device device) {
  gt::Config config;
  config.training.local_batch_size = batch;
  config.training.seq_len = length;
  config.training.loss_chunks = 1;
  config.compile.enable_passes = false;
  return gt::Compile(
      {.model = model, .config = config, .device = device, .symbolic_batch = symbolic});
}

void Report(const std::string& what, double value, const std::string& unit, double limit) {
  std::string verdict = limit <= 0 ? "" : value <= limit ? "ok" : "OVER";
  std::string bound = limit <= 0 ? "" : fmt::format("at most {}", limit);
  fmt::print("{:<58} {:>9.3f} {:<9} {:<14} {}\n", what, value, unit, bound, verdict);
  std::fflush(stdout);
}

double CapturePerNode(int64_t layers, int64_t* nodes) {
  gt::ModelPtr model = DebugModel(layers);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    gt::CompiledStep captured;  // freed outside of the measured time: that is not capturing
    best =
        std::min(best, BestSeconds(1, [&] { captured = Capture(*model, 8, 64, true, at::kCPU); }));
    *nodes = captured.graph->node_count();
  }
  return 1e6 * best / static_cast<double>(*nodes);
}

void BenchCapture() {
  int64_t small_nodes = 0, large_nodes = 0;
  double small = CapturePerNode(6, &small_nodes);
  double large = CapturePerNode(61, &large_nodes);
  Report(fmt::format("capture, 6 layers ({} nodes)", small_nodes), small, "us/node", 0);
  Report(fmt::format("capture, 61 layers ({} nodes)", large_nodes), large, "us/node", 15);
  Report("  per node, 61 layers against 6", large / small, "x", 1.2);
}

void BenchCore() {
  gt::ModelPtr model = DebugModel(61);
  std::unique_ptr<gt::Graph> graph = Capture(*model, 8, 64, true, at::kCPU).graph;
  auto nodes = static_cast<double>(graph->node_count());
  auto per_node = [nodes](double seconds) { return 1e6 * seconds / nodes; };
  Report("verifier", per_node(BestSeconds(5, [&] { gt::Verify(*graph); })), "us/node", 3);
  for (const gt::PassEntry& entry : gt::AllPasses()) {
    double best = 1e30;
    for (int i = 0; i < 3; ++i) {
      std::unique_ptr<gt::Graph> copy = graph->Clone();
      std::unique_ptr<gt::Pass> pass = entry.make();
      best = std::min(best, BestSeconds(1, [&] { pass->Run(*copy); }));
    }
    Report(fmt::format("pass {}", entry.name), per_node(best), "us/node", 3);
  }
  std::string text;
  double print = BestSeconds(3, [&] { text = gt::Print(*graph); });
  double parse = BestSeconds(3, [&] { gt::Parse(text); });
  Report("print", per_node(print), "us/node", 0);
  Report("parse", per_node(parse), "us/node", 0);
  Report("print + parse", per_node(print + parse), "us/node", 10);
  Report("clone", per_node(BestSeconds(3, [&] { graph->Clone(); })), "us/node", 0);
  Report("hash", per_node(BestSeconds(3, [&] { graph->Hash(); })), "us/node", 0);
}

// A step whose kernels do next to nothing, so that what is left is the host's work. On a GPU the
// time until everything is queued is measured, with an empty queue before each try.
void BenchExecutor(c10::Device device) {
  gt::ModelPtr model = DebugModel(6, "tiny");
  gt::nn::Materialize(*model, device, 1);
  gt::Batch batch;
  batch.tokens = at::randint(256, {2, 4}, at::device(device).dtype(at::kLong));
  batch.labels = at::randint(256, {2, 4}, at::device(device).dtype(at::kLong));
  batch.positions = at::arange(4, batch.tokens.options()).expand({2, 4}).contiguous();
  batch.valid_tokens = 8;
  auto eager = gt::MakeEagerStep(*model, {});
  gt::CompiledStep captured = Capture(*model, 2, 4, false, device);
  gt::PassManager(gt::DefaultPipeline()).Run(*captured.graph);
  int64_t nodes = captured.graph->node_count();
  auto replay = gt::MakeCapturedStep(*model, std::move(captured));
  auto once = [&](gt::TrainStep& step) {
    double seconds = BestSeconds(1, [&] { step.Run(batch, 8); });
    gt::Synchronize(device);
    return seconds;
  };
  double eager_best = 1e30, replay_best = 1e30;
  for (int i = 0; i < 200; ++i) {  // interleaved, so that both meet the same disturbances
    eager_best = std::min(eager_best, once(*eager));
    replay_best = std::min(replay_best, once(*replay));
  }
  std::string where = device.str();
  Report(fmt::format("step with tiny kernels, eager ({})", where), eager_best * 1e3, "ms", 0);
  Report(fmt::format("step with tiny kernels, captured ({}, {} nodes)", where, nodes),
         replay_best * 1e3, "ms", 0);
  Report(fmt::format("  captured against eager ({})", where), replay_best / eager_best, "x",
         device.is_cuda() ? 0 : 0.6);
}

void BenchLargest() {
  double seconds = BestSeconds(1, [&] {
    auto model = gt::BuildModel("llama3", "405B", {.max_length = 8192});
    Capture(*model, 8, 8192, true, at::kCPU);
  });
  Report("llama3 405B built and captured", seconds, "s", 2);
  Report("  memory of the process at most",
         static_cast<double>(gt::MemoryOf(at::kCPU).peak) / (1 << 30), "GiB", 1);
}

}  // namespace

int main(int count, char** arguments) {
  gt::PrepareCpu();
  at::set_num_threads(1);
  c10::Device device = gt::ChooseDevice(gt::DeviceChoice::kAuto);
  BenchLargest();  // first: the peak of the process is its own
  BenchCapture();
  BenchCore();
  BenchExecutor(at::kCPU);
  if (device.is_cuda()) BenchExecutor(device);
  if (count > 1) {
    int64_t nodes = 0;
    for (int64_t layers : {6, 61}) {
      double ours = CapturePerNode(layers, &nodes) * static_cast<double>(nodes) * 1e-6;
      std::string command =
          fmt::format("{} {} --layers {}", arguments[1], GT_SOURCE_DIR "/bench/make_fx.py", layers);
      FILE* pipe = popen(command.c_str(), "r");
      double theirs = 0;
      bool read = pipe != nullptr && std::fscanf(pipe, "%lf", &theirs) == 1;
      if (pipe != nullptr) pclose(pipe);
      if (!read) {
        fmt::print("make_fx could not be run with '{}'\n", arguments[1]);
        return 1;
      }
      Report(fmt::format("make_fx (Python), {} layers, symbolic batch", layers), theirs, "s", 0);
      Report(fmt::format("  make_fx against gt, {} layers", layers), theirs / ours, "x slower", 0);
    }
  }
  return 0;
}
