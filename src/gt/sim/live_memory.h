// How much memory a step has in use when its nodes run in one order or another. The rules are those
// of sim/memory_curve.h, which tells more about one order; this answers for many orders of the same
// nodes, one node at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

class LiveMemory {
 public:
  // Nodes are known by number (Graph::NumberNodes). Bytes are those of the GPU, if the step uses one,
  // in units of its allocator, else of the CPU; inputs are not counted, since they are there in every
  // order.
  explicit LiveMemory(const Graph& graph);

  void Restart();
  // The node runs. Returns the bytes in use while it does.
  int64_t Run(int32_t node);
  // In use while the node runs, if it is the next.
  int64_t IfNext(int32_t node) const { return alive_ + own_[static_cast<size_t>(node)]; }
  int64_t peak() const { return peak_; }
  int64_t input_bytes() const { return input_bytes_; }

 private:
  struct Table {  // rows one behind the other
    std::vector<int32_t> begin = {0}, entries;
    void EndRow() { begin.push_back(static_cast<int32_t>(entries.size())); }
  };
  class Walk;

  std::vector<int64_t> bytes_;      // by storage
  std::vector<int32_t> touches_;    // by storage: nodes that must have run before it is freed
  Table allocated_, touched_;       // by node: storages
  std::vector<int32_t> remaining_;  // of touches, in the order at hand
  std::vector<int64_t> own_;        // by node: bytes it allocates, for its kernel too
  int64_t alive_ = 0, peak_ = 0;
  int64_t input_bytes_ = 0;
};

// In the graph's own order. Numbers its nodes.
int64_t PeakInUse(Graph& graph);

}  // namespace gt
