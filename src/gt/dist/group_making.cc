// Process groups of a world: which backend carries a group, and who belongs to it.
#include <fmt/format.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "gt/base/error.h"
#include "gt/dist/backends.h"
#include "gt/dist/watched_backend.h"
#include "gt/dist/world.h"
#include "gt/dist/world_place.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kControl = "control";

}  // namespace

c10::intrusive_ptr<c10d::Backend> World::MakeBackend(const Group& group, bool on_device) {
  const bool other = FactsOf(backend_).gpu_only && !on_device;
  const CommBackend used = other ? CommBackend::kGloo : backend_;
  // A backend that sends nothing also serves the GPUs of another machine, where this one has none.
  const bool on_gpu = on_device && !FactsOf(used).sends_nothing &&
                      ChooseDevice(config_->device, local_rank_).is_cuda();
  StorePtr store = store_ == nullptr ? StorePtr(c10::make_intrusive<c10d::HashStore>()) : store_;
  return gt::MakeBackend(used,
                         {.config = *config_,
                          .group = group,
                          .store = c10::make_intrusive<c10d::PrefixStore>(
                              fmt::format("group/{}/{}", group.name, group.ranks.front()), store),
                          .timeout = milliseconds(seconds(config_->comm.train_timeout_seconds)),
                          .address = address_,
                          .on_gpu = on_gpu,
                          .shared = backend_state_[used]});
}

// A rank that is gone shows here for the first time, if it came that far.
c10::intrusive_ptr<c10d::Backend> World::Connect(const Group& group, bool on_device) {
  if (watch_ == nullptr) return MakeBackend(group, on_device);
  int64_t number = record_.Begin(Name("connect"), Name(group.name), Name(), 0);
  try {
    auto backend = MakeBackend(group, on_device);
    AwaitMembers(group);
    record_.End(number);
    return backend;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    watch_->FailCollective(*record_.Find(number), FirstLine(error));
  }
}

// A member that went on and failed would close connections that others are still making, and gloo waits for
// those without end.
void World::AwaitMembers(const Group& group) {
  if (store_ == nullptr || group.size() < 2) return;
  // Groups along an axis have one name, and different ranks.
  const std::string key = fmt::format("connected/{}/{}", group.name, group.ranks.front());
  if (store_->add(key, 1) == group.size()) store_->set(key + "/all", std::vector<uint8_t>{1});
  store_->wait({key + "/all"});
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

void World::CloseLastGroup() {
  c10d::unregister_process_group(groups_.back().name);
  process_groups_.pop_back();
  groups_.pop_back();
}

const Group* World::Along(const Mesh& mesh, MeshAxis axis) {
  if (mesh.size(axis) == 1 && !config_->debug.collectives_of_one) return nullptr;
  std::string name(AxisName(axis));
  if (const Group* made = Find(name)) return made;
  Group group;
  group.name = name;
  group.description = fmt::format("axis {} of the mesh", name);
  group.ranks = mesh.Ranks(axis);
  group.index = mesh.coordinate(axis);
  if (config_->comm.share_groups) {
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

}  // namespace gt
