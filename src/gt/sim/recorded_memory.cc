#include "gt/sim/recorded_memory.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "gt/ir/checked_math.h"

namespace gt {
namespace {

// Bytes in use while each node runs.
class Usage {
 public:
  explicit Usage(int32_t nodes) : changes_(static_cast<size_t>(nodes) + 1, 0) {}

  void Add(int64_t bytes, int32_t first, int32_t last) {
    const auto end = std::min(static_cast<size_t>(last) + 1, changes_.size() - 1);
    changes_[static_cast<size_t>(first)] = CheckedAdd(changes_[static_cast<size_t>(first)], bytes);
    changes_[end] = CheckedAdd(changes_[end], -bytes);
  }

  int64_t Most() const {
    int64_t now = 0, most = 0;
    for (int64_t change : changes_) {
      now = CheckedAdd(now, change);
      most = std::max(most, now);
    }
    return most;
  }

 private:
  std::vector<int64_t> changes_;
};

}  // namespace

RecordedMemory MeasureRecorded(const Graph& graph, const StorageTable& storages, DeviceKind device,
                               const SpanOptions& options) {
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
  Usage pool(storages.node_count()), rest(storages.node_count());
  for (size_t i = 0; i < storages.storages().size(); ++i) {
    const Storage& storage = storages.storages()[i];
    if (storage.first < 0 || !storage.IsIn(device)) continue;
    const auto moved = fixed.find(static_cast<int32_t>(i));
    if (in_span[static_cast<size_t>(storage.first)]) {
      pool.Add(storage.bytes, storage.first, storage.last);
    } else if (moved == fixed.end()) {
      rest.Add(storage.bytes, storage.first, storage.last);
    } else {
      // Written there at once, or copied when it is complete.
      const Node& node = *moved->second;
      pool.Add(storage.bytes, node.number(), storage.last);
      const bool at_once = FusedBody(node) != nullptr || WritesIntoGivenMemory(node.op());
      if (!at_once) rest.Add(storage.bytes, storage.first, node.number());
    }
  }
  return {pool.Most(), rest.Most()};
}

}  // namespace gt
