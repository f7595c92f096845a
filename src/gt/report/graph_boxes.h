// Which nodes of a graph share a box of its picture (report/graph_picture.h), and what the boxes
// hand to each other and to the rest of the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/report/graph_picture.h"

namespace gt {

// What a box is, which decides its colour.
enum class BoxKind : uint8_t {
  kCompute,
  kTokens,  // tokens are sorted for and from their experts
  kHostSync,
  kAllToAll,
  kAllGather,
  kReduceScatter,
  kOtherCollective,
  kTransfer,
  kSplit,
  kJoin,
  kBufferUpdate,
  kParameters,
  kOutside,
};

struct Box {
  BoxKind kind = BoxKind::kCompute;
  int32_t chunk = -1;  // -1: of all chunks
  bool backward = false;
  std::vector<const Node*> nodes;  // none: represents values from or for the rest of the step
  std::string title;
  std::vector<std::string> lines;  // below the title
  std::vector<std::string> hover;  // listed when pointed at
};

struct Edge {
  size_t from = 0, to = 0;
  std::vector<const Value*> values;  // none: only sizes, read by the host
};

// No two boxes need each other, not even by way of others. Points into the graph.
struct GraphBoxes {
  std::vector<Box> boxes;
  std::vector<Edge> edges;  // at most one from a box to another
};

// Fails as GraphPicture does.
GraphBoxes GatherBoxes(const Graph& graph, const PictureOptions& options);

// "%name f32[8, 16]".
std::string ValueText(const Value& value, const ShapeEnv& shapes);

}  // namespace gt
