#include "gt/report/box_groups.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "gt/base/error.h"

namespace gt::boxes {
namespace {

bool AreOfOnePlace(const Meta& a, const Meta& b) {
  auto chunk = [](const Meta& meta) { return meta.chunk ? meta.chunk->id : -1; };
  return a.module == b.module && a.phase == b.phase && a.ep_role == b.ep_role &&
         a.exchange == b.exchange && chunk(a) == chunk(b);
}

BoxKind KindOfCollective(const Node& node) {
  switch (node.op().collective) {
    case Collective::kAllToAll:
      return BoxKind::kAllToAll;
    case Collective::kAllGather:
      return BoxKind::kAllGather;
    case Collective::kReduceScatter:
      return BoxKind::kReduceScatter;
    default:
      return BoxKind::kOtherCollective;
  }
}

BoxKind KindOf(const Region& region, const Node& node) {
  const Meta& meta = node.meta();
  ChunkRole role = meta.chunk ? meta.chunk->role : ChunkRole::kNone;
  if (role == ChunkRole::kSplitBoundary || role == ChunkRole::kChunkInput) return BoxKind::kSplit;
  if (role == ChunkRole::kMaterialization) return BoxKind::kJoin;
  if (region.BufferOf(node) != nullptr) return BoxKind::kBufferUpdate;
  if (const Node* collective = CollectiveOf(node)) return KindOfCollective(*collective);
  if (node.op().transfer != Transfer::kNone) return BoxKind::kTransfer;
  if (node.op().reads_data || meta.exchange == TokenExchange::kCountSync) return BoxKind::kHostSync;
  bool moves_tokens = meta.ep_role == EpRole::kDispatch || meta.ep_role == EpRole::kCombine;
  return moves_tokens ? BoxKind::kTokens : BoxKind::kCompute;
}

struct LikenessHash {
  size_t operator()(const Likeness& like) const {
    size_t hash = like.root.Hash() * 31 + like.part.Hash();
    for (size_t field : {static_cast<size_t>(like.kind), static_cast<size_t>(like.phase),
                         static_cast<size_t>(like.ep_role), static_cast<size_t>(like.exchange),
                         static_cast<size_t>(like.chunk_role), static_cast<size_t>(like.proof),
                         static_cast<size_t>(like.chunk), std::hash<const Node*>()(like.alone)}) {
      hash = hash * 1000003 + field;
    }
    return hash;
  }
};

Likeness LikenessOf(const Region& region, size_t i, PictureGroups groups) {
  const Node& node = region.node(i);
  const Meta& meta = node.meta();
  const ChunkMeta chunk = meta.chunk ? *meta.chunk : ChunkMeta{};
  // A body differs from what is around it by its chunk already.
  ChunkRole role = chunk.role == ChunkRole::kBody ? ChunkRole::kNone : chunk.role;
  return {.kind = KindOf(region, node),
          .phase = meta.phase,
          .ep_role = meta.ep_role,
          .exchange = meta.exchange,
          .chunk_role = role,
          .proof = chunk.proof,
          .chunk = std::max(chunk.id, -1),
          .root = region.place(i).root,
          .part = groups == PictureGroups::kModule ? region.place(i).part : Name(),
          .alone = groups == PictureGroups::kNone ? &node : nullptr};
}

}  // namespace

const Node* CollectiveOf(const Node& node) {
  const Collective kind = node.op().collective;
  if (kind != Collective::kNone && kind != Collective::kWait) return &node;
  if (kind == Collective::kNone && !node.op().is_view()) return nullptr;
  const Value* seen =
      kind == Collective::kWait ? node.operand(0) : node.TensorArg(node.op().view_arg());
  const Node* before = seen == nullptr ? nullptr : seen->producer();
  if (before == nullptr || before->op().collective == Collective::kNone) return nullptr;
  if (kind == Collective::kWait) return before;
  return AreOfOnePlace(node.meta(), before->meta()) ? CollectiveOf(*before) : nullptr;
}

Grouping::Grouping(const Region& region, PictureGroups groups)
    : region_(region), like_(region.size()), group_of_(region.size()) {
  std::unordered_map<Likeness, size_t, LikenessHash> known;
  for (size_t i = 0; i < region.size(); ++i) {
    Likeness like = LikenessOf(region, i, groups);
    auto [found, is_new] = known.try_emplace(like, likenesses_.size());
    if (is_new) likenesses_.push_back(like);
    like_[i] = found->second;
  }
  FormGroups();
  MergeUpwards();
  CheckLevels();
}

void Grouping::FormGroups() {
  // The backward is above all of the forward, so that neither keeps the other from merging.
  int32_t above_forward = 0;
  std::vector<int32_t> level = Levels(0);
  for (size_t i = 0; i < region_.size(); ++i) {
    if (!IsBackward(i)) above_forward = std::max(above_forward, level[i] + 1);
  }
  level = Levels(above_forward);
  std::map<std::pair<size_t, int32_t>, size_t> known;
  for (size_t i = 0; i < region_.size(); ++i) {
    auto [found, is_new] = known.try_emplace({like_[i], level[i]}, groups_.size());
    if (is_new) groups_.push_back({like_[i], level[i], groups_.size()});
    group_of_[i] = found->second;
  }
}

std::vector<int32_t> Grouping::Levels(int32_t lowest_of_backward) const {
  std::vector<int32_t> level(region_.size(), 0);
  for (size_t i = 0; i < region_.size(); ++i) {
    if (IsBackward(i)) level[i] = lowest_of_backward;
    for (const Region::Need& need : region_.needs(i)) {
      level[i] = std::max(level[i], level[need.node] + (like_[need.node] != like_[i] ? 1 : 0));
    }
  }
  return level;
}

// A group that waits for nothing (a range of numbers, the counts of this rank) has a low level.
// It joins the last group of its likeness that is below all of its users.
void Grouping::MergeUpwards() {
  std::vector<std::vector<size_t>> users(groups_.size());
  for (size_t i = 0; i < region_.size(); ++i) {
    for (const Region::Need& need : region_.needs(i)) {
      if (group_of_[need.node] != group_of_[i]) users[group_of_[need.node]].push_back(i);
    }
  }
  std::vector<size_t> order(groups_.size());
  for (size_t g = 0; g < order.size(); ++g) order[g] = g;
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return groups_[a].level > groups_[b].level; });
  std::vector<std::vector<size_t>> above(likenesses_.size());  // highest first
  for (size_t g : order) {
    std::vector<size_t>& candidates = above[groups_[g].like];
    const int32_t latest = LatestLevel(g, users[g]);
    auto highest = std::partition_point(candidates.begin(), candidates.end(),
                                        [&](size_t c) { return groups_[c].level > latest; });
    if (highest != candidates.end()) {
      groups_[g].merged_into = *highest;
    } else {
      candidates.push_back(g);
    }
  }
}

int32_t Grouping::LatestLevel(size_t group, const std::vector<size_t>& users) const {
  int32_t latest = std::numeric_limits<int32_t>::max();
  for (size_t user : users) {
    latest = std::min(latest, LevelOf(user) - (like_[user] != groups_[group].like ? 1 : 0));
  }
  return latest;
}

void Grouping::CheckLevels() const {
  for (size_t i = 0; i < region_.size(); ++i) {
    for (const Region::Need& need : region_.needs(i)) {
      GT_CHECK(GroupOf(i) == GroupOf(need.node) || LevelOf(i) > LevelOf(need.node),
               "boxes of {} and {} need each other", region_.node(need.node).op().name.str(),
               region_.node(i).op().name.str());
    }
  }
}

}  // namespace gt::boxes
