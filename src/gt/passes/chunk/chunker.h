// Repeats the bodies of a graph chunk by chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/passes/chunk/chunk_bodies.h"
#include "gt/passes/chunk/chunk_boundaries.h"
#include "gt/passes/chunk/chunk_state.h"

namespace gt {

// Copies bodies chunk by chunk, in one walk over the graph.
//
// Nodes of a body wait until their region is complete, and are then copied chunk after chunk: the
// order in which the eager producer runs them, and draws random numbers. Nodes outside that use a
// waiting one wait until after it. A region is copied earlier when a body of another region, or its
// own body by way of a node outside, needs it: then it is copied in several stretches. A waiting
// node needs only nodes that are copied already, or that wait with it, so every operand exists in
// time.
class Chunker {
 public:
  Chunker(Graph& graph, const ChunkOptions& options, SymbolId symbol);

  void Run();

  const ChunkCounts& counts() const { return state_.counts; }
  const ChunkRegions& regions() const { return state_.regions; }

 private:
  // What waits for a region.
  struct Stretch {
    std::vector<Node*> body;
    std::vector<Node*> behind;  // nodes outside that need the body
    int64_t missing = 0;        // nodes of the body that the walk has not reached
  };

  Stretch& StretchOf(int32_t region) { return stretches_[static_cast<size_t>(region)]; }
  int32_t WaitsFor(const Value& value) const {
    if (value.is_input() || value.producer()->number() < 0) return ChunkRegions::kNone;
    return waiting_[static_cast<size_t>(value.producer()->number())];
  }
  void LetWait(Node* node, int32_t region) {
    waiting_[static_cast<size_t>(node->number())] = region;
  }

  void PassOutside(Node* node);
  void AddNeeded(Value& operand, std::vector<int32_t>& needed) const;
  void EmitBeforeDraw(Node* node, int32_t region);
  void PassBody(Node* node, int32_t region, Node* next);
  void Emit(int32_t region, Node* before);
  void ReturnFrom(Value& value, Node* before);

  ChunkState state_;
  ChunkBoundaries boundaries_;
  ChunkBodies bodies_;
  std::vector<int32_t> waiting_;    // by number: the region that a node waits for
  std::vector<Stretch> stretches_;  // by region
  std::vector<int32_t> open_;       // regions whose stretch has a body: one or two at a time
};

}  // namespace gt
