// The memory of a train step under every policy: measured, predicted, and against eager libtorch, which
// runs the same model in the same process. For sac_and_offload also what is moved to the host and back,
// and how much of that time compute hides.
//
//   memory_bench [--policies none,default,full] [options of a job, as gt train takes them]
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/exec/transfer.h"
#include "gt/job/config.h"
#include "gt/torch_bridge/cpu_memory.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/optimizer.h"
#include "gt/train/step/step.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Measured {
  std::string name;
  double step_ms = 0;  // forward and backward, without the update
  int64_t peak = 0;
  int64_t predicted = 0;  // 0: not known
  gt::TransferStats moved;
};

// A model with its optimizer, on which one kind of step after the other runs.
class Job {
 public:
  Job(const gt::Config& config, gt::World& world, c10::Device device, int64_t steps)
      : config_(config),
        world_(world),
        device_(device),
        steps_(steps),
        mesh_(config.parallelism, world.size(), world.rank()),
        model_(gt::BuildConfiguredModel(config, world, mesh_)) {
    gt::InitializeModel(*model_, config, device);
    optimizer_ = std::make_unique<gt::AdamW>(gt::NamedParameters(*model_), config.optimizer);
    int64_t rows = config.training.local_batch_size;
    int64_t length = config.training.seq_len / mesh_.size(gt::MeshAxis::kCp);
    at::Tensor numbers = at::randint(model_->vocab_size(), {rows, length + 1}, at::kLong);
    batch_.tokens = numbers.narrow(1, 0, length).contiguous().to(device);
    batch_.labels = numbers.narrow(1, 1, length).contiguous().to(device);
    batch_.positions = at::arange(length, at::kLong).expand({rows, length}).contiguous().to(device);
    batch_.valid_tokens = rows * length;
  }

  Measured Eager() {
    return Run("eager libtorch", gt::MakeEagerStep(*model_, gt::LossConfigOf(config_, *model_)), 0);
  }

  Measured Captured(gt::MemoryPolicy policy) {
    gt::Config config = config_;
    config.compile.memory_policy = policy;
    gt::CompiledStep captured = gt::Compile(
        {.model = *model_, .config = config, .device = device_, .mesh = mesh_, .world = &world_});
    int64_t predicted = gt::MeasureMemory(*captured.graph, gt::StepMemory(config_, mesh_)).peak;
    return Run(std::string(gt::EnumName(policy)),
               gt::MakeCapturedStep(*model_, std::move(captured)), predicted);
  }

 private:
  Measured Run(const std::string& name, std::unique_ptr<gt::TrainStep> step, int64_t predicted) {
    Measured measured{name, 0, 0, predicted, {}};
    // Libraries make their workspaces, the host its buffers.
    const int64_t warm = device_.is_cuda() ? 2 : 1;
    std::vector<double> times;
    gt::TransferMeter transfers(device_);
    gt::TransferStats before;
    for (int64_t i = 0; i < warm + steps_; ++i) {
      if (i == warm) {
        gt::ResetPeakMemory(device_);
        before = transfers.stats();
      }
      gt::Synchronize(device_);
      Clock::time_point start = Clock::now();
      gt::StepResult result = step->Run(batch_, batch_.valid_tokens);
      gt::Synchronize(device_);
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
      at::NoGradGuard no_gradients;
      optimizer_->Step(gt::OwnGradients(model_->parameters(), std::move(result.gradients)),
                       /*learning_rate=*/0.0);
    }
    std::sort(times.begin() + warm, times.end());
    measured.step_ms = times[static_cast<size_t>(warm + steps_ / 2)];
    measured.peak = gt::MemoryOf(device_).peak;
    gt::TransferStats after = transfers.stats();
    measured.moved = {(after.bytes_out - before.bytes_out) / steps_,
                      (after.bytes_back - before.bytes_back) / steps_,
                      (after.seconds_out - before.seconds_out) / static_cast<double>(steps_),
                      (after.seconds_back - before.seconds_back) / static_cast<double>(steps_)};
    return measured;
  }

  const gt::Config& config_;
  gt::World& world_;
  c10::Device device_;
  int64_t steps_;
  gt::Mesh mesh_;
  gt::ModelPtr model_;
  std::unique_ptr<gt::AdamW> optimizer_;
  gt::Batch batch_;
};

double Ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

void PrintRow(const Measured& row, const std::map<std::string, Measured>& all) {
  std::string line =
      fmt::format("  {:<16} {:>9.1f} ms  {:>10}", row.name, row.step_ms, gt::ByteText(row.peak));
  if (row.predicted > 0) {
    line += fmt::format("  predicted {:>10} ({:+.2f} %)", gt::ByteText(row.predicted),
                        100 * (Ratio(row.predicted, row.peak) - 1));
  }
  for (const char* peer : {"eager libtorch", "default"}) {
    auto found = all.find(peer);
    if (found == all.end() || peer == row.name) continue;
    line += fmt::format("  {:.3f} x {}", Ratio(row.peak, found->second.peak), peer);
  }
  fmt::print("{}\n", line);
}

void PrintMoved(const Measured& row, const Measured& stays) {
  double transfer_ms = 1e3 * (row.moved.seconds_out + row.moved.seconds_back);
  if (row.moved.bytes_out == 0) return;
  fmt::print("  moved out {} and back {} a step", gt::ByteText(row.moved.bytes_out),
             gt::ByteText(row.moved.bytes_back));
  if (transfer_ms > 0) {
    double exposed = std::max(0.0, row.step_ms - stays.step_ms);
    fmt::print(
        " in {:.1f} ms ({:.1f} + {:.1f} GB/s), of which {:.1f} ms show in the step: {:.1f} % "
        "hidden",
        transfer_ms, static_cast<double>(row.moved.bytes_out) / row.moved.seconds_out / 1e9,
        static_cast<double>(row.moved.bytes_back) / row.moved.seconds_back / 1e9, exposed,
        100 * (1 - exposed / transfer_ms));
  }
  fmt::print("\n");
}

}  // namespace

int main(int count, char** arguments) {
  gt::PrepareCpu();
  gt::Config config;
  config.training.mixed_precision_param = gt::ComputeDtype::kBfloat16;
  gt::StringList policies = {"none", "default", "eager", "full", "sac_and_offload"};
  int64_t steps = 3;
  bool with_eager = true;
  gt::CommandLine line("memory_bench", "measures the memory of a train step under every policy");
  line.Flag("policies", &policies, "memory policies to run")
      .Flag("steps", &steps, gt::AtLeast(1), "measured steps of each")
      .Flag("with_eager", &with_eager, "also run the model eagerly, as the reference")
      .WithConfig(&config);
  if (!line.Parse(count - 1, arguments + 1)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  c10::Device device = gt::ChooseDevice(config.device);
  gt::World::Run(config, [&](gt::World& world) {
    gt::MeterScope meter;
    Job job(config, world, device, steps);
    std::map<std::string, Measured> all;
    std::vector<std::string> order;
    auto add = [&](Measured measured) {
      order.push_back(measured.name);
      all.emplace(measured.name, measured);
    };
    if (with_eager) add(job.Eager());
    for (const std::string& name : policies) {
      std::optional<gt::MemoryPolicy> policy = gt::EnumFromName<gt::MemoryPolicy>(name);
      if (!policy) gt::Fail(gt::ErrorCode::kBadOptionValue, "there is no memory policy {}", name);
      add(job.Captured(*policy));
    }
    fmt::print("{}, {} x {} tokens, {} rank{}, {}\n", gt::ModelTitle(config),
               config.training.local_batch_size, config.training.seq_len, world.size(),
               world.size() == 1 ? "" : "s", device.is_cuda() ? "GPU" : "CPU");
    for (const std::string& name : order) PrintRow(all.at(name), all);
    if (all.contains("sac_and_offload") && all.contains("default")) {
      PrintMoved(all.at("sac_and_offload"), all.at("default"));
    }
  });
}
