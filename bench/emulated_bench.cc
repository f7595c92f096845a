// A train step of one rank of a cluster that is not there (--comm.backend emulated): its time with
// communication, with communication that is free, and what communication alone would take. All from
// one run each on the same machine, so that their ratios mean something.
//
//   emulated_bench [RANKS...]      expert-parallel degrees to try; default 8 32
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <vector>

#include "gt/base/resources.h"
#include "gt/dist/world.h"
#include "gt/exec/device.h"
#include "gt/sim/link_model.h"
#include "gt/train/optimizer.h"
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

gt::Config JobOf(int64_t ranks, double time_scale, bool gpu) {
  gt::Config config;
  config.model.name = "deepseek_v3";
  config.model.flavor = gpu ? "16B" : "debugmodel";
  config.model.n_layers = gpu ? 8 : 3;
  if (gpu) config.model.vocab_size = 32000;
  config.training.local_batch_size = 2;
  config.training.seq_len = gpu ? 4096 : 128;
  config.training.mixed_precision_param =
      gpu ? gt::TrainingDtype::kBfloat16 : gt::TrainingDtype::kFloat32;
  config.parallelism.expert_parallel_degree = ranks;
  config.ranks = ranks;
  config.comm.backend = gt::CommBackend::kEmulated;
  config.comm.cluster = "h100";
  config.comm.emulated_time_scale = time_scale;
  config.comm.trace_buf_size = 1 << 16;
  config.debug.moe_force_load_balance = true;
  return config;
}

struct Measured {
  double step_ms = 0;
  double alone_ms = 0;    // the collectives of a step, issued together, nothing else running
  double in_turn_ms = 0;  // the same, one after another: by the link model
  std::map<std::string, std::pair<int, double>> by_queue;
};

void AddModelTimes(const std::vector<gt::CollectiveRecord>& collectives, const gt::World& world,
                   Measured* measured) {
  gt::LinkModel links(gt::ReadCluster(gt::ResourcePath("configs/clusters/h100.toml")));
  const std::map<std::string, gt::Collective> kinds = {
      {"all_gather", gt::Collective::kAllGather},
      {"reduce_scatter", gt::Collective::kReduceScatter},
      {"all_reduce", gt::Collective::kAllReduce},
      {"all_to_all", gt::Collective::kAllToAll}};
  for (const gt::CollectiveRecord& record : collectives) {
    const gt::Group* group = world.Find(record.group.str());
    gt::GroupSpan span = gt::SpanOf(group->ranks, links.cluster().gpus_per_node);
    double ms = links.Microseconds(kinds.at(record.kind.str()), record.bytes, span) / 1e3;
    auto& [count, sum] = measured->by_queue[record.group.str() + " " + record.kind.str()];
    ++count;
    sum += ms;
    measured->in_turn_ms += ms;
  }
}

// The same collectives again, on tensors of their sizes.
double TimeAlone(const std::vector<gt::CollectiveRecord>& collectives, c10::Device device) {
  auto bytes_of = [&](int64_t bytes) {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  };
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  gt::Synchronize(device);
  Clock::time_point start = Clock::now();
  for (const gt::CollectiveRecord& record : collectives) {
    auto group = c10d::resolve_process_group(record.group.str());
    int64_t ranks = group->getSize();
    int64_t part = std::max<int64_t>(record.bytes / ranks, 1);
    at::Tensor whole = bytes_of(part * ranks), own = bytes_of(part);
    const std::string& kind = record.kind.str();
    if (kind == "all_gather") {
      works.push_back(group->_allgather_base(whole, own));
    } else if (kind == "reduce_scatter") {
      works.push_back(group->_reduce_scatter_base(own, whole));
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

Measured Measure(int64_t ranks, double time_scale, c10::Device device) {
  gt::Config config = JobOf(ranks, time_scale, device.is_cuda());
  Measured measured;
  gt::World::Run(config, [&](gt::World& world) {
    gt::Mesh mesh(config.parallelism, world.size(), world.rank());
    gt::ModelPtr model = gt::BuildConfiguredModel(config, world, mesh);
    gt::InitializeModel(*model, config, device);
    auto step =
        gt::MakeCapturedStep(*model, gt::CaptureStep(*model, config, device, false, nullptr, mesh));
    auto [rows, length] = std::pair(config.training.local_batch_size, config.training.seq_len);
    at::Tensor numbers = at::randint(model->vocab_size(), {rows, length + 1}, at::kLong);
    gt::Batch batch;
    batch.tokens = numbers.narrow(1, 0, length).contiguous().to(device);
    batch.labels = numbers.narrow(1, 1, length).contiguous().to(device);
    batch.positions = at::arange(length, at::kLong).expand({rows, length}).contiguous().to(device);
    std::vector<double> times;
    std::vector<gt::CollectiveRecord> collectives;  // of one step
    for (int i = 0; i < 8; ++i) {
      gt::Synchronize(device);
      int64_t first = world.record().Last().number + 1;
      Clock::time_point start = Clock::now();
      gt::StepResult result = step->Run(batch, rows * length);
      gt::Synchronize(device);
      if (i >= 3) times.push_back(Milliseconds(start, Clock::now()));
      collectives = world.record().Since(first);
    }
    measured.step_ms = Median(times);
    AddModelTimes(collectives, world, &measured);
    measured.alone_ms = TimeAlone(collectives, device);
  });
  return measured;
}

}  // namespace

int main(int count, char** arguments) {
  gt::PrepareCpu();
  c10::Device device = gt::ChooseDevice(gt::DeviceChoice::kAuto);
  std::vector<int64_t> degrees;
  for (int i = 1; i < count; ++i) degrees.push_back(std::atoll(arguments[i]));
  if (degrees.empty())
    degrees = device.is_cuda() ? std::vector<int64_t>{8, 32} : std::vector<int64_t>{8};
  for (int64_t ranks : degrees) {
    Measured with = Measure(ranks, 1.0, device), without = Measure(ranks, 0.0, device);
    fmt::print("deepseek_v3 on {}, ep {} of {} ranks, links of an H100 cluster\n",
               device.is_cuda() ? "a GPU" : "the CPU", ranks, ranks);
    fmt::print("  step with communication     {:>9.2f} ms\n", with.step_ms);
    fmt::print("  step, communication free    {:>9.2f} ms\n", without.step_ms);
    fmt::print("  communication alone         {:>9.2f} ms with a queue for each group\n",
               with.alone_ms);
    fmt::print("  communication in turn       {:>9.2f} ms by the link model\n", with.in_turn_ms);
    for (const auto& [queue, sum] : with.by_queue) {
      fmt::print("    {:<26}{:>9.2f} ms in {}\n", queue, sum.second, sum.first);
    }
    fmt::print(
        "  with against the larger of free and alone {:.2f} x; all in turn would be {:.2f} x\n",
        with.step_ms / std::max(without.step_ms, with.alone_ms),
        (without.step_ms + with.in_turn_ms) / std::max(without.step_ms, with.alone_ms));
  }
}
