// Which stretches of a step can be recorded as kernels and replayed as one launch each (a CUDA graph), so
// that the host has next to nothing to do for them: maximal runs of nodes of the same sizes in every
// step that the host has no part in. What is between them runs node by node.
//
// A recording reads and writes fixed addresses. Inputs of the step and what spans make have them; what
// nodes between spans make, and spans read, must be put there (`fixed`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

// Whether running the node takes more of the host than launching kernels.
bool HostTakesPart(const Node& node);

struct SpanOptions {
  // Whose kernels are recorded.
  DeviceKind device = DeviceKind::kCuda;
  // Fewer kernels than this are launched as quickly one by one, unless other spans read what they make,
  // which would then have to be copied.
  int32_t least_kernels = 4;
  // Whether the backend of collectives lets them be recorded. One that is launched in a span must also
  // be waited for in it.
  bool records_collectives = false;
};

// Nodes are known by their numbers, which FindRecordedSpans gives them.
struct RecordedSpans {
  struct Span {
    int32_t begin = 0, end = 0;
    int32_t kernels = 0;  // all but views
  };
  std::vector<Span> spans;  // in order
  // Results of nodes between spans whose memory spans read, in order. What is waited for is complete
  // after the wait, so the wait's result is named, unless the collective or transfer can write into
  // memory that it is given: then its own.
  std::vector<const Value*> fixed;
  // Views inside of spans that show memory at no fixed address, for nodes between spans.
  std::vector<const Node*> loose_views;
  int32_t kernels = 0;  // in spans
  int32_t between = 0;  // nodes outside, views not counted
};

// In the order that the nodes have. Empty for a graph without that device.
RecordedSpans FindRecordedSpans(const Graph& graph, const SpanOptions& options = {});

// Whether a collective or transfer has a form that writes its result into memory that it is given:
// "_out" after its name, and the memory as the last argument.
bool WritesIntoGivenMemory(const Operator& op);

// The last node that waits for a collective, in the graph's order; null: none does.
const Node* LastWaitFor(const Node& collective);

}  // namespace gt
