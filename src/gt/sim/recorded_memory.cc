#include "gt/sim/recorded_memory.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "gt/ir/checked_math.h"
#include "gt/sim/caching_allocator.h"

namespace gt {
namespace {

// Memory that is in use from one node to another, both included.
struct Life {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;
};

int64_t MostInUse(const std::vector<Life>& lives, int32_t nodes) {
  std::vector<int64_t> changes(static_cast<size_t>(nodes) + 1, 0);
  for (const Life& life : lives) {
    const auto first = static_cast<size_t>(life.first);
    const auto end = std::min(static_cast<size_t>(life.last) + 1, changes.size() - 1);
    changes[first] = CheckedAdd(changes[first], life.bytes);
    changes[end] = CheckedAdd(changes[end], -life.bytes);
  }
  int64_t now = 0, most = 0;
  for (int64_t change : changes) {
    now = CheckedAdd(now, change);
    most = std::max(most, now);
  }
  return most;
}

// What the allocator takes from the device when `reserve` is the first thing that it takes and gets back.
int64_t Taken(const std::vector<Life>& by_first, int32_t nodes, int64_t workspace,
              int64_t reserve) {
  CachingAllocator allocator;
  if (reserve > 0) allocator.Free(allocator.Allocate(reserve));
  if (workspace > 0) allocator.Allocate(workspace);
  std::vector<std::vector<CachingAllocator::Handle>> dying(static_cast<size_t>(nodes) + 1);
  auto next = by_first.begin();
  for (int32_t node = 0; node < nodes; ++node) {
    for (; next != by_first.end() && next->first == node; ++next) {
      const auto last = static_cast<size_t>(std::min(next->last, nodes));
      dying[last].push_back(allocator.Allocate(next->bytes));
    }
    for (const auto handle : dying[static_cast<size_t>(node)]) allocator.Free(handle);
  }
  return allocator.taken();
}

// One large segment, of about the size that is in use at the most, leaves fewer gaps than many that were
// taken for one block each; how large is best depends on the step, and nothing may be best.
void ChooseReserve(const std::vector<Life>& by_first, int32_t nodes, int64_t workspace,
                   RecordedMemory& memory) {
  memory.pool = Taken(by_first, nodes, workspace, 0);
  for (const int64_t percent : {0, 2, 5}) {
    const int64_t reserve = CheckedAdd(memory.in_use, memory.in_use / 100 * percent);
    const int64_t pool = Taken(by_first, nodes, workspace, reserve);
    if (pool >= memory.pool) continue;
    memory.pool = pool;
    memory.reserve = reserve;
  }
}

}  // namespace

RecordedMemory MeasureRecorded(const Graph& graph, const StorageTable& storages, DeviceKind device,
                               const SpanOptions& options, int64_t workspace) {
  const RecordedSpans found = FindRecordedSpans(graph, options);
  if (found.spans.empty()) return {};
  std::vector<bool> in_span(static_cast<size_t>(storages.node_count()), false);
  for (const RecordedSpans::Span& span : found.spans) {
    for (int32_t i = span.begin; i < span.end; ++i) in_span[static_cast<size_t>(i)] = true;
  }
  // By storage: the node after which it is in the recordings' memory.
  std::unordered_map<int32_t, const Node*> fixed;
  for (const Value* value : found.fixed) {
    fixed.try_emplace(storages.StorageOf(*value), value->producer());
  }
  std::vector<Life> pool, rest;
  for (size_t i = 0; i < storages.storages().size(); ++i) {
    const Storage& storage = storages.storages()[i];
    if (storage.first < 0 || storage.bytes == 0 || !storage.IsIn(device)) continue;
    const auto moved = fixed.find(static_cast<int32_t>(i));
    if (in_span[static_cast<size_t>(storage.first)]) {
      pool.push_back({storage.bytes, storage.first, storage.last});
    } else if (moved == fixed.end()) {
      rest.push_back({storage.bytes, storage.first, storage.last});
    } else {
      // Written there at once, or copied when it is complete.
      const Node& node = *moved->second;
      pool.push_back({storage.bytes, node.number(), storage.last});
      const bool at_once = FusedBody(node) != nullptr || WritesIntoGivenMemory(node.op());
      if (!at_once) rest.push_back({storage.bytes, storage.first, node.number()});
    }
  }
  RecordedMemory memory;
  memory.in_use = CheckedAdd(MostInUse(pool, storages.node_count()), workspace);
  memory.rest = MostInUse(rest, storages.node_count());
  std::stable_sort(pool.begin(), pool.end(),
                   [](const Life& a, const Life& b) { return a.first < b.first; });
  ChooseReserve(pool, storages.node_count(), workspace, memory);
  return memory;
}

}  // namespace gt
