// How process groups are made, by backend. A backend is one file of this folder that registers a maker,
// and a row in job/sections/comm_backend.h.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gt/dist/group.h"
#include "gt/job/sections/comm_backend.h"

namespace gt {

struct Config;

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

struct BackendRequest {
  const Config& config;
  const Group& group;
  StorePtr store;  // of this group's own
  std::chrono::milliseconds timeout;
  std::string address = {};  // of this machine, as the other ranks see it; empty: that of its name
  bool on_gpu = false;       // the group's tensors are on a GPU
  // What the groups of one backend share on this rank; null until one of them makes it.
  std::shared_ptr<void>& shared;
};

// Makes a backend known; a static object of this type in the backend's file does it when the program
// starts.
struct BackendRegistration {
  using Maker = BackendPtr (*)(const BackendRequest& request);
  BackendRegistration(CommBackend backend, Maker maker);
};

BackendPtr MakeBackend(CommBackend backend, const BackendRequest& request);

}  // namespace gt
