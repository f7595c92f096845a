#include "gt/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/machine_memory.h"
#include "gt/base/text.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_advice.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/step_compiler.h"
#include "gt/dist/agreement.h"
#include "gt/dist/world.h"
#include "gt/exec/host_pool.h"
#include "gt/launch/child_process.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/models/loss.h"
#include "gt/report/memory_report.h"
#include "gt/report/overlap_report.h"
#include "gt/report/progress_bar.h"
#include "gt/report/tensorboard.h"
#include "gt/sim/memory_curve.h"
#include "gt/storage/file_writer.h"
#include "gt/torch_bridge/cpu_memory.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/generator.h"
#include "gt/train/batch.h"
#include "gt/train/captured_step.h"
#include "gt/train/checkpoint.h"
#include "gt/train/eager_step.h"
#include "gt/train/fault.h"
#include "gt/train/job_data.h"
#include "gt/train/load_watch.h"
#include "gt/train/metrics.h"
#include "gt/train/optimizer.h"
#include "gt/train/profile.h"
#include "gt/train/run_folder.h"
#include "gt/train/signals.h"
#include "gt/train/state_hash.h"
#include "gt/train/step.h"
#include "gt/train/tokenizer_export.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

StepResult CopyOf(const StepResult& result) {
  StepResult copy{result.loss.clone(), {}};
  for (const at::Tensor& gradient : result.gradients) {
    copy.gradients.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  return copy;
}

// Batches whose gradients are added up before each update.
int64_t MicroBatches(const Config& config, const Mesh& mesh) {
  const auto& training = config.training;
  if (training.global_batch_size == 0) return 1;
  int64_t at_a_time = training.local_batch_size * mesh.size(MeshAxis::kBatch);
  if (training.global_batch_size % at_a_time != 0) {
    Fail(ErrorCode::kConflictingOptions,
         "--training.global_batch_size {} must be a multiple of the {} sequences that "
         "--training.local_batch_size {} makes on {} data-parallel rank{}",
         training.global_batch_size, at_a_time, training.local_batch_size,
         mesh.size(MeshAxis::kBatch), mesh.size(MeshAxis::kBatch) == 1 ? "" : "s");
  }
  return training.global_batch_size / at_a_time;
}

// With several ranks on a machine, each computes with one thread unless told otherwise: the bits then
// do not depend on the number of cores.
int64_t ThreadsOf(const Config& config, const World& world) {
  return config.threads == 0 && world.size() > 1 ? 1 : config.threads;
}

class Run {
 public:
  Run(const Config& config, World& world)
      : config_(config),
        world_(world),
        mesh_(config.parallelism, world.size(), world.rank()),
        micro_batches_(MicroBatches(config, mesh_)),
        profiled_(ParseSteps(config.profiling.steps)),
        fault_(ParseFault(config.debug.fault)),
        device_(ChooseDevice(config.device, world.local_rank())) {
    RefusePretence();
    AgreeOnConfig(world, config);
    ClaimFolder();
    SetThreads(ThreadsOf(config, world));
    SetDeterministic(config.training.deterministic);
    SetLimits();
    if (device_.is_cpu() || world.ranks_in_process() > 1) generator_.emplace(device_);
    model_ = BuildConfiguredModel(config, world, mesh_);
    const bool bytes_chosen = SettleTokenizer(&config_, model_->vocab_size());
    codec_ = std::make_unique<TextCodec>(config_);
    data_ = MakeTrainingData(config, *model_, *codec_, mesh_);
    if (config.validation.enable) {
      validation_ = MakeValidationData(config, *model_, *codec_, mesh_);
    }
    if (config.metrics.enable_tensorboard && world.first()) {
      tensorboard_ = std::make_unique<TensorBoardWriter>(config.dump_folder + "/tb");
    }
    Introduce();
    if (bytes_chosen) {
      Say("tokens are bytes: a vocabulary of {} is too small for the tokenizer that ships with gt",
          model_->vocab_size());
    }
    // Before minutes are spent on parameters: a step that cannot be captured or does not fit is
    // refused here.
    PlanStep();
    // Every rank has looked at the memory that is left before one of them takes of it.
    world.Barrier();
    InitializeModel(*model_, config, device_);
    parameters_ = model_->parameters();
    optimizer_ = std::make_unique<AdamW>(NamedParameters(*model_), config.optimizer);
    checkpoints_ =
        std::make_unique<Checkpointer>(config_, *model_, *optimizer_, device_, world, mesh_);
    if (config.checkpoint.enable) Resume();
    if (world.first()) PrepareFolder();
    MakeStep();
  }

  TrainSummary Train() {
    TrainSummary summary;
    summary.steps = progress_.step;
    SignalWatch signals;
    first_step_ = progress_.step;
    ResetPeakMemory(device_);
    bar_ = std::make_unique<ProgressBar>(config_.training.steps, first_step_, stderr);
    start_ = before_ = Clock::now();
    while (progress_.step < config_.training.steps && stop_signal_ == 0) {
      StepMetrics metrics = OneStep(signals.received());
      if (metrics.step == first_step_ + 1) summary.first_loss = metrics.loss;
      summary.last_loss = metrics.loss;
      summary.steps = metrics.step;
    }
    summary.signal = stop_signal_;
    bar_->Clear();
    Finish(summary);
    return summary;
  }

 private:
  // Of the first rank alone.
  template <typename... Args>
  void Say(fmt::format_string<Args...> format, Args&&... args) const {
    if (!world_.first()) return;
    // Not fmt::print, which throws: a log that cannot be written must not end the run. The program
    // reports it when it ends.
    std::fputs((fmt::format(format, std::forward<Args>(args)...) + "\n").c_str(), stdout);
    std::fflush(stdout);  // a line is news: it must not wait in a pipe's buffer
  }

  // One rank of many has nothing but its own parts of the model.
  void RefusePretence() const {
    if (world_.backend() == CommBackend::kFake) {
      Fail(ErrorCode::kConflictingOptions,
           "--comm.backend fake sends nothing, so nothing can be trained with it; gt trace and gt "
           "memory use it, and --comm.backend emulated runs one rank of many");
    }
    if (world_.pretended() && config_.checkpoint.enable) {
      Fail(ErrorCode::kConflictingOptions,
           "--checkpoint.enable does not go with --comm.backend emulated: the other ranks, which "
           "would save their parts, are not there");
    }
  }

  // The other ranks wait, since nothing could end them while they wait for rank 0 to connect.
  void ClaimFolder() {
    world_.DecideForAll("the folder of the run", [this] {
      if (world_.first()) folder_.emplace(config_);
      return std::string();
    });
  }

  void PrepareFolder() {
    RequireRoom();
    if (progress_.step == 0) {
      for (const std::string& line : folder_->WhatIsThere()) Say("{}", line);
    }
    metrics_ = std::make_unique<MetricsFile>(config_.dump_folder, progress_.step);
    WriteFile(folder_->Path("config.toml"), ToToml(config_));
    if (!predicted_table_.empty()) WriteFile(folder_->Path("overlap.txt"), predicted_table_);
  }

  // Checkpoints pile up, and the weights are written at the very end, when it would be too late to
  // learn of a full disk.
  void RequireRoom() const {
    std::vector<SpaceNeed> needs;
    if (config_.checkpoint.enable) needs.push_back(checkpoints_->SpaceAfter(progress_.step));
    if (config_.checkpoint.last_save_in_hf) {
      auto size = static_cast<int64_t>(at::elementSize(ToTorch(config_.checkpoint.export_dtype)));
      const int64_t bytes = nn::ParameterCount(*model_) * size;
      needs.push_back({config_.dump_folder, bytes, fmt::format("weights of {}", BytesText(bytes))});
    }
    RequireSpace(needs);
  }

  // Sequences of all ranks and batches of one update.
  int64_t SequencesPerStep() const {
    return micro_batches_ * config_.training.local_batch_size * mesh_.size(MeshAxis::kBatch);
  }

  void Introduce() const {
    Say("{}: {} parameters, {} on {}", ModelTitle(config_),
        FormatCount(static_cast<double>(nn::ParameterCount(*model_))), Precision(), Where());
    std::string accumulated = micro_batches_ == 1 ? "" : fmt::format("{} x ", micro_batches_);
    if (world_.size() > 1) Say("{}: {}", world_.Describe(), mesh_.Describe());
    Say("data: {}, {}{} x {} tokens a step, {} steps", data_->Describe(), accumulated,
        SequencesPerStep() / micro_batches_, config_.training.seq_len, config_.training.steps);
  }

  void Resume() {
    checkpoints_->Prepare();
    world_.Barrier();  // the folder is there
    std::optional<DataProgress> data = checkpoints_->Load(&progress_);
    if (!data) return;
    ContinueData(*data);
    Say("continuing after step {} from {}", progress_.step, checkpoints_->folder());
    for (const OptionChange& change : checkpoints_->changes()) {
      Say("  changed since then: {} {} -> {}", change.name, change.before, change.now);
    }
    if (progress_.step >= config_.training.steps) {
      Say("all {} steps are done already; raise --training.steps to go on", config_.training.steps);
    }
  }

  // Exactly where each rank's loader was, or, when the data is now shared out among another number of
  // ranks, so far on as all of them together had read.
  void ContinueData(const DataProgress& data) {
    auto readers = static_cast<int64_t>(data.loaders.size());
    if (readers == mesh_.size(MeshAxis::kBatch)) {
      data_->Restore(data.loaders[static_cast<size_t>(mesh_.coordinate(MeshAxis::kBatch))]);
      return;
    }
    int64_t rows = progress_.batches * data.rows * readers;
    int64_t at_a_time = config_.training.local_batch_size * mesh_.size(MeshAxis::kBatch);
    progress_.batches = rows / at_a_time;
    Say("the data was shared out among {} rank{} and is now among {}: every rank skips {} batches",
        readers, readers == 1 ? "" : "s", mesh_.size(MeshAxis::kBatch), progress_.batches);
    for (int64_t i = 0; i < progress_.batches; ++i) data_->Next();
  }

  std::string Precision() const {
    std::string stored(EnumName(config_.training.dtype));
    std::string compute(EnumName(config_.training.mixed_precision_param));
    return stored == compute ? stored : stored + " (compute in " + compute + ")";
  }

  std::string Where() const {
    if (device_.is_cuda()) {
      return fmt::format("cuda, float32 matrix products in {}", Float32Products());
    }
    return fmt::format("cpu with {} thread{}", at::get_num_threads(),
                       at::get_num_threads() == 1 ? "" : "s");
  }

  void SetLimits() {
    if (config_.training.memory_limit_gb > 0) {
      const int64_t limited = device_.is_cuda() ? world_.ranks_in_process() : 1;
      LimitMemory(device_, limited * Gibibytes(config_.training.memory_limit_gb));
    }
    HostPool::Instance().Limit(Gibibytes(config_.debug.host_memory_gb));
  }

  // The captured step, before any of its tensors has memory.
  void PlanStep() {
    bool eager = config_.compile.mode == CompileMode::kEager;
    if (eager && world_.size() == 1) return;
    Config planned = config_;
    if (eager) planned.compile.costs = CostSource::kEstimated;  // only collectives are looked at
    CompiledStep& compiled = captured_.emplace(Compile(
        {.model = *model_, .config = planned, .device = device_, .mesh = mesh_, .world = &world_}));
    AgreeOnCollectives(world_, *compiled.graph);
    if (eager) {  // captured for the sake of that comparison
      captured_.reset();
      return;
    }
    memory_ = StepMemory(config_, mesh_);
    MemoryCurve curve = MeasureMemory(*compiled.graph, memory_);
    predicted_peak_ = AllocatedPeak(curve);
    Say("captured {} nodes in {:.0f} ms, {} after passes ({:.0f} ms)",
        FormatCount(static_cast<double>(compiled.captured_nodes)), compiled.capture_seconds * 1e3,
        FormatCount(static_cast<double>(compiled.graph->node_count())),
        compiled.passes.seconds * 1e3);
    Say("memory at the peak: {}{}", MemoryLine(curve), OnHost(curve));
    for (const std::string& line : compiled.choice) Say("{}", line);
    predicted_ = std::move(compiled.predicted);
    compiler_ = std::move(compiled.replanner);
    planned_loads_ = std::move(compiled.loads);
    if (predicted_) {
      SayOverlap(compiled.passes);
      predicted_table_ = OverlapTable(*compiled.graph, *predicted_, curve.peak);
    }
    if (config_.training.check_memory) RequireFit(curve);
  }

  void SayOverlap(const PipelineReport& passes) const {
    const OverlapSummary summary = SummarizeOverlap(*predicted_);
    Say("predicted step: {:.1f} ms, of which {:.1f} ms compute and {:.1f} ms communication, {:.0f} "
        "% "
        "of it hidden",
        summary.step / 1e3, summary.compute / 1e3, summary.communication / 1e3,
        100 * summary.hidden_share());
    if (const std::string line = WhatMemoryCosts(passes); !line.empty()) Say("{}", line);
  }

  std::string OnHost(const MemoryCurve& curve) const {
    const bool copies = device_.is_cuda() && curve.state_copies > 0;
    const bool offloads = config_.compile.memory_policy == MemoryPolicy::kSacAndOffload;
    if (!offloads && !copies) return "";
    return fmt::format("; {} in host memory", ByteText(curve.elsewhere_peak));
  }

  void RequireFit(const MemoryCurve& curve) {
    if (device_.is_cuda()) RequireFitOnHost(curve);
    int64_t available = MemoryForRank(world_, device_);
    std::string_view source = device_.is_cuda() ? "the GPU has" : "this machine has room for";
    if (const double limit = config_.training.memory_limit_gb;
        limit > 0 && Gibibytes(limit) < available) {
      available = Gibibytes(limit);
      source = "--training.memory_limit_gb allows";
    }
    if (curve.peak <= available) return;
    constexpr size_t kRows = 8;
    const int64_t sharing =
        device_.is_cuda() ? world_.ranks_on_device() : world_.ranks_on_machine();
    Fail(ErrorCode::kDoesNotFit, "the step needs {} at its peak, and {} {}{}\n{}{}",
         ByteText(curve.peak), source, ByteText(available), sharing > 1 ? " for each rank" : "",
         AliveTable(*captured_->graph, curve, kRows),
         MemoryAdvice(config_, world_, mesh_, device_, available));
  }

  // Checkpoints that are written in the background need host memory that a small machine with a large
  // GPU may not have; it would be taken in the middle of the run. Activations that are moved to the
  // host have an error of their own.
  void RequireFitOnHost(const MemoryCurve& curve) const {
    const int64_t copies = curve.state_copies, available = HostMemoryForRank(world_);
    if (copies == 0 || curve.elsewhere_peak <= available) return;
    Fail(ErrorCode::kDoesNotFit,
         "checkpoints that are written in the background need {} of host memory in all, {} of it "
         "for copies of the state, and this machine has {}, for each rank; write them with "
         "--checkpoint.async_mode disabled, which takes no copies",
         ByteText(curve.elsewhere_peak), ByteText(copies), ByteText(available));
  }

  void MakeStep() {
    if (!captured_) {
      step_ = MakeEagerStep(*model_, LossConfigOf(config_, *model_));
      Say("running eagerly");
      if (config_.compile.ep_overlap.enabled == AutoSwitch::kAuto) {
        Say("chunks: no, since an eager step has no graph to choose them by");
      }
      return;
    }
    step_ = MakeCapturedStep(*model_, std::move(*captured_),
                             {.executor = config_.compile.executor,
                              .device_graph = config_.compile.cuda_graphs,
                              .memory = memory_});
    if (!compiler_) return;
    loads_.emplace(world_, config_.compile.ep_overlap.replan_interval, progress_.step + 1);
    loads_->SetPlan(*step_->graph(), planned_loads_);
  }

  // Experts get other numbers of rows than the step was planned for: the same nodes, in a new order.
  void FollowLoads(StepMetrics& metrics) {
    std::optional<LoadWatch::Agreement> agreed = loads_->AfterStep(metrics.step);
    if (!agreed) return;
    metrics.load_imbalance = agreed->imbalance;
    if (!agreed->renew) return;
    const double before = predicted_ ? predicted_->step : 0;
    std::unique_ptr<Graph> graph = compiler_->Unordered();
    ApplyLoads(*graph, agreed->loads);
    compiler_->Order(*graph);
    predicted_ = compiler_->Predict(*graph);
    predicted_peak_ = AllocatedPeak(MeasureMemory(*graph, memory_));
    step_->Reorder(std::move(graph));
    loads_->SetPlan(*step_->graph(), agreed->loads);
    bar_->Clear();
    Say("new order: {}; predicted step {:.1f} ms (the old plan said {:.1f})", agreed->Describe(),
        predicted_ ? predicted_->step / 1e3 : 0.0, before / 1e3);
  }

  // `signal`: what this rank has received; one rank's stops all.
  StepMetrics OneStep(int signal) {
    StepMetrics metrics;
    metrics.step = progress_.step + 1;
    if (fault_) fault_->Strike(world_.rank(), metrics.step, device_);
    nlohmann::json data_before = data_->State();
    int64_t tokens_before = progress_.tokens;
    double waited = data_->waited_seconds();
    StepResult result = RunMicroBatches(metrics.step);
    Clipping clipping = SumUp(result, signal, &metrics);
    if (config_.metrics.hashes) {
      metrics.hashes = HashStep(*model_, result.gradients, world_, mesh_);
    }
    metrics.learning_rate =
        config_.optimizer.lr *
        LearningRateFactor(progress_.step, config_.training.steps, config_.lr_scheduler);
    // Weights are never updated from a broken gradient: they stay as they were before the step.
    bool finite = std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm);
    if (finite) {
      BeforeUpdate();
      optimizer_->Step(result.gradients, metrics.learning_rate, clipping.factor);
      progress_.step = metrics.step;
    }
    if (loads_) FollowLoads(metrics);
    metrics.data_wait = data_->waited_seconds() - waited;
    metrics.tokens = progress_.tokens;
    bool validate =
        validation_ != nullptr && finite &&
        (metrics.step % config_.validation.freq == 0 || metrics.step == config_.training.steps);
    if (validate) metrics.validation_loss = ValidationLoss();
    Clock::time_point now = Clock::now();
    metrics.seconds = Seconds(before_, now);
    FillRates(metrics);
    before_ = now;
    if (world_.first()) Report(metrics);
    if (!finite) FailNonFinite(metrics, std::move(data_before), tokens_before);
    if (config_.checkpoint.enable && metrics.step % config_.checkpoint.interval == 0 &&
        metrics.step != config_.training.steps) {
      SaveCheckpoint();
      before_ = Clock::now();  // the next step's speed is its own
    }
    return metrics;
  }

  // Losses add up over the ranks with different tokens, squares of gradients over those with different
  // parts of the parameters: replicas have the same.
  Clipping SumUp(const StepResult& result, int signal, StepMetrics* metrics) {
    double norm = GradientNorm(result.gradients);
    double loss = result.loss.to(at::kDouble).item<double>();
    if (world_.size() > 1) {
      bool replica = mesh_.coordinate(MeshAxis::kDpReplicate) > 0;
      std::vector<double> sums =
          world_.Sum({OfOwnTokens(loss), replica ? 0.0 : norm * norm, static_cast<double>(signal),
                      static_cast<double>(signal > 0 ? 1 : 0)});
      loss = sums[0];
      norm = std::sqrt(sums[1]);
      if (sums[3] > 0) {  // the same one for all who have received any; if not, the usual one
        signal = static_cast<int>(sums[2] / sums[3]);
        if (!IsStopSignal(signal)) signal = SIGTERM;
      }
    }
    stop_signal_ = signal;
    metrics->loss = loss;
    metrics->grad_norm = norm;
    return ClippingFor(norm, config_.training.max_norm);
  }

  void BeforeUpdate() {
    model_->BeforeUpdate([this](const at::Tensor& counts) {
      if (world_.size() == 1) return counts;
      at::Tensor host = counts.to(at::kCPU, at::kDouble).contiguous();
      const double* data = host.const_data_ptr<double>();
      std::vector<double> sums = world_.Sum({data, data + host.numel()});
      return at::from_blob(sums.data(), host.sizes(), at::kDouble)
          .to(counts.options(), /*non_blocking=*/false, /*copy=*/true);
    });
  }

  // Loss and gradients of all batches of one update, divided by the tokens of all of them.
  StepResult RunMicroBatches(int64_t step) {
    std::vector<Batch> batches;
    int64_t valid_tokens = 0;
    for (int64_t i = 0; i < micro_batches_; ++i) {
      batches.push_back(ToDevice(data_->Next(), device_, mesh_));
      valid_tokens += batches.back().valid_tokens;
    }
    valid_tokens = SumOfTokens(valid_tokens);
    progress_.tokens += valid_tokens;
    progress_.batches += micro_batches_;
    progress_.data = data_->State();
    std::optional<StepProfile> profile;
    if (profiled_.contains(step)) profile.emplace(device_);
    StepResult total;
    at::NoGradGuard no_gradients;
    for (size_t i = 0; i < batches.size(); ++i) {
      const Batch& batch = batches[i];
      SeedGenerator(device_,
                    RandomSeed(progress_.batches - micro_batches_ + static_cast<int64_t>(i)));
      StepResult part = RunStep(batch, std::max<int64_t>(valid_tokens, 1));
      if (loads_) loads_->Add(step_->symbol_values());
      if (micro_batches_ > 1 && step_->reuses_results()) part = CopyOf(part);
      std::vector<at::Tensor> owned = OwnGradients(parameters_, std::move(part.gradients));
      if (!total.loss.defined()) {
        total = {part.loss, std::move(owned)};
        continue;
      }
      total.loss = total.loss + part.loss;
      AddGradients(total.gradients, owned);
    }
    if (profile) ReportProfile(*profile, step);
    return total;
  }

  // Every rank was observed; the first one tells.
  void ReportProfile(StepProfile& profile, int64_t step) {
    std::string folder = config_.dump_folder + "/profile";
    std::string path = world_.first()
                           ? fmt::format("{}/step_{}.json", folder, step)
                           : fmt::format("{}/step_{}_rank_{}.json", folder, step, world_.rank());
    std::optional<StepProfile::Shown> shown = profile.Finish(path);
    if (!world_.first()) return;
    bar_->Clear();
    Say("profile of step {} in {}", step, path);
    if (!shown) return;
    shown->costs.device = device_.is_cuda() ? "cuda" : "cpu";
    WriteFile(folder + "/costs.json", shown->costs.ToJson());
    Say("times of its operators in {}/costs.json, for --compile.costs_file", folder);
    if (!predicted_) return;
    Say("{}{}", OverlapTable(*shown->graph, shown->timeline, MemoryOf(device_).peak),
        CompareTable(*shown->graph, *predicted_, shown->timeline));
  }

  // Every batch of every rank draws numbers of its own, and the same ones when the run is continued.
  uint64_t RandomSeed(int64_t batch) const {
    uint64_t seed = static_cast<uint64_t>(config_.training.seed);
    for (uint64_t part : {static_cast<uint64_t>(world_.rank()), static_cast<uint64_t>(batch)}) {
      seed = (seed ^ part) * 0x9e3779b97f4a7c15ull;
      seed ^= seed >> 32;
    }
    return seed;
  }

  // What a rank adds to a sum over tokens: tensor-parallel ranks see the same ones, and the first counts.
  double OfOwnTokens(double number) const {
    return mesh_.coordinate(MeshAxis::kTp) > 0 ? 0.0 : number;
  }

  int64_t SumOfTokens(int64_t here) {
    return static_cast<int64_t>(world_.Sum({OfOwnTokens(static_cast<double>(here))})[0]);
  }

  StepResult RunStep(const Batch& batch, int64_t valid_tokens) {
    at::AutoGradMode gradients(true);
    return step_->Run(batch, valid_tokens);
  }

  // The same batches each time, from the beginning of the validation data.
  double ValidationLoss() {
    at::NoGradGuard no_gradients;
    model_->eval();
    validation_ = MakeValidationData(config_, *model_, *codec_, mesh_);
    double sum = 0;
    int64_t tokens = 0;
    for (int64_t i = 0; i < config_.validation.steps; ++i) {
      Batch batch = ToDevice(validation_->Next(), device_, mesh_);
      at::Tensor one = at::ones({}, batch.tokens.options().dtype(at::kFloat));
      LossConfig loss = LossConfigOf(config_, *model_);
      loss.z_loss = 0.0;
      sum +=
          LossOf(*model_, {batch.tokens, batch.positions}, batch.labels, one, loss).item<double>();
      tokens += batch.valid_tokens;
    }
    model_->train();
    std::vector<double> sums =
        world_.Sum({OfOwnTokens(sum), OfOwnTokens(static_cast<double>(tokens))});
    return sums[0] / std::max(sums[1], 1.0);
  }

  void FillRates(StepMetrics& metrics) const {
    auto tokens = static_cast<double>(SequencesPerStep() * config_.training.seq_len);
    metrics.tokens_per_second = tokens / metrics.seconds;
    if (double peak = PeakFlops(device_); peak > 0) {
      auto flops = static_cast<double>(model_->FlopsPerToken(config_.training.seq_len));
      metrics.mfu =
          100.0 * flops * metrics.tokens_per_second / (peak * static_cast<double>(world_.size()));
    }
    metrics.memory_bytes = MemoryOf(device_).peak;
    auto done = static_cast<double>(metrics.step - first_step_);
    auto left = static_cast<double>(config_.training.steps - metrics.step);
    metrics.eta_seconds = Seconds(start_, Clock::now()) / done * left;
  }

  void Report(const StepMetrics& metrics) {
    metrics_->Write(metrics);
    if (tensorboard_) WriteTensorBoard(metrics);
    std::string line = ProgressLine(metrics, config_.training.steps);
    if (metrics.step % config_.metrics.log_freq == 0 || metrics.step == config_.training.steps ||
        metrics.validation_loss) {
      bar_->Clear();
      Say("{}", line);
    }
    bar_->Update(metrics.step, fmt::format("loss {:.4f}", metrics.loss));
  }

  void WriteTensorBoard(const StepMetrics& metrics) {
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

  void SaveCheckpoint() {
    double seconds = checkpoints_->Save(progress_);
    if (world_.first()) {
      log::Info("checkpoint of step {}: {:.2f} s of the loop", progress_.step, seconds);
    }
  }

  // The state before the step and the batch that broke it, as a checkpoint: continuing from it runs
  // into the same numbers again.
  [[noreturn]] void FailNonFinite(const StepMetrics& metrics, nlohmann::json data_before,
                                  int64_t tokens_before) {
    BeforeUpdate();  // counts of the broken step are not part of the state before it
    Progress before = progress_;
    before.data = std::move(data_before);
    before.batches -= micro_batches_;
    before.tokens = tokens_before;
    std::string folder = (std::filesystem::absolute(config_.dump_folder) / "nonfinite").string();
    checkpoints_->SaveTo(folder, before);
    Fail(ErrorCode::kNonFiniteLoss,
         "step {}: the loss is {} and the gradient norm {}; the update was not applied. Lower "
         "--optimizer.lr (now {}), lengthen --lr_scheduler.warmup_steps, or check the data. The "
         "state before the step is in {}; this runs the step again: gt train --config {} "
         "--checkpoint.enable --checkpoint.folder {} --dump_folder {}",
         metrics.step, metrics.loss, metrics.grad_norm, config_.optimizer.lr, folder,
         ShellWord(config_.dump_folder + "/config.toml"), ShellWord(folder),
         ShellWord(config_.dump_folder + "/again"));
  }

  void Finish(TrainSummary& summary) {
    bool complete = progress_.step >= config_.training.steps;
    bool worked = progress_.step > first_step_;
    double seconds = Seconds(start_, Clock::now());
    summary.state_hash = StateHash(*model_, world_, mesh_);
    if (metrics_) summary.metrics_path = metrics_->path();
    summary.peak_memory = MemoryOf(device_).peak;
    summary.predicted_memory = predicted_peak_;
    bool saves = config_.checkpoint.enable || summary.signal != 0;
    if (worked && saves && !world_.pretended()) SaveLastCheckpoint();
    bool whole = !world_.pretended();
    if (complete && whole && config_.checkpoint.last_save_in_hf) ExportWeights();
    if (summary.signal != 0) {
      Say("stopped by {} after step {}; the same command with --checkpoint.enable{} continues",
          SignalName(summary.signal), progress_.step, continued_by_);
    } else if (worked) {
      double tokens = static_cast<double>(SequencesPerStep() * config_.training.seq_len *
                                          (progress_.step - first_step_));
      std::string predicted =
          predicted_peak_ == 0 ? "" : fmt::format(" (predicted {})", ByteText(predicted_peak_));
      Say("done: {} steps in {}, loss {:.4f} -> {:.4f}, {} tok/s, peak memory {}{}",
          progress_.step - first_step_, DurationText(seconds), summary.first_loss,
          summary.last_loss, FormatCount(tokens / seconds), ByteText(summary.peak_memory),
          predicted);
    }
    Say("state hash {:016x}; metrics in {}", summary.state_hash, summary.metrics_path);
    if (!predicted_table_.empty()) {
      Say("what communication was predicted to take, and to hide: {}/overlap.txt",
          config_.dump_folder);
    }
  }

  // A run that did not ask for checkpoints leaves those of others alone.
  void SaveLastCheckpoint() {
    std::string folder = checkpoints_->folder();
    if (config_.checkpoint.enable) {
      checkpoints_->SaveAndWait(progress_);
    } else {
      folder = world_.DecideForAll("the folder of the last checkpoint",
                                   [&] { return FolderWithoutCheckpoints(folder); });
      checkpoints_->SaveTo(folder, progress_);
    }
    if (folder != checkpoints_->folder()) {
      continued_by_ =
          " --checkpoint.folder " + ShellWord(std::filesystem::absolute(folder).string());
    }
    Say("checkpoint of step {} in {}", progress_.step, folder);
  }

  void ExportWeights() {
    std::string folder = config_.dump_folder + "/hf";
    SaveHfFolder(*model_, folder, ToTorch(config_.checkpoint.export_dtype), config_.model.hf_path,
                 &world_, mesh_);
    if (world_.first()) ExportTokenizer(*codec_, config_.model.hf_path, folder);
    Say("weights in {} (gt generate --model {})", folder, ShellWord(folder));
  }

  Config config_;
  World& world_;
  std::optional<RunFolder> folder_;  // of the first rank
  MeterScope meter_;
  std::optional<GeneratorScope>
      generator_;  // of a rank on the CPU, or among others in this process
  Mesh mesh_;
  int64_t micro_batches_;
  std::set<int64_t> profiled_;
  std::optional<Fault> fault_;
  c10::Device device_;
  ModelPtr model_;
  std::unique_ptr<TextCodec> codec_;
  std::unique_ptr<Loader> data_, validation_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<Checkpointer> checkpoints_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  std::unique_ptr<TrainStep> step_;
  std::unique_ptr<ProgressBar> bar_;
  Progress progress_;
  std::optional<CompiledStep> captured_;  // until the step is made of it
  MemoryOptions memory_;
  int64_t predicted_peak_ = 0;              // of the captured step; 0: not known
  std::optional<Timeline> predicted_;       // of a captured step that communicates
  std::shared_ptr<StepCompiler> compiler_;  // null: the order of the step does not depend on loads
  RoutingLoads planned_loads_;
  std::optional<LoadWatch> loads_;
  std::string predicted_table_;
  int stop_signal_ = 0;       // why the run ends early; the same on all ranks
  std::string continued_by_;  // flags that a command needs to continue, besides --checkpoint.enable
  int64_t first_step_ = 0;    // steps that were done before this process began
  Clock::time_point start_, before_;
};

}  // namespace

TrainSummary Train(const Config& config, World& world) {
  Config settled = config;
  SettlePrecision(&settled, ChooseDevice(config.device, world.local_rank()).is_cuda());
  try {
    return Run(settled, world).Train();
  } catch (const c10::OutOfMemoryError& error) {
    // A captured step explains itself (train/captured_step.cc); this is what surrounds it, or an eager one.
    Fail(ErrorCode::kDeviceMemoryExhausted,
         "rank {}: there was no memory for parameters, optimizer, batches or an eager step: {}; gt "
         "memory shows what a job needs",
         world.rank(), error.what_without_backtrace());
  }
}

TrainSummary Train(const Config& config) {
  TrainSummary summary;
  World::Run(config, [&](World& world) {
    TrainSummary mine = Train(config, world);
    if (world.first()) summary = mine;
  });
  return summary;
}

}  // namespace gt
