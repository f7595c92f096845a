#include "gt/sim/live_memory.h"

#include <algorithm>
#include <utility>

namespace gt {

LiveMemory::LiveMemory(const Graph& graph) : LiveMemory(std::make_shared<StorageTable>(graph)) {}

LiveMemory::LiveMemory(std::shared_ptr<const StorageTable> storages)
    : LiveMemory(storages, storages->device()) {}

LiveMemory::LiveMemory(std::shared_ptr<const StorageTable> storages, DeviceKind device, bool inside)
    : storages_(std::move(storages)) {
  const int32_t count = storages_->node_count();
  bytes_.reserve(storages_->storages().size());
  allocated_.assign(At(count), 0);
  scratch_.assign(At(count), 0);
  for (const Storage& storage : storages_->storages()) {
    bytes_.push_back(storage.IsIn(device) == inside ? storage.bytes : 0);
    int64_t& sum = storage.first < 0 ? input_bytes_ : allocated_[At(storage.first)];
    sum = CheckedAdd(sum, bytes_.back());
  }
  if (inside && device == storages_->device()) {
    for (int32_t node = 0; node < count; ++node) scratch_[At(node)] = storages_->scratch(node);
  }
  Restart();
}

void LiveMemory::Restart() {
  holds_.assign(storages_->holds().begin(), storages_->holds().end());
  waits_.assign(storages_->waits().begin(), storages_->waits().end());
  alive_ = peak_ = 0;
}

int64_t LiveMemory::Run(int32_t node) {
  const int64_t during = IfNext(node);
  peak_ = std::max(peak_, during);
  alive_ += allocated_[At(node)];
  for (int32_t storage : storages_->HeldBy(node)) LetGo(storage);
  const int32_t collective = storages_->AwaitedBy(node);
  if (collective >= 0 && --waits_[At(collective)] == 0) {
    for (int32_t storage : storages_->HeldInFlight(collective)) LetGo(storage);
  }
  return during;
}

int64_t PeakInUse(Graph& graph) {
  LiveMemory memory(graph);
  for (int32_t node = 0; node < graph.node_count(); ++node) memory.Run(node);
  return memory.peak();
}

}  // namespace gt
