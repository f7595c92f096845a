// How the processes of a job find each other, before any of them communicates.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "gt/base/error.h"
#include "gt/dist/last_resort.h"
#include "gt/dist/store_text.h"
#include "gt/dist/world.h"
#include "gt/dist/world_place.h"
#include "gt/launch/host_name.h"

namespace gt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of the store, while the ranks assemble.
constexpr const char* kComplete = "complete";
constexpr const char* kRefusal = "refusal";

}  // namespace

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
  auto timeout = seconds(config_->comm.init_timeout_seconds);
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

}  // namespace gt
