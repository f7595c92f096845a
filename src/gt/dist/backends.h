// The backends by name. Which one a group gets is decided in dist/group_making.cc.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gt/dist/group.h"

namespace gt {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// Sockets that gloo groups of one rank share. `address` is this machine's, as the other ranks see it;
// empty: that of its name.
std::shared_ptr<void> MakeGlooDevice(const std::string& address);
BackendPtr MakeGlooBackend(const StorePtr& store, const Group& group,
                           std::chrono::milliseconds timeout, const std::shared_ptr<void>& device);

// Fails with NoBackend where gt was built without nccl, or there is no GPU.
BackendPtr MakeNcclBackend(const StorePtr& store, const Group& group,
                           std::chrono::milliseconds timeout);

}  // namespace gt
