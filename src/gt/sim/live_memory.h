// How much memory a step has in use while its nodes run, one node at a time, in whatever order they are
// given: schedules are judged by it, and a memory curve (sim/memory_curve.h) is what it sees in the
// order of the graph. sim/storages.h has the rules.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gt/ir/checked_math.h"
#include "gt/ir/graph.h"
#include "gt/sim/storages.h"

namespace gt {

class LiveMemory {
 public:
  // Nodes are known by number, which this gives them. Bytes are those of the GPU, if the step uses
  // one, in units of its allocator, else of the CPU; inputs are not counted, since they are alive
  // in every order.
  explicit LiveMemory(const Graph& graph);
  explicit LiveMemory(std::shared_ptr<const StorageTable> storages);
  // Counts what is in the memory of this device, or, if not `inside`, what is anywhere else.
  LiveMemory(std::shared_ptr<const StorageTable> storages, DeviceKind device, bool inside = true);

  void Restart();
  // The node runs. Returns the bytes in use while it does. Throws SizeOverflow if they do not fit into
  // 64 bits.
  int64_t Run(int32_t node);
  // In use while the node runs, if it is the next.
  int64_t IfNext(int32_t node) const {
    return CheckedAdd(alive_, CheckedAdd(allocated_[At(node)], scratch_[At(node)]));
  }
  // What the node's kernel takes for itself while it runs.
  int64_t scratch(int32_t node) const { return scratch_[At(node)]; }
  int64_t alive() const { return alive_; }  // when the last node has run
  int64_t peak() const { return peak_; }    // while nodes ran
  int64_t input_bytes() const { return input_bytes_; }

 private:
  static size_t At(int32_t number) { return static_cast<size_t>(number); }
  void LetGo(int32_t storage) {
    if (--holds_[At(storage)] == 0) alive_ -= bytes_[At(storage)];
  }

  std::shared_ptr<const StorageTable> storages_;
  std::vector<int64_t> bytes_;      // by storage; 0: not counted
  std::vector<int64_t> allocated_;  // by node
  std::vector<int64_t> scratch_;    // by node
  int64_t input_bytes_ = 0;
  // In the order at hand.
  std::vector<int32_t> holds_;  // by storage: those left
  std::vector<int32_t> waits_;  // by collective: those left
  int64_t alive_ = 0, peak_ = 0;
};

// In the graph's own order. Numbers its nodes.
int64_t PeakInUse(Graph& graph);

}  // namespace gt
