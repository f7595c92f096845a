// How much of a step's communication hides behind its compute, on one rank of an emulated cluster
// (--comm.backend emulated). For each way to run the step, all on the same machine, one after
// the other: the step, the same graph with collectives that are free, its collectives alone, and what
// was predicted.
//
//   overlap_bench [--ways whole,block,moe_batch,moe_seq] [--chunks 2] [--scales 1] [--eps 32]
//                 [--loads balanced] [--pretended 0] [--random 0] [--predictions] [job flags]
//
// A way is `whole` (no chunks), `auto`, or a kind of module that is cut. Without job flags: deepseek_v3
// with the widths of 16B and 8 layers on a GPU, ep 32 on an H100 cluster; a tiny one, ep 8, on a CPU.
// Under other loads than balanced ones the order is planned anew for what arrives, as in a job.
// --predictions runs the job as its flags say, any model and layout, placed ones too, with the defaults of gt
// and not those above, and compares the step and its compute alone with what was predicted, and a profile of
// one step with the predicted one.
// --random N draws N jobs (ep, links, batch, memory policy), and compares auto with every choice that
// it has, tried one by one.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <vector>

#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/step_compiler.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/exec/transfer.h"
#include "gt/fusion/kernel_store.h"
#include "gt/job/config.h"
#include "gt/nn/module.h"
#include "gt/report/overlap_report.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/routing_loads.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/job_share.h"
#include "gt/train/profile.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/step.h"

namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One rank that stands for all of an emulated cluster.
gt::Config EmulatedJob(bool gpu) {
  gt::Config config;
  config.comm.backend = gt::CommBackend::kEmulated;
  config.comm.cluster = gpu ? "h100" : "slow";
  config.comm.trace_buf_size = 1 << 16;
  config.debug.moe_load = "balanced";
  // What is known of a GPU fits all of its kind; CPUs differ.
  config.compile.costs = gpu ? gt::CostSource::kEstimated : gt::CostSource::kMeasured;
  config.threads = gpu ? 0 : 1;
  return config;
}

gt::Config DefaultJob(bool gpu) {
  gt::Config config = EmulatedJob(gpu);
  config.model.name = "deepseek_v3";
  config.model.flavor = gpu ? "16B" : "tiny";
  config.model.n_layers = gpu ? 8 : 6;
  if (gpu) config.model.vocab_size = 32000;
  config.training.local_batch_size = gpu ? 4 : 8;
  config.training.seq_len = gpu ? 4096 : 512;
  config.training.mixed_precision_param =
      gpu ? gt::ComputeDtype::kBfloat16 : gt::ComputeDtype::kFloat32;
  config.ranks = gpu ? 32 : 8;
  config.parallelism.expert_parallel_degree = config.ranks;
  return config;
}

void Choose(const std::string& way, int64_t chunks, gt::Config* config) {
  gt::EpOverlapSection& overlap = config->compile.ep_overlap;
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

// Weights that are quick to make: what they are does not matter here.
void FillModel(gt::LanguageModel& model, const gt::Config& config, c10::Device device) {
  gt::nn::Allocate(model, device, gt::ToTorch(config.training.dtype));
  at::NoGradGuard no_gradients;
  at::manual_seed(1);
  for (at::Tensor& parameter : model.parameters()) {
    if (parameter.dim() > 1) {
      parameter.normal_(0, 0.02);
    } else {
      parameter.fill_(1);
    }
  }
}

// Plans the order for the rows that really arrive.
std::optional<gt::Timeline> Replan(gt::TrainStep& step, gt::StepCompiler& compiler) {
  const gt::RoutingLoads loads = gt::MeasuredLoads(*step.graph(), step.symbol_values());
  std::unique_ptr<gt::Graph> graph = compiler.Unordered();
  gt::ApplyLoads(*graph, loads);
  compiler.Order(*graph);
  std::optional<gt::Timeline> predicted = compiler.Predict(*graph);
  step.Reorder(std::move(graph));
  return predicted;
}

double MeanLoad(const gt::RoutingLoads& loads) {
  double sum = 0;
  for (const auto& [module, load] : loads.modules) sum += load.mean;
  return loads.modules.empty() ? 1 : sum / static_cast<double>(loads.modules.size());
}

struct Measured {
  double step_ms = 0;
  double host_ms = 0;   // what the host works for it: without waiting for token counts
  double alone_ms = 0;  // its collectives launched back to back, nothing else running
  int64_t peak = 0;
  int64_t predicted_peak = 0;
  bool chunked = false;
  double predicted_ms = 0;
  double predicted_compute_ms = 0;  // while no collective is under way
  std::string comparison;           // of the prediction with a profile
  double load = 1;                  // rows that arrive, relative to an even share
  std::string choice;
};

// Repeats the same collectives on tensors of their sizes: queues that are never empty.
double TimeAlone(const std::vector<gt::CollectiveRecord>& collectives, c10::Device device) {
  // All of them in the same memory: what they send does not matter.
  int64_t largest = 1;
  for (const gt::CollectiveRecord& record : collectives) {
    largest = std::max(largest,
                       record.bytes + c10d::resolve_process_group(record.group.str())->getSize());
  }
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
  const at::Tensor from = at::empty({largest}, bytes), to = at::empty({largest}, bytes);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  gt::Synchronize(device);
  Clock::time_point start = Clock::now();
  for (const gt::CollectiveRecord& record : collectives) {
    auto group = c10d::resolve_process_group(record.group.str());
    const int64_t ranks = group->getSize();
    const int64_t part = std::max<int64_t>(record.bytes / ranks, 1);
    at::Tensor whole = from.narrow(0, 0, part * ranks), own = to.narrow(0, 0, part);
    const std::string& kind = record.kind.str();
    if (kind == "all_gather") {
      works.push_back(group->_allgather_base(whole, own));
    } else if (kind == "reduce_scatter") {
      works.push_back(group->_reduce_scatter_base(own, whole));
    } else if (kind == "all_reduce") {
      std::vector<at::Tensor> tensors = {whole};
      works.push_back(group->allreduce(tensors));
    } else {
      at::Tensor received = to.narrow(0, 0, part * ranks);
      std::vector<int64_t> even;
      works.push_back(group->alltoall_base(received, whole, even, even));
    }
  }
  for (auto& work : works) work->wait();
  gt::Synchronize(device);
  return Milliseconds(start, Clock::now());
}

// What this rank has of a batch of random tokens.
gt::Batch RandomBatch(const gt::LanguageModel& model, const gt::Config& config,
                      const gt::Mesh& mesh, const gt::PlacedJob* placed, c10::Device device) {
  const int64_t rows = config.training.local_batch_size, length = config.training.seq_len;
  const gt::JobShare share =
      placed != nullptr ? gt::JobShare(mesh, rows, *placed) : gt::JobShare(mesh, rows);
  gt::TokenBatch batch;
  batch.rows = rows * share.readers().count();
  batch.length = length;
  std::mt19937_64 random(1);
  for (int64_t row = 0; row < batch.rows; ++row) {
    for (int64_t position = 0; position < length; ++position) {
      batch.tokens.push_back(static_cast<int64_t>(random() % model.vocab_size()));
      batch.labels.push_back(static_cast<int64_t>(random() % model.vocab_size()));
      batch.positions.push_back(position);
    }
  }
  return share.ToDevice(batch, device);
}

// What the step's kernels take if no collective takes anything from them.
double PredictCompute(const gt::Graph& step, gt::Config config, const gt::Mesh& mesh,
                      gt::World& world, c10::Device device) {
  config.comm.contention = false;
  gt::StepCompiler compiler(config, mesh, &world, device, {}, gt::StepCompiler::Audience::kSelf);
  const std::optional<gt::Timeline> predicted = compiler.Predict(step);
  return predicted ? gt::SummarizeOverlap(*predicted).compute / 1e3 : 0;
}

// One more step, with a look at every operator.
std::string CompareWithProfile(gt::TrainStep& step, const gt::Timeline& predicted,
                               const gt::Batch& batch, const gt::Config& config,
                               c10::Device device) {
  gt::StepProfile profile(device);
  step.Run(batch, config.training.local_batch_size * config.training.seq_len);
  gt::Synchronize(device);
  const auto shown = profile.Finish(config.dump_folder + "/profile/step.json");
  return shown ? gt::CompareTable(*shown->graph, predicted, shown->timeline) : "";
}

enum class Also { kNothing, kCollectivesAlone, kProfile };

Measured Measure(const gt::Config& config, c10::Device device, Also also, int steps = 5) {
  Measured measured;
  gt::World::Run(config, [&](gt::World& world) {
    gt::Mesh mesh(config.parallelism, world.size(), world.rank());
    gt::SetThreads(config.threads);
    gt::ModelPtr model = gt::BuildConfiguredModel(config, world, mesh);
    gt::CompiledStep compiled = gt::Compile(
        {.model = *model, .config = config, .device = device, .mesh = mesh, .world = &world});
    if (compiled.placed) gt::KeepPlacedParts(*model, *compiled.placed);
    FillModel(*model, config, device);
    measured.chunked = compiled.chunked;
    for (const std::string& line : compiled.choice) measured.choice += line + "\n";
    if (compiled.predicted) {
      measured.predicted_ms = compiled.predicted->step / 1e3;
    }
    const std::optional<gt::Timeline> predicted = compiled.predicted;
    const std::shared_ptr<gt::StepCompiler> replanner = compiled.replanner;
    const gt::Batch batch = RandomBatch(*model, config, mesh, compiled.placed.get(), device);
    auto step =
        gt::MakeCapturedStep(*model, std::move(compiled),
                             {.device_graphs = gt::RecordsSteps(config),
                              .records_collectives = gt::FactsOf(world.backend()).recordable,
                              .kernel_store = gt::fusion::DefaultKernelFolder()});
    std::vector<double> times, host_times;
    std::vector<gt::CollectiveRecord> collectives;  // of one step
    constexpr int kWarmUp = 4;                      // the third run may record
    constexpr int kOrdinary = 1;  // allocates as predicted; replays allocate nothing
    for (int i = 0; i < kWarmUp + steps; ++i) {
      gt::Synchronize(device);
      if (i == 1 && config.debug.moe_load != "balanced") {
        const gt::RoutingLoads loads = gt::MeasuredLoads(*step->graph(), step->symbol_values());
        measured.load = MeanLoad(loads);
        if (!loads.modules.empty()) measured.predicted_ms = 0;  // that was for other loads
        if (replanner) {
          if (auto predicted = Replan(*step, *replanner)) {
            measured.predicted_ms = predicted->step / 1e3;
          }
        }
      }
      if (i == kOrdinary) gt::ResetPeakMemory(device);
      const int64_t first = world.record().Last().number + 1;
      const double awaited = gt::SecondsAwaited();
      Clock::time_point start = Clock::now();
      gt::StepResult result =
          step->Run(batch, config.training.local_batch_size * config.training.seq_len);
      const double host =
          Milliseconds(start, Clock::now()) - 1e3 * (gt::SecondsAwaited() - awaited);
      gt::Synchronize(device);
      if (i == kOrdinary) measured.peak = gt::MemoryOf(device).peak;
      if (i < kWarmUp) continue;
      times.push_back(Milliseconds(start, Clock::now()));
      host_times.push_back(host);
      collectives = world.record().Since(first);
    }
    measured.step_ms = Median(times);
    measured.host_ms = Median(host_times);
    gt::MemoryOptions memory;
    memory.symbols.assign(step->symbol_values().begin(), step->symbol_values().end());
    memory.cuda_workspace_bytes = gt::StepMemory(config, mesh).cuda_workspace_bytes;
    measured.predicted_peak = gt::MeasureMemory(*step->graph(), memory).peak;
    if (also == Also::kCollectivesAlone) measured.alone_ms = TimeAlone(collectives, device);
    if (also == Also::kProfile && predicted) {
      measured.predicted_compute_ms = PredictCompute(*step->graph(), config, mesh, world, device);
      measured.comparison = CompareWithProfile(*step, *predicted, batch, config, device);
    }
  });
  return measured;
}

struct Wanted {
  gt::StringList ways = {"whole", "block", "moe_batch", "moe_seq"};
  gt::StringList chunks = {"2"};
  gt::StringList scales = {"1"};
  gt::StringList eps;        // empty: as the job says
  gt::StringList loads;      // likewise
  gt::StringList pretended;  // likewise
  int64_t random = 0;
  int64_t seed = 1;
  bool predictions = false;
};

double Gibibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

class Table {
 public:
  Table(gt::Config config, c10::Device device, Wanted wanted)
      : config_(std::move(config)), device_(device), wanted_(std::move(wanted)) {
    if (wanted_.eps.empty()) {
      wanted_.eps = {std::to_string(config_.parallelism.expert_parallel_degree)};
    }
    if (wanted_.loads.empty()) wanted_.loads = {config_.debug.moe_load};
    if (wanted_.pretended.empty()) {
      wanted_.pretended = {std::to_string(config_.comm.pretended_rank)};
    }
  }

  void Print() {
    fmt::print(
        "  ep links load      rank (load) way       chunks     step  compute  network net/comp  "
        "hidden of larger speed-up predicted (error)     peak predicted (error)     host\n");
    for (const std::string& ep : wanted_.eps) {
      for (const std::string& load : wanted_.loads) {
        for (const std::string& rank : wanted_.pretended) {
          for (const std::string& scale : wanted_.scales) {
            config_.ranks = config_.parallelism.expert_parallel_degree = std::stoll(ep);
            config_.debug.moe_load = load;
            config_.comm.pretended_rank = std::stoll(rank);
            config_.comm.emulated_time_scale = std::stod(scale);
            whole_ms_ = 0;
            PrintWays();
          }
        }
      }
    }
    PrintErrors();
  }

 private:
  void PrintWays() {
    for (const std::string& way : wanted_.ways) {
      const bool fixed = way == "whole" || way == "auto";
      for (const std::string& chunks : fixed ? gt::StringList{"1"} : wanted_.chunks) {
        PrintRow(way, std::stoll(chunks));
      }
    }
  }

  void PrintRow(const std::string& way, int64_t chunks) {
    gt::Config config = config_;
    Choose(way, std::max<int64_t>(chunks, 2), &config);
    const Measured with = Measure(config, device_, Also::kCollectivesAlone);
    if (way == "whole") whole_ms_ = with.step_ms;
    fmt::print("{:>4} {:<5} {:<9} {:>4} {:>5.2f}  {:<10} {:>5} {:>8.1f}", config.ranks,
               config.comm.emulated_time_scale, config.debug.moe_load, config.comm.pretended_rank,
               with.load, way, with.chunked ? chunks : 1, with.step_ms);
    if (way == "whole" || way == "auto") {
      fmt::print(" {:>8} {:>8.1f} {:>8} {:>7} {:>9}", "", with.alone_ms, "", "", "");
    } else {
      // The very same order of nodes, which was made for the links as they are: only these are free.
      config.debug.free_collectives = true;
      const double compute = Measure(config, device_, Also::kNothing).step_ms;
      const double exposed = std::max(0.0, with.step_ms - compute);
      fmt::print(" {:>8.1f} {:>8.1f} {:>8.2f} {:>5.1f} % {:>7.3f} x", compute, with.alone_ms,
                 with.alone_ms / compute, 100 * (1 - exposed / with.alone_ms),
                 with.step_ms / std::max(compute, with.alone_ms));
    }
    const double error = 100 * (with.predicted_ms / with.step_ms - 1);
    const double peak_error = 100 * (Gibibytes(with.predicted_peak) / Gibibytes(with.peak) - 1);
    if (with.predicted_ms > 0) errors_.push_back(std::abs(error));
    fmt::print(" {:>+7.1f} % {:>9.1f} {:>+6.1f} % {:>8.2f} {:>9.2f} {:>+6.1f} % {:>8.1f}\n",
               whole_ms_ > 0 ? 100 * (whole_ms_ / with.step_ms - 1) : 0.0, with.predicted_ms, error,
               Gibibytes(with.peak), Gibibytes(with.predicted_peak), peak_error, with.host_ms);
    if (!with.choice.empty()) fmt::print("     {}", with.choice);
    std::fflush(stdout);
  }

  void PrintErrors() {
    if (errors_.empty()) return;
    fmt::print("predicted against measured steps: median {:.1f} %, worst {:.1f} %\n",
               Median(errors_), *std::max_element(errors_.begin(), errors_.end()));
  }

  gt::Config config_;
  c10::Device device_;
  Wanted wanted_;
  double whole_ms_ = 0;
  std::vector<double> errors_;
};

// The job as it is.
void PrintPredictions(gt::Config config, c10::Device device) {
  const Measured with = Measure(config, device, Also::kProfile);
  config.debug.free_collectives = true;
  const Measured alone = Measure(config, device, Also::kNothing);
  auto error = [](double predicted, double measured) { return 100 * (predicted / measured - 1); };
  fmt::print(
      "{} on {} ranks: step {:.1f} ms, predicted {:.1f} ({:+.1f} %); compute alone {:.1f} ms, "
      "predicted {:.1f} ({:+.1f} %)\n",
      gt::ModelTitle(config), config.ranks, with.step_ms, with.predicted_ms,
      error(with.predicted_ms, with.step_ms), alone.step_ms, with.predicted_compute_ms,
      error(with.predicted_compute_ms, alone.step_ms));
  fmt::print("{}", with.comparison);
}

// auto against all that it can choose from.
class Lottery {
 public:
  Lottery(gt::Config config, c10::Device device, const Wanted& wanted)
      : config_(std::move(config)), device_(device), random_(wanted.seed), jobs_(wanted.random) {}

  void Print() {
    fmt::print(
        "  ep links  rows  policy           whole     auto     best (which)     auto/best  "
        "auto/whole\n");
    for (int64_t job = 0; job < jobs_; ++job) PrintJob();
    fmt::print("auto / best: median {:.3f}, worst {:.3f}; auto / whole: worst {:.3f}\n",
               Median(to_best_), *std::max_element(to_best_.begin(), to_best_.end()),
               *std::max_element(to_whole_.begin(), to_whole_.end()));
  }

 private:
  template <typename T>
  T Draw(const std::vector<T>& of) {
    return of[random_() % of.size()];
  }

  double TimeOf(const gt::Config& config) {
    return Measure(config, device_, Also::kNothing, kSteps).step_ms;
  }

  void PrintJob() {
    gt::Config config = config_;
    config.ranks = config.parallelism.expert_parallel_degree = Draw<int64_t>({8, 16, 32, 64});
    config.comm.emulated_time_scale = Draw<double>({0.1, 0.3, 0.6, 1, 1.5, 3});
    config.training.local_batch_size = Draw<int64_t>({1, 2, 3, 4, 6});
    config.compile.memory_policy =
        Draw<gt::MemoryPolicy>({gt::MemoryPolicy::kNone, gt::MemoryPolicy::kDefault,
                                gt::MemoryPolicy::kFull, gt::MemoryPolicy::kNone});
    std::map<std::string, double> times;
    auto try_one = [&](const std::string& way, int64_t chunks) {
      gt::Config chosen = config;
      Choose(way, chunks, &chosen);
      times[way == "whole" ? way : fmt::format("{} {}", way, chunks)] = TimeOf(chosen);
    };
    try_one("whole", 2);
    for (int64_t chunks : {2, 3}) {
      if (chunks <= config.training.local_batch_size) {
        try_one("block", chunks);
        if (chunks == 2) try_one("moe_batch", chunks);
      }
      try_one("moe_seq", chunks);
    }
    gt::Config automatic = config;
    Choose("auto", 2, &automatic);
    const Measured chosen = Measure(automatic, device_, Also::kNothing, kSteps);
    const auto best =
        std::min_element(times.begin(), times.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    to_best_.push_back(chosen.step_ms / best->second);
    to_whole_.push_back(chosen.step_ms / times.at("whole"));
    fmt::print("{:>4} {:>5} {:>5}  {:<12} {:>8.1f} {:>8.1f} {:>8.1f} ({:<11}) {:>7.3f} {:>9.3f}\n",
               config.ranks, config.comm.emulated_time_scale, config.training.local_batch_size,
               gt::EnumName(config.compile.memory_policy), times.at("whole"), chosen.step_ms,
               best->second, best->first, to_best_.back(), to_whole_.back());
    fmt::print("     {}", chosen.choice);
    std::fflush(stdout);
  }

  static constexpr int kSteps = 3;

  gt::Config config_;
  c10::Device device_;
  std::mt19937_64 random_;
  int64_t jobs_;
  std::vector<double> to_best_, to_whole_;
};

}  // namespace

int main(int count, char** arguments) {
  gt::PrepareCpu();
  try {
    c10::Device device = gt::ChooseDevice(gt::DeviceChoice::kAuto);
    // The job that gt simulate predicts with the same flags.
    const bool as_flags_say =
        std::ranges::any_of(std::span(arguments, static_cast<size_t>(count)),
                            [](std::string_view argument) { return argument == "--predictions"; });
    gt::Config config = as_flags_say ? EmulatedJob(device.is_cuda()) : DefaultJob(device.is_cuda());
    Wanted wanted;
    gt::CommandLine line("overlap_bench", "measures how much communication hides behind compute");
    line.Flag("ways", &wanted.ways, "whole, auto, block, moe_batch, moe_seq")
        .Flag("chunks", &wanted.chunks, "numbers of chunks to try")
        .Flag("scales", &wanted.scales, "factors on the time of collectives")
        .Flag("eps", &wanted.eps, "degrees of expert parallelism, of as many ranks")
        .Flag("loads", &wanted.loads, "values of debug.moe_load")
        .Flag("pretended", &wanted.pretended, "ranks to be")
        .Flag("random", &wanted.random, gt::AtLeast(0),
              "jobs to draw, for auto against its choices")
        .Flag("seed", &wanted.seed, gt::AtLeast(0), "of that draw")
        .Flag("predictions", &wanted.predictions,
              "the job as its flags say, and what was predicted")
        .WithConfig(&config);
    if (!line.Parse(count - 1, arguments + 1)) {
      fmt::print("{}", line.Help());
      return 0;
    }
    if (wanted.predictions) {
      PrintPredictions(config, device);
    } else if (wanted.random > 0) {
      Lottery(config, device, wanted).Print();
    } else {
      Table(config, device, wanted).Print();
    }
  } catch (const gt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
