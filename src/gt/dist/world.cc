#include "gt/dist/world.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Logging.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/dist/backends.h"
#include "gt/dist/emulated_backend.h"
#include "gt/dist/idle_backend.h"
#include "gt/dist/last_resort.h"
#include "gt/dist/staged_backend.h"
#include "gt/dist/store_text.h"
#include "gt/dist/watched_backend.h"
#include "gt/launch/environment.h"
#include "gt/launch/host_name.h"
#include "gt/launch/limits.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kControl = "control";
// Of the store, while the ranks assemble.
constexpr const char* kComplete = "complete";
constexpr const char* kRefusal = "refusal";
// For ranks that are threads to end by themselves once one has failed.
constexpr auto kThreadGrace = seconds(10);

// Without the list of functions that errors of libtorch carry.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }
std::string FirstLine(const std::exception& error) { return FirstLine(std::string(error.what())); }

// Which GPU of its machine a rank takes.
int64_t GpuOf(const Config& config, int64_t local_rank) {
  return config.debug.share_gpu ? 0 : local_rank;
}

CommBackend ChooseBackend(const Config& config) {
  if (config.debug.share_gpu && !IsPretended(config.comm.backend)) {
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

// Thread ranks find their groups in registries of their own while one of these lives.
class ThreadIsolation {
 public:
  ThreadIsolation() { c10d::set_thread_isolation_mode(true); }
  ~ThreadIsolation() { c10d::set_thread_isolation_mode(false); }
  ThreadIsolation(const ThreadIsolation&) = delete;
  ThreadIsolation& operator=(const ThreadIsolation&) = delete;
};

// What a thread needs to be a rank that runs on a GPU.
class GpuThread {
 public:
  // Nothing happens on a CPU.
  explicit GpuThread(c10::Device device) {
    if (!device.is_cuda()) return;
    // A stream of its own, as a process has: the kernels of one rank do not queue after another's.
    stream_.emplace(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
    // The engine has one thread for each GPU, in which a collective in one rank's backward would wait
    // for ever for the backward of another. So each rank runs its own.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }

 private:
  std::optional<c10::StreamGuard> stream_;
};

StorePtr ConnectStore(const RankEnvironment& place, seconds timeout) {
  AwaitHost(place.master_address, timeout);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.master_port);
  options.isServer = place.rank == 0;
  options.numWorkers = static_cast<size_t>(place.world_size);
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.master_address, options);
  } catch (const c10::Error& error) {
    std::string what = FirstLine(error.what_without_backtrace());
    if (place.rank == 0) {
      Fail(ErrorCode::kCannotConnect,
           "rank 0 cannot open port {} for the other ranks to meet at; another program, or a job "
           "that is still ending, may be using it: choose another MASTER_PORT ({})",
           place.master_port, what);
    }
    Fail(ErrorCode::kCannotConnect,
         "rank {} waited {} s for rank 0 at MASTER_ADDR {} MASTER_PORT {} in vain; is rank 0 "
         "running there, and may this machine connect to it? ({})",
         place.rank, timeout.count(), place.master_address, place.master_port, what);
  }
}

}  // namespace

struct World::Place {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  int64_t local_size = 1;
  bool threads = false;
  std::string address;  // of this machine, for gloo; empty: by its name
  CommBackend backend = CommBackend::kGloo;
  StorePtr store;
  StorePtr watch_store;  // a connection of its own
  // Threads share the sockets' thread: one for each rank would keep the cores busy waiting for locks.
  std::shared_ptr<void> gloo_device;
};

World::World(const Config& config, const Place& place)
    : config_(config),
      rank_(place.rank),
      size_(place.size),
      local_rank_(GpuOf(config, place.local_rank)),
      local_size_(place.threads ? place.size : place.local_size),
      threads_(place.threads),
      address_(place.address),
      backend_(place.backend),
      store_(place.store),
      gloo_device_(place.gloo_device),
      record_(config.comm.trace_buf_size) {
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

World::~World() {
  for (const Group& group : groups_) c10d::unregister_process_group(group.name);
}

// Until all ranks are there. One that cannot take part tells those that wait; a job that has begun
// does not listen any more.
void World::Assemble() {
  try {
    TakeSeat();
    AwaitAll();
  } catch (const Error& error) {
    // The first word counts, and it may come from here after it was read there.
    store_->compareSet(kRefusal, {}, ToBytes(AbortText(rank_, error)));
    // The store ends with rank 0; the others look there every few milliseconds.
    if (first()) std::this_thread::sleep_for(milliseconds(300));
    throw;
  } catch (const c10::Error& error) {
    Fail(ErrorCode::kCannotConnect,
         "rank {} found rank 0 at MASTER_ADDR and MASTER_PORT, but lost it again before all ranks "
         "were there: look at the output of rank 0 ({})",
         rank_, error.what_without_backtrace());
  }
}

// Every rank says who it is and compares what rank 0 said of the job.
void World::TakeSeat() {
  if (store_->add(fmt::format("seat/{}", rank_), 1) != 1) {
    Fail(ErrorCode::kBadLaunch,
         "two processes were started as rank {}; every rank needs a RANK of its own", rank_);
  }
  if (rank_ == 0) {
    Publish("world_size", std::to_string(size_));
  } else if (std::string theirs = Read("world_size", 0); theirs != std::to_string(size_)) {
    Fail(ErrorCode::kRanksDisagree,
         "rank {} was started for a job of {} ranks, rank 0 for one of {}; start all ranks with "
         "the same WORLD_SIZE",
         rank_, size_, theirs);
  }
  if (store_->add("seats", 1) == size_) store_->set(kComplete, ToBytes("yes"));
}

void World::AwaitAll() {
  auto timeout = seconds(config_.comm.init_timeout_seconds);
  auto deadline = std::chrono::steady_clock::now() + timeout;
  // The store of a large job has many to answer.
  auto pause = std::clamp(milliseconds(size_), milliseconds(5), milliseconds(500));
  while (!store_->check({kComplete})) {
    if (store_->check({kRefusal})) {
      throw ErrorFromAbort(ToText(store_->get(kRefusal)), rank_);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      std::vector<int64_t> missing;
      for (int64_t rank = 0; rank < size_; ++rank) {
        if (!store_->check({fmt::format("seat/{}", rank)})) missing.push_back(rank);
      }
      size_t shown = std::min<size_t>(missing.size(), 8);
      Fail(ErrorCode::kCannotConnect,
           "rank {} waited {} s for the other ranks; {} of {} did not come: rank {}{}", rank_,
           timeout.count(), missing.size(), size_,
           fmt::join(missing.begin(), missing.begin() + static_cast<int64_t>(shown), ", "),
           shown < missing.size() ? ", ..." : "");
    }
    std::this_thread::sleep_for(pause);
  }
}

void World::Run(const Config& config, const std::function<void(World&)>& body) {
  // A store that goes away is told by our own messages; libtorch's would bury them in lists of
  // functions.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  PrepareEnvironment(config.training.deterministic);
  CommBackend backend = ChooseBackend(config);
  Place place;
  place.backend = backend;
  std::optional<RankEnvironment> launched = ReadRankEnvironment();
  if (IsPretended(backend)) {
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

namespace {

// What the threads of RunThreads share.
struct ThreadRanks {
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr first;
  std::optional<Error> reason;  // the same as an error of ours
  std::vector<World*> worlds;   // of the ranks that still run
  int64_t running = 0;
};

}  // namespace

void World::RunThreads(const Config& config, const std::function<void(World&)>& body) {
  RequireRoomForThreads(config.ranks);
  ThreadIsolation isolation;
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(seconds(config.comm.init_timeout_seconds));
  std::shared_ptr<void> device = MakeGlooDevice("127.0.0.1");
  ThreadRanks ranks;
  ranks.worlds.resize(static_cast<size_t>(config.ranks));
  ranks.running = config.ranks;
  auto fail = [&](const Error& error) {
    std::lock_guard lock(ranks.mutex);
    if (ranks.first) return;
    ranks.first = std::current_exception();
    ranks.reason = error;
    ranks.changed.notify_all();
  };
  auto set_world = [&](int64_t rank, World* world) {
    std::lock_guard lock(ranks.mutex);
    ranks.worlds[static_cast<size_t>(rank)] = world;
  };
  auto run = [&](int64_t rank) {
    try {
      Place place;
      place.rank = rank;
      place.size = config.ranks;
      place.local_rank = rank;
      place.threads = true;
      place.gloo_device = device;
      place.backend = CommBackend::kGloo;
      place.store = place.watch_store = store;
      GpuThread on_gpu(ChooseDevice(config.device, GpuOf(config, rank)));
      World world(config, place);
      set_world(rank, &world);
      try {
        body(world);
        world.Barrier();
      } catch (const Error& error) {
        fail(error);
        world.GiveUp(error);
      } catch (const std::exception& error) {
        fail(Error(ErrorCode::kInternal, FirstLine(error)));
        world.GiveUp(Error(ErrorCode::kInternal, FirstLine(error)));
      }
      set_world(rank, nullptr);
    } catch (const std::exception& error) {
      fail(Error(ErrorCode::kInternal, FirstLine(error)));
    }
    std::lock_guard lock(ranks.mutex);
    --ranks.running;
    ranks.changed.notify_all();
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t rank = 0; rank < config.ranks; ++rank) threads.emplace_back(run, rank);
  } catch (const std::system_error& problem) {
    // Those that run wait for those that cannot be started.
    EndProcess(Error(ErrorCode::kBadLaunch,
                     fmt::format("--ranks {}: the system allows {} threads for them and no more "
                                 "({}); use fewer ranks, or raise ulimit -u",
                                 config.ranks, threads.size(), problem.code().message())));
  }
  {
    std::unique_lock lock(ranks.mutex);
    auto done = [&] { return ranks.running == 0; };
    ranks.changed.wait(lock, [&] { return done() || ranks.first; });
    if (!ranks.changed.wait_for(lock, kThreadGrace, done)) {
      // A thread can be neither ended nor left behind: it uses what belongs to this function.
      for (World* world : ranks.worlds) {
        if (world != nullptr) world->WriteFlightRecord(*ranks.reason);
      }
      EndProcess(*ranks.reason);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (ranks.first) std::rethrow_exception(ranks.first);
}

std::string World::Describe() const {
  std::string_view name = EnumName(backend_);
  if (pretended()) {
    return fmt::format("one process for {} ranks, {}", size_, name);
  }
  if (size_ == 1) return "one rank";
  return fmt::format("{} ranks as {}, {}", size_, threads_ ? "threads" : "processes", name);
}

c10::intrusive_ptr<c10d::Backend> World::MakeBackend(const Group& group, bool on_device) {
  auto timeout = milliseconds(seconds(config_.comm.train_timeout_seconds));
  if (backend_ == CommBackend::kFake) {
    return c10::make_intrusive<IdleBackend>(static_cast<int>(group.index),
                                            static_cast<int>(group.size()));
  }
  if (backend_ == CommBackend::kEmulated) {
    if (!emulation_) {
      const double scale = config_.debug.free_collectives ? 0 : config_.comm.emulated_time_scale;
      emulation_ = MakeEmulation(config_.comm.cluster, scale, config_.comm.contention);
    }
    return MakeEmulatedBackend(emulation_, group);
  }
  StorePtr store = store_ == nullptr ? StorePtr(c10::make_intrusive<c10d::HashStore>()) : store_;
  auto own = c10::make_intrusive<c10d::PrefixStore>(
      fmt::format("group/{}/{}", group.name, group.ranks.front()), store);
  if (backend_ == CommBackend::kNccl && on_device) return MakeNcclBackend(own, group, timeout);
  if (!gloo_device_) gloo_device_ = MakeGlooDevice(address_);
  BackendPtr gloo = MakeGlooBackend(own, group, timeout, gloo_device_);
  const bool on_gpu = on_device && ChooseDevice(config_.device, local_rank_).is_cuda();
  return on_gpu ? MakeStagedBackend(std::move(gloo), group) : gloo;
}

// A rank that is gone shows here for the first time, if it came that far.
c10::intrusive_ptr<c10d::Backend> World::Connect(const Group& group, bool on_device) {
  if (watch_ == nullptr) return MakeBackend(group, on_device);
  int64_t number = record_.Begin(Name("connect"), Name(group.name), Name(), 0);
  try {
    auto backend = MakeBackend(group, on_device);
    record_.End(number);
    return backend;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    watch_->FailCollective(*record_.Find(number), FirstLine(error));
  }
}

const Group& World::MakeGroup(Group group, bool on_device) {
  groups_.push_back(std::move(group));
  const Group& made = groups_.back();
  using c10d::ProcessGroup;
  auto process_group = c10::make_intrusive<ProcessGroup>(static_cast<int>(made.index),
                                                         static_cast<int>(made.size()));
  auto backend = c10::make_intrusive<WatchedBackend>(Connect(made, on_device), Name(made.name),
                                                     record_, watch_.get());
  for (auto device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
    process_group->setBackend(device, ProcessGroup::BackendType::CUSTOM, backend);
  }
  process_group->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
  process_group->setGroupName(made.name);
  process_group->setGroupDesc(made.description);
  c10d::register_process_group(made.name, process_group);
  process_groups_.push_back(std::move(process_group));
  return made;
}

const Group* World::Along(const Mesh& mesh, MeshAxis axis) {
  if (mesh.size(axis) == 1 && !config_.debug.collectives_of_one) return nullptr;
  std::string name(AxisName(axis));
  if (const Group* made = Find(name)) return made;
  Group group;
  group.name = name;
  group.description = fmt::format("axis {} of the mesh", name);
  group.ranks = mesh.Ranks(axis);
  group.index = mesh.coordinate(axis);
  if (config_.comm.share_groups) {
    for (const Group& made : groups_) {
      if (&made != control_ && made.ranks == group.ranks) return &made;
    }
  }
  return &MakeGroup(std::move(group));
}

const Group* World::Find(const std::string& name) const {
  for (const Group& group : groups_) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

const Group& World::Control() {
  if (control_ == nullptr) {
    Group group;
    group.name = kControl;
    group.description = "counts, losses and agreements of the trainer";
    for (int64_t rank = 0; rank < size_; ++rank) group.ranks.push_back(rank);
    group.index = rank_;
    control_ = &MakeGroup(std::move(group), /*on_device=*/false);
  }
  return *control_;
}

std::vector<double> World::Reduce(std::vector<double> numbers, c10d::ReduceOp how) {
  if (size_ == 1 || pretended()) return numbers;
  std::vector<at::Tensor> tensors = {
      at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kDouble)};
  c10d::AllreduceOptions options;
  options.reduceOp = how;
  c10d::resolve_process_group(Control().name)->allreduce(tensors, options)->wait();
  return numbers;
}

std::vector<double> World::Sum(std::vector<double> numbers) {
  return Reduce(std::move(numbers), c10d::ReduceOp::SUM);
}

std::vector<double> World::Max(std::vector<double> numbers) {
  return Reduce(std::move(numbers), c10d::ReduceOp::MAX);
}

void World::Barrier() { Sum({0.0}); }

void World::Publish(const std::string& name, const std::string& text) {
  if (store_ != nullptr) store_->set("text/" + name, ToBytes(text));
}

std::string World::DecideForAll(const std::string& what,
                                const std::function<std::string()>& decide) {
  if (size_ == 1 || pretended()) return decide();
  const std::string name = fmt::format("decision {}: {}", decisions_++, what);
  if (!first()) return Read(name, /*writer=*/0);
  std::string decision = decide();
  Publish(name, decision);
  return decision;
}

std::string World::Read(const std::string& name, int64_t writer) {
  using Clock = std::chrono::steady_clock;
  std::string key = "text/" + name;
  auto patience = seconds(config_.comm.init_timeout_seconds);
  Clock::time_point deadline = Clock::now() + patience, next_look = Clock::now();
  int64_t beats = -1;
  try {
    while (!store_->check({key})) {
      if (watch_ && Clock::now() > next_look) {
        if (std::optional<Error> aborted = watch_->Aborted()) throw *aborted;
        if (int64_t now = watch_->BeatsOf(writer); now != beats) {
          beats = now;
          deadline = Clock::now() + patience;
        }
        next_look = Clock::now() + milliseconds(100);
      }
      if (Clock::now() > deadline) {
        Fail(ErrorCode::kRankLost, "rank {} waited {} s for '{}' of rank {} in vain", rank_,
             patience.count(), name, writer);
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
    return ToText(store_->get(key));
  } catch (const c10::Error& error) {
    Fail(ErrorCode::kRankLost,
         "rank {} waited for '{}', but rank 0, which holds the meeting point of the ranks, cannot "
         "be reached any more: it has ended ({})",
         rank_, name, error.what_without_backtrace());
  }
}

void World::Send(const at::Tensor& tensor, int64_t rank) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::resolve_process_group(Control().name)
      ->send(tensors, static_cast<int>(rank), /*tag=*/0)
      ->wait();
}

void World::Receive(at::Tensor& tensor, int64_t rank) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::resolve_process_group(Control().name)
      ->recv(tensors, static_cast<int>(rank), /*tag=*/0)
      ->wait();
}

void World::WriteFlightRecord(const Error& reason) const {
  bool communication = reason.code() == ErrorCode::kRankLost ||
                       reason.code() == ErrorCode::kRankFailed ||
                       reason.code() == ErrorCode::kCollectiveFailed;
  if (!communication || record_.Last().number == 0) return;
  std::filesystem::path folder =
      std::filesystem::path(config_.dump_folder) / config_.comm.save_traces_folder;
  std::string path = (folder / fmt::format("rank_{}.jsonl", rank_)).string();
  record_.Write(path);
  log::Info("rank {}: its last collectives are in {}", rank_, path);
}

}  // namespace gt
