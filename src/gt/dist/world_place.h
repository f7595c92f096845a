// How a rank joins the world: what the ways into it (processes, threads, one rank that stands for all)
// tell its constructor. For the files that make up World alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "gt/dist/backends.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/launch/environment.h"

namespace gt {

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

// Where the ranks of a launched job meet.
StorePtr ConnectStore(const RankEnvironment& place, std::chrono::seconds timeout);

// Which GPU of its machine a rank takes.
inline int64_t GpuOf(const Config& config, int64_t local_rank) {
  return config.debug.share_gpu ? 0 : local_rank;
}

// Without the list of functions that errors of libtorch carry.
inline std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }
inline std::string FirstLine(const std::exception& error) {
  return FirstLine(std::string(error.what()));
}

}  // namespace gt
