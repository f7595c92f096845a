#include "gt/dist/world.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/dist/last_resort.h"
#include "gt/dist/world_place.h"
#include "gt/job/config.h"
#include "gt/launch/environment.h"
#include "gt/launch/limits.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

using std::chrono::seconds;

CommBackend ChooseBackend(const Config& config) {
  if (config.debug.share_gpu && !FactsOf(config.comm.backend).stands_for_all) {
    if (!ChooseDevice(DeviceChoice::kAuto).is_cuda()) {
      Fail(ErrorCode::kNoGpu,
           "--debug.share_gpu lets ranks share a GPU, but no usable one is on this machine; leave "
           "it out to run the ranks on the CPU");
    }
    return CommBackend::kGloo;
  }
  if (config.comm.backend != CommBackend::kAuto) return config.comm.backend;
  return ChooseDevice(config.device).is_cuda() ? CommBackend::kNccl : CommBackend::kGloo;
}

}  // namespace

World::World(const Config& config, const Place& place)
    : config_(std::make_unique<Config>(config)),
      rank_(place.rank),
      size_(place.size),
      local_rank_(GpuOf(config, place.local_rank)),
      local_size_(place.threads ? place.size : place.local_size),
      threads_(place.threads),
      address_(place.address),
      backend_(place.backend),
      store_(place.store),
      record_(config.comm.trace_buf_size) {
  backend_state_[CommBackend::kGloo] = place.gloo_device;
  if (pretended() || store_ == nullptr) return;
  if (size_ == 1) return;
  if (!threads_) Assemble();
  WatchOptions options;
  options.rank = rank_;
  options.world_size = size_;
  options.timeout = seconds(config.comm.train_timeout_seconds);
  options.owns_process = !threads_;
  options.last_words = [this](const Error& error) { WriteFlightRecord(error); };
  watch_ = std::make_unique<Watch>(place.watch_store, record_, options);
  crash_ = std::make_unique<BackendCrash>(
      [this](const std::string& what) { return OnBackendCrash(what); });
}

int64_t World::ranks_on_device() const {
  return config_->debug.share_gpu && !pretended() ? size_ : ranks_in_process();
}

World::~World() {
  for (const Group& group : groups_) c10d::unregister_process_group(group.name);
}

void World::Run(const Config& config, const std::function<void(World&)>& body) {
  // A store that goes away is told by our own messages; libtorch's would bury them in lists of
  // functions.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  // Before a step is captured, whoever does that: it decides which attention runs.
  SetDeterministic(config.training.deterministic, config.debug.fill_memory);
  CommBackend backend = ChooseBackend(config);
  Place place;
  place.backend = backend;
  std::optional<RankEnvironment> launched = ReadRankEnvironment();
  if (FactsOf(backend).stands_for_all) {
    place.rank = config.comm.pretended_rank;
    place.size = std::max<int64_t>(config.ranks, 1);
    if (place.rank >= place.size) {
      Fail(ErrorCode::kBadLaunch, "--comm.pretended_rank {} is not one of --ranks {}", place.rank,
           place.size);
    }
  } else if (launched) {
    if (config.ranks > 0 && config.ranks != launched->world_size) {
      Fail(ErrorCode::kBadLaunch,
           "--ranks {} contradicts {}, which started {} processes of one rank each; leave --ranks "
           "out",
           config.ranks, launched->launcher, launched->world_size);
    }
    place.rank = launched->rank;
    place.size = launched->world_size;
    place.local_rank = launched->local_rank;
    place.local_size = std::max(launched->local_size, launched->local_rank + 1);
    if (launched->master_address == "127.0.0.1" || launched->master_address == "localhost") {
      place.address = "127.0.0.1";
    }
    place.store = ConnectStore(*launched, seconds(config.comm.init_timeout_seconds));
    place.watch_store = place.store->clone();
  } else if (config.ranks > 1) {
    if (backend == CommBackend::kNccl) {
      Fail(ErrorCode::kNoBackend,
           "--ranks {}: ranks as threads run on the CPU; use --device cpu, or one process for each "
           "GPU with gt launch -n {} -- ..., or --debug.share_gpu for tests on one GPU",
           config.ranks, config.ranks);
    }
    RunThreads(config, body);
    return;
  }
  RunProcess(config, place, body);
}

// Of a job that failed, the world is not destroyed: closing a group waits for what is still in its
// queue. The process is about to end, which tells the other ranks at once.
void World::RunProcess(const Config& config, const Place& place,
                       const std::function<void(World&)>& body) {
  std::unique_ptr<World> world(new World(config, place));
  auto give_up = [&world](const Error& error) {
    if (world->pretended()) return;  // nobody waits, and nothing is in a queue
    World* kept = world.release();
    kept->GiveUp(error);
    if (kept->watch_) kept->watch_->Leave();
  };
  try {
    body(*world);
    world->Barrier();
  } catch (const Error& error) {
    give_up(error);
    throw;
  } catch (const std::exception& error) {
    give_up(Error(ErrorCode::kInternal, FirstLine(error)));
    throw;
  }
}

void World::GiveUp(const Error& error) {
  if (watch_) watch_->Abort(error);
  WriteFlightRecord(error);
}

Error World::OnBackendCrash(const std::string& what) {
  const char* cause = SaysTooManyFiles(what) ? "this process may not open more files (ulimit -n)"
                                             : "the sizes or types of the ranks disagree";
  Error error(ErrorCode::kCollectiveFailed,
              fmt::format("rank {} was in {}, which the backend cannot end: {}. It says: {}", rank_,
                          record_.Last().Describe(), cause, what));
  GiveUp(error);
  return watch_->Aborted().value_or(error);
}

std::string World::Describe() const {
  std::string_view name = EnumName(backend_);
  if (pretended()) {
    return fmt::format("one process for {} ranks, {}", size_, name);
  }
  if (size_ == 1) return "one rank";
  return fmt::format("{} ranks as {}, {}", size_, threads_ ? "threads" : "processes", name);
}

void World::WriteFlightRecord(const Error& reason) const {
  bool communication = reason.code() == ErrorCode::kRankLost ||
                       reason.code() == ErrorCode::kRankFailed ||
                       reason.code() == ErrorCode::kCollectiveFailed;
  // Before the run has claimed a folder, the one that is configured may be that of another run.
  if (!communication || record_.Last().number == 0 || dump_folder_.empty()) return;
  std::filesystem::path folder =
      std::filesystem::path(dump_folder_) / config_->comm.save_traces_folder;
  std::string path = (folder / fmt::format("rank_{}.jsonl", rank_)).string();
  record_.Write(path);
  log::Info("rank {}: its last collectives are in {}", rank_, path);
}

}  // namespace gt
