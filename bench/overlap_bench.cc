// How much of a step's communication hides behind its compute, on one rank of a cluster that is not
// there (--comm.backend emulated). For each way to run the step, all on the same machine, one after
// the other: the step, the same graph with collectives that are free, its collectives alone, and what
// was predicted.
//
//   overlap_bench [--ways whole,block,moe_batch,moe_seq] [--chunks 2] [--scales 1] [job flags]
//
// A way is `whole` (no chunks), `auto`, or a kind of module that is cut. Without job flags: deepseek_v3
// with the widths of 16B and 8 layers on a GPU, ep 32 on an H100 cluster; a tiny one, ep 8, on a CPU.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <vector>

#include "gt/base/error.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/exec/device.h"
#include "gt/train/setup.h"
#include "gt/train/step.h"

namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

gt::Config DefaultJob(bool gpu) {
  gt::Config config;
  config.model.name = "deepseek_v3";
  config.model.flavor = gpu ? "16B" : "tiny";
  config.model.n_layers = gpu ? 8 : 6;
  if (gpu) config.model.vocab_size = 32000;
  config.training.local_batch_size = gpu ? 4 : 8;
  config.training.seq_len = gpu ? 4096 : 512;
  config.training.mixed_precision_param =
      gpu ? gt::TrainingDtype::kBfloat16 : gt::TrainingDtype::kFloat32;
  config.ranks = gpu ? 32 : 8;
  config.parallelism.expert_parallel_degree = config.ranks;
  config.comm.backend = gt::CommBackend::kEmulated;
  config.comm.cluster = gpu ? "h100" : "slow";
  config.comm.trace_buf_size = 1 << 16;
  config.debug.moe_force_load_balance = true;
  // What is known of a GPU fits all of its kind; CPUs differ.
  config.compile.costs = gpu ? gt::CostSource::kEstimated : gt::CostSource::kMeasured;
  config.threads = gpu ? 0 : 1;
  return config;
}

void Choose(const std::string& way, int64_t chunks, gt::Config* config) {
  gt::Config::Compile::EpOverlap& overlap = config->compile.ep_overlap;
  overlap.enabled = gt::AutoSwitch::kTrue;
  overlap.num_chunks = chunks;
  if (way == "whole") {
    overlap.enabled = gt::AutoSwitch::kFalse;
  } else if (way == "auto") {
    overlap.enabled = gt::AutoSwitch::kAuto;
  } else if (way == "moe_batch" || way == "moe_seq") {
    overlap.module_fqn = "layers.*.moe";
    if (way == "moe_seq") overlap.chunk_dim = gt::ChunkDim::kSeq;
  } else if (way != "block") {
    gt::Fail(gt::ErrorCode::kBadOptionValue, "there is no way '{}'", way);
  }
}

struct Measured {
  double step_ms = 0;
  double alone_ms = 0;  // its collectives, all launched at once, nothing else running
  int64_t peak = 0;
  bool chunked = false;
  double predicted_ms = 0;
};

// The same collectives again, on tensors of their sizes: queues that are never empty.
double TimeAlone(const std::vector<gt::CollectiveRecord>& collectives, c10::Device device) {
  auto bytes_of = [&](int64_t bytes) {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  };
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  gt::Synchronize(device);
  Clock::time_point start = Clock::now();
  for (const gt::CollectiveRecord& record : collectives) {
    auto group = c10d::resolve_process_group(record.group.str());
    const int64_t ranks = group->getSize();
    const int64_t part = std::max<int64_t>(record.bytes / ranks, 1);
    at::Tensor whole = bytes_of(part * ranks), own = bytes_of(part);
    const std::string& kind = record.kind.str();
    if (kind == "all_gather") {
      works.push_back(group->_allgather_base(whole, own));
    } else if (kind == "reduce_scatter") {
      works.push_back(group->_reduce_scatter_base(own, whole));
    } else if (kind == "all_reduce") {
      std::vector<at::Tensor> tensors = {whole};
      works.push_back(group->allreduce(tensors));
    } else {
      at::Tensor received = bytes_of(part * ranks);
      std::vector<int64_t> even;
      works.push_back(group->alltoall_base(received, whole, even, even));
    }
  }
  for (auto& work : works) work->wait();
  gt::Synchronize(device);
  return Milliseconds(start, Clock::now());
}

Measured Measure(const gt::Config& config, c10::Device device, bool alone) {
  Measured measured;
  gt::World::Run(config, [&](gt::World& world) {
    gt::Mesh mesh(config.parallelism, world.size(), world.rank());
    gt::SetThreads(config.threads);
    gt::ModelPtr model = gt::BuildConfiguredModel(config, world, mesh);
    gt::InitializeModel(*model, config, device);
    gt::CaptureReport report;
    auto step = gt::MakeCapturedStep(
        *model, gt::CaptureStep(*model, config, device, false, &report, mesh, &world));
    measured.chunked = report.chunked;
    if (report.predicted) measured.predicted_ms = report.predicted->step / 1e3;
    auto [rows, length] = std::pair(config.training.local_batch_size, config.training.seq_len);
    at::manual_seed(1);
    at::Tensor numbers = at::randint(model->vocab_size(), {rows, length + 1}, at::kLong);
    gt::Batch batch;
    batch.tokens = numbers.narrow(1, 0, length).contiguous().to(device);
    batch.labels = numbers.narrow(1, 1, length).contiguous().to(device);
    batch.positions = at::arange(length, at::kLong).expand({rows, length}).contiguous().to(device);
    std::vector<double> times;
    std::vector<gt::CollectiveRecord> collectives;  // of one step
    constexpr int kWarmUp = 3, kSteps = 7;
    for (int i = 0; i < kWarmUp + kSteps; ++i) {
      gt::Synchronize(device);
      if (i == kWarmUp) gt::ResetPeakMemory(device);
      const int64_t first = world.record().Last().number + 1;
      Clock::time_point start = Clock::now();
      gt::StepResult result = step->Run(batch, rows * length);
      gt::Synchronize(device);
      if (i >= kWarmUp) times.push_back(Milliseconds(start, Clock::now()));
      collectives = world.record().Since(first);
    }
    measured.step_ms = Median(times);
    measured.peak = gt::MemoryOf(device).peak;
    if (alone) measured.alone_ms = TimeAlone(collectives, device);
  });
  return measured;
}

struct Wanted {
  gt::StringList ways = {"whole", "block", "moe_batch", "moe_seq"};
  gt::StringList chunks = {"2"};
  gt::StringList scales = {"1"};
};

class Table {
 public:
  Table(gt::Config config, c10::Device device, Wanted wanted)
      : config_(std::move(config)), device_(device), wanted_(std::move(wanted)) {}

  void Print() {
    fmt::print(
        "links   way        chunks      step   compute   network    hidden  of bound   speed-up  "
        "predicted  peak\n");
    for (const std::string& scale : wanted_.scales) {
      config_.comm.emulated_time_scale = std::stod(scale);
      whole_ms_ = 0;
      for (const std::string& way : wanted_.ways) {
        const bool whole = way == "whole";
        for (const std::string& chunks : whole ? gt::StringList{"1"} : wanted_.chunks) {
          PrintRow(way, std::stoll(chunks));
        }
      }
    }
  }

 private:
  void PrintRow(const std::string& way, int64_t chunks) {
    gt::Config config = config_;
    Choose(way, std::max<int64_t>(chunks, 2), &config);
    const Measured with = Measure(config, device_, /*alone=*/true);
    // The very same order of nodes, which was made for the links as they are: only these are free.
    config.debug.free_collectives = true;
    const double compute = Measure(config, device_, /*alone=*/false).step_ms;
    if (way == "whole") whole_ms_ = with.step_ms, whole_peak_ = with.peak;
    const double exposed = std::max(0.0, with.step_ms - compute);
    fmt::print("{:<7} {:<10} {:>6} {:>7.1f} ms {:>6.1f} ms {:>6.1f} ms {:>7.1f} % {:>7.3f} x",
               config.comm.emulated_time_scale, way, with.chunked ? chunks : 1, with.step_ms,
               compute, with.alone_ms, 100 * (1 - exposed / with.alone_ms),
               with.step_ms / std::max(compute, with.alone_ms));
    fmt::print(" {:>+8.1f} % {:>7.1f} ms  {:.2f} GiB",
               whole_ms_ > 0 ? 100 * (whole_ms_ / with.step_ms - 1) : 0.0, with.predicted_ms,
               static_cast<double>(with.peak) / (1 << 30));
    if (whole_peak_ > 0) {
      fmt::print(" ({:+.1f} %)",
                 100 * (static_cast<double>(with.peak) / static_cast<double>(whole_peak_) - 1));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

  gt::Config config_;
  c10::Device device_;
  Wanted wanted_;
  double whole_ms_ = 0;
  int64_t whole_peak_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  gt::PrepareCpu();
  try {
    c10::Device device = gt::ChooseDevice(gt::DeviceChoice::kAuto);
    gt::Config config = DefaultJob(device.is_cuda());
    Wanted wanted;
    gt::CommandLine line("overlap_bench", "measures how much communication hides behind compute");
    line.Flag("ways", &wanted.ways, "whole, auto, block, moe_batch, moe_seq")
        .Flag("chunks", &wanted.chunks, "numbers of chunks to try")
        .Flag("scales", &wanted.scales, "factors on the time of collectives")
        .WithConfig(&config);
    if (!line.Parse(count - 1, arguments + 1)) {
      fmt::print("{}", line.Help());
      return 0;
    }
    Table(config, device, wanted).Print();
  } catch (const gt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
