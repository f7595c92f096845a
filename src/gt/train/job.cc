#include "gt/train/job.h"

#include <string>

#include "gt/base/error.h"
#include "gt/base/machine_memory.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/dist/agreement.h"
#include "gt/exec/host_pool.h"
#include "gt/job/dump_folder.h"
#include "gt/passes/pipeline/pipeline.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/job_inputs.h"
#include "gt/train/profile.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

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

// One rank of many has nothing but its own shards of the model.
void RejectFakeBackend(const Config& config, const World& world) {
  if (FactsOf(world.backend()).sends_nothing) {
    Fail(ErrorCode::kConflictingOptions,
         "--comm.backend fake sends nothing, so nothing can be trained with it; gt trace and gt "
         "memory use it, and --comm.backend emulated runs one rank of many");
  }
  if (world.pretended() && config.checkpoint.enable) {
    Fail(ErrorCode::kConflictingOptions,
         "--checkpoint.enable does not go with --comm.backend emulated: the other ranks, which "
         "would save their parts, are not there");
  }
}

// The other ranks wait, since nothing could end them while they wait for rank 0 to connect.
void ClaimFolder(Job& job) {
  Config& config = job.config;
  config.dump_folder = job.world.DecideForAll("the folder of the run", [&] {
    Config chosen = config;
    chosen.dump_folder = ChooseRunFolder(config, &job.notes);
    fs::path latest;
    if (IsFolderPerRun(config.dump_folder)) latest = FolderOfRuns(config.dump_folder) / "latest";
    if (job.world.first()) {
      job.folder.emplace(chosen, latest);
      if (config.compile.debug_graph_passes) job.folder->WillWrite("passes");
    }
    return chosen.dump_folder;
  });
  job.world.SetDumpFolder(config.dump_folder);
}

void SetLimits(const Config& config, const World& world, c10::Device device) {
  if (config.training.memory_limit_gb > 0) {
    const int64_t limited = device.is_cuda() ? world.ranks_in_process() : 1;
    LimitMemory(device, limited * Gibibytes(config.training.memory_limit_gb));
  }
  HostPool::Instance().Limit(Gibibytes(config.debug.host_memory_gb));
}

}  // namespace

Job::Job(const Config& asked, World& ranks)
    : config(asked),
      world(ranks),
      mesh(config.parallelism, world.size(), world.rank()),
      micro_batches(MicroBatches(config, mesh)),
      profiled(ParseSteps(config.profiling.steps)),
      fault(ParseFault(config.debug.fault)),
      device(ChooseDevice(config.device, world.local_rank())),
      share(mesh, config.training.local_batch_size) {
  RejectFakeBackend(config, world);
  // An unknown pass and a mesh of other ranks are errors before any work.
  ChangedPipeline({}, config.compile.passes);
  if (config.compile.enable_autoparallel) MeshesOf(config, world.size());
  AgreeOnConfig(world, config);
  AgreeOnInputs(world, config);
  SetThreads(ThreadsOf(config, world));
  SetLimits(config, world, device);
  if (device.is_cpu() || world.ranks_in_process() > 1) generator.emplace(device);
  if (config.compile.mode != CompileMode::kEager && world.size() > 1) {
    cluster = ClusterOfJob(config, world, device);
  } else {
    cluster.is_known = device.is_cuda();  // a single rank on a CPU is not measured
  }
  model = BuildConfiguredModel(config, world, mesh);
  bytes_chosen = SettleTokenizer(&config, model->vocab_size());
  codec = std::make_unique<TextCodec>(config);
  contents = ContentsOfData(world, config);
  data = MakeTrainingData(config, *model, *codec, share, contents);
  validation = MakeValidationData(config, *model, *codec, share);
  ClaimFolder(*this);  // after everything that can be refused without writing
}

int64_t Job::SequencesPerStep() const {
  return micro_batches * config.training.local_batch_size * mesh.size(MeshAxis::kBatch);
}

void Job::Follow(const std::shared_ptr<const PlacedJob>& found) {
  placed = found;
  KeepPlacedParts(*model, *placed);
  share = JobShare(mesh, config.training.local_batch_size, *placed);
  data = MakeTrainingData(config, *model, *codec, share, contents);
  validation = MakeValidationData(config, *model, *codec, share);
}

}  // namespace gt
