// Which nodes of a region share a box.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/report/box_region.h"
#include "gt/report/graph_boxes.h"

namespace gt::boxes {

// The collective that a node starts, waits for, or sees the result of from another side.
const Node* CollectiveOf(const Node& node);

// What nodes must have in common to share a box.
struct Likeness {
  BoxKind kind;
  Phase phase;
  EpRole ep_role;
  TokenExchange exchange;
  ChunkRole chunk_role;
  ChunkProof proof;
  int32_t chunk;
  Name root, part;
  const Node* alone;  // the node itself when none may share, else null

  bool operator==(const Likeness&) const = default;
};

// Gathers the nodes of a region into groups so that no two groups need each other: a picture with
// a cycle could not be drawn from top to bottom.
//
// Each node gets a level: at least that of everything it needs, and one more where that is of
// another likeness. Nodes of one likeness and one level are a group. An edge that leaves a group
// therefore ends at a higher level: at another likeness by the rule, and at the same likeness
// because the level would otherwise be the same and so the group. Levels grow along every path, so
// no path returns. Raising a whole group keeps the rule as long as what needs it stays above.
class Grouping {
 public:
  Grouping(const Region& region, PictureGroups groups);

  size_t GroupOf(size_t node) const { return Final(group_of_[node]); }
  const Likeness& LikenessOfNode(size_t node) const { return likenesses_[like_[node]]; }

 private:
  struct Group {
    size_t like;
    int32_t level;
    size_t merged_into;  // itself: into none
  };

  void FormGroups();
  std::vector<int32_t> Levels(int32_t lowest_of_backward) const;
  bool IsBackward(size_t node) const { return region_.node(node).meta().phase == Phase::kBackward; }
  void MergeUpwards();
  int32_t LatestLevel(size_t group, const std::vector<size_t>& users) const;
  void CheckLevels() const;
  // Groups are merged into groups that are never merged themselves.
  size_t Final(size_t group) const { return groups_[group].merged_into; }
  int32_t LevelOf(size_t node) const { return groups_[GroupOf(node)].level; }

  const Region& region_;
  std::vector<Likeness> likenesses_;
  std::vector<size_t> like_;  // by node
  std::vector<size_t> group_of_;
  std::vector<Group> groups_;
};

}  // namespace gt::boxes
