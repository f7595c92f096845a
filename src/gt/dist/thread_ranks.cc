// Ranks as threads of one process.
#include <c10/core/AutogradState.h>
#include <c10/core/StreamGuard.h>
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "gt/base/error.h"
#include "gt/dist/gloo_backend.h"
#include "gt/dist/last_resort.h"
#include "gt/dist/world.h"
#include "gt/dist/world_place.h"
#include "gt/job/config.h"
#include "gt/launch/limits.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/own_stream.h"

namespace gt {
namespace {

// For ranks that are threads to end by themselves once one has failed.
constexpr auto kThreadGrace = std::chrono::seconds(10);

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
    stream_.emplace(device, /*high_priority=*/false);
    current_.emplace(**stream_);
    // The engine has one thread for each GPU, in which a collective in one rank's backward would wait
    // forever for the backward of another. So each rank runs its own.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }

 private:
  std::optional<OwnStream> stream_;
  std::optional<c10::StreamGuard> current_;
};

// What the threads of RunThreads share.
class ThreadRanks {
 public:
  explicit ThreadRanks(int64_t ranks) : worlds_(static_cast<size_t>(ranks)), running_(ranks) {}

  // The rank runs in `world`, or does not any more.
  void Enter(int64_t rank, World* world) {
    std::lock_guard lock(mutex_);
    worlds_[static_cast<size_t>(rank)] = world;
  }

  // While the exception is handled that `error` tells of. The first one counts.
  void Fail(const Error& error) {
    std::lock_guard lock(mutex_);
    if (first_) return;
    first_ = std::current_exception();
    reason_ = error;
    changed_.notify_all();
  }

  // A thread is about to end.
  void Leave() {
    std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  // Ends the process if threads go on for long after one has failed.
  void AwaitAll() {
    std::unique_lock lock(mutex_);
    auto done = [&] { return running_ == 0; };
    changed_.wait(lock, [&] { return done() || first_; });
    if (changed_.wait_for(lock, kThreadGrace, done)) return;
    // A thread can be neither ended nor left alone: it uses what belongs to RunThreads.
    for (World* world : worlds_) {
      if (world != nullptr) world->WriteFlightRecord(*reason_);
    }
    EndProcess(*reason_);
  }

  void RethrowFirst() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr first_;
  std::optional<Error> reason_;  // the same as an error of ours
  std::vector<World*> worlds_;   // of the ranks that still run
  int64_t running_ = 0;
};

}  // namespace

void World::RunThreads(const Config& config, const std::function<void(World&)>& body) {
  RequireRoomForThreads(config.ranks);
  ThreadIsolation isolation;
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::seconds(config.comm.init_timeout_seconds));
  std::shared_ptr<void> device = MakeGlooDevice("127.0.0.1");
  ThreadRanks ranks(config.ranks);
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
      ranks.Enter(rank, &world);
      try {
        body(world);
        world.Barrier();
      } catch (const Error& error) {
        ranks.Fail(error);
        world.GiveUp(error);
      } catch (const std::exception& error) {
        ranks.Fail(Error(ErrorCode::kInternal, FirstLine(error)));
        world.GiveUp(Error(ErrorCode::kInternal, FirstLine(error)));
      }
      ranks.Enter(rank, nullptr);
    } catch (const std::exception& error) {
      ranks.Fail(Error(ErrorCode::kInternal, FirstLine(error)));
    }
    ranks.Leave();
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
  ranks.AwaitAll();
  for (std::thread& thread : threads) thread.join();
  ranks.RethrowFirst();
}

}  // namespace gt
