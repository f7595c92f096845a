// Which memory a step uses: the storages that its values look into, how large they are, and which
// nodes hold them. The rules are here and nowhere else; sim/live_memory.h applies them to any order of
// the nodes, sim/memory_curve.h tells everything about the graph's own.
//
// They are the executor's (exec/program.cc): a node's results are allocated before anything that dies
// at the node is freed, a storage dies at the last use of any value that looks into it, and a result
// that nobody uses lives only while its node runs. What a collective reads or writes is held until its
// wait, and so is what gloo takes for a sum. On the CPU a pointwise kernel first converts operands of
// another dtype than its result's. What else kernels allocate for themselves while they run is not in
// a graph and not counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gt/analysis/result_map.h"
#include "gt/ir/graph.h"
#include "gt/sim/communicators.h"

namespace gt {

struct StorageOptions {
  // On cuda, storages take multiples of this many bytes, as the caching allocator hands them out.
  int64_t cuda_rounding = 512;
  // What gloo holds in host memory; null: collectives take none.
  const GlooMemory* gloo = nullptr;
  // Value of each symbol; empty: their hints.
  std::vector<int64_t> symbols = {};
};

// One piece of memory that values of the graph look into.
struct Storage {
  const Value* value = nullptr;  // the input, or the result that was allocated
  int64_t bytes = 0;             // 0: nothing is allocated
  DeviceKind device = DeviceKind::kCpu;
  bool offloaded = false;      // moved out of the device's memory
  bool is_sum_buffer = false;  // what gloo takes for the collective that makes `value`
  int32_t first = -1;          // number of the node that allocates it; -1: an input
  // In the graph's order: the last node during which it is alive; the node count for what outlives the
  // step.
  int32_t last = -1;

  bool IsIn(DeviceKind memory) const { return device == memory && !offloaded; }
};

// Points into the graph, which must outlive it and not change. Time and memory are linear in nodes and
// operands.
class StorageTable {
 public:
  // Nodes are known by number, which this gives them. A size that comes out negative counts as 0.
  // Throws SizeOverflow, naming the value, when a size does not fit into 64 bits.
  explicit StorageTable(const Graph& graph, const StorageOptions& options = {});

  int32_t node_count() const { return static_cast<int32_t>(scratch_.size()); }
  SymbolValues symbols() const { return symbols_; }
  // The GPU if anything is on it, else the CPU.
  DeviceKind device() const { return device_; }

  // Inputs first, then in order of allocation.
  std::span<const Storage> storages() const { return storages_; }
  int32_t StorageOf(const Value& value) const {
    return value.is_input() ? value.index() : storage_of_[value];
  }

  // What the node allocates.
  std::span<const Storage> AllocatedBy(int32_t node) const {
    const auto begin = At(allocated_[At(node)]);
    return storages().subspan(begin, At(allocated_[At(node) + 1]) - begin);
  }
  // What the node's kernel allocates on the device while it runs: conversions on a CPU, and what its operator
  // declares.
  int64_t scratch(int32_t node) const { return scratch_[At(node)]; }

  // A storage is freed when it has been let go of as often as it is held, which for what outlives the
  // step never happens. By storage.
  std::span<const int32_t> holds() const { return holds_; }
  // What the node lets go of when it has run, each once. Inputs are not among them.
  std::span<const int32_t> HeldBy(int32_t node) const { return held_.Row(node); }
  // The collective that the node waits for; -1: none. One with several results is waited for several
  // times, and lets go of what it holds after the last.
  int32_t AwaitedBy(int32_t node) const { return awaited_[At(node)]; }
  // By collective: how many nodes wait for it.
  std::span<const int32_t> waits() const { return waits_; }
  std::span<const int32_t> HeldInFlight(int32_t collective) const {
    return in_flight_.Row(collective);
  }

 private:
  struct Rows {  // one after another
    std::vector<int32_t> begin = {0}, entries;

    void EndRow() { begin.push_back(static_cast<int32_t>(entries.size())); }
    std::span<const int32_t> Row(int32_t row) const {
      const auto from = static_cast<size_t>(begin[At(row)]);
      return std::span(entries).subspan(from, static_cast<size_t>(begin[At(row) + 1]) - from);
    }
  };
  static size_t At(int32_t number) { return static_cast<size_t>(number); }

  class Builder;

  std::vector<int64_t> symbols_;
  DeviceKind device_ = DeviceKind::kCpu;
  std::vector<Storage> storages_;
  ResultMap<int32_t> storage_of_;
  std::vector<int32_t> allocated_;  // by node, and once after the last: where its storages begin
  std::vector<int64_t> scratch_;    // by node
  std::vector<int32_t> holds_;      // by storage
  Rows held_;                       // by node: storages
  std::vector<int32_t> awaited_;    // by node
  Rows in_flight_;                  // by collective: storages
  std::vector<int32_t> waits_;      // by collective
};

}  // namespace gt
