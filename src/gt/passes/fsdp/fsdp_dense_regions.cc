#include "gt/passes/fsdp/fsdp_dense_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gt/analysis/dependencies.h"
#include "gt/analysis/roles.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/ir/describe.h"

namespace gt {
namespace {

constexpr int32_t kNobody = -1;
constexpr int32_t kNotNeeded = std::numeric_limits<int32_t>::max();

size_t At(int32_t number) { return static_cast<size_t>(number); }

bool IsBucketed(const Node& node) { return !node.meta().fsdp_bucket.empty(); }

bool IsReduction(const Node& node) {
  return node.op().collective == Collective::kReduceScatter ||
         node.op().collective == Collective::kAllReduce;
}

// Whether the operator has a rule for its floating-point operations, and the rule counts some.
bool HasFlops(const Node& node) {
  return node.op().flops != nullptr && !CostOf(node, node.op().flops).Is(0);
}

// Casts, views, pads, concatenations: what prepares a tensor for a collective or unpacks it.
bool MovesData(const Node& node) {
  const Operator& op = node.op();
  if (op.collective != Collective::kNone || op.transfer != Transfer::kNone) return false;
  if (op.reads_data || op.random || op.side_effect) return false;
  return op.aliasing != Aliasing::kNone || (op.flops != nullptr && !HasFlops(node));
}

// Products, attention, norms, activations. Recomputed nodes do not count: a value that blocks share
// has the first block's name, wherever it is computed.
bool Computes(const Node& node) {
  const bool again = node.meta().is_backward() && node.meta().recompute != Recompute::kNone;
  return !IsBucketed(node) && !again && !node.op().is_view() && HasFlops(node);
}

// Adds the gradients of chunks, or a gradient to what earlier batches left.
bool Accumulates(const Operator& op) {
  static const Name kAdd("aten::add.Tensor");
  return op.name == kAdd;
}

bool IsOutput(const Node& node) {
  for (int32_t i = 0; i < node.result_count(); ++i) {
    for (const Use& use : node.result(i)->uses()) {
      if (use.node() == nullptr) return true;
    }
  }
  return false;
}

// "%gather (_c10d_functional::all_gather_into_tensor, module 'layers.1', bucket 'layers.1')"
std::string BucketedName(const Node& node) {
  const std::string bucket = fmt::format(", bucket '{}'", node.meta().fsdp_bucket.str());
  return DescribeNode(node, "a node", IsBucketed(node) ? bucket : "");
}

// The wait of a gradient reduction. Replicas reduce after shards, so another one may use it.
bool IsGradientWait(const Node& node) {
  if (node.op().collective != Collective::kWait) return false;
  const Node* launch = node.operand(0)->producer();
  return launch != nullptr && IsBucketed(*launch) && IsReduction(*launch);
}

// By number: waits for gradients, and what only unpacks or adds them.
std::vector<bool> FindUnpacking(const Dependencies& dependencies) {
  std::vector<bool> unpacks(At(dependencies.count()), false);
  for (int32_t number = 0; number < dependencies.count(); ++number) {
    const Node& node = *dependencies.node(number);
    std::span<const int32_t> needs = dependencies.NeededBy(number);
    const bool of_gradients =
        std::any_of(needs.begin(), needs.end(), [&](int32_t n) { return unpacks[At(n)]; });
    unpacks[At(number)] =
        IsGradientWait(node) || (of_gradients && (MovesData(node) || Accumulates(node.op())));
  }
  return unpacks;
}

// The numbers of the nodes that compute densely, ascending.
struct DenseRegion {
  std::vector<int32_t> forward, backward;
};

// The dense regions of all blocks, and of what follows them.
class DenseRegions {
 public:
  DenseRegions(const Dependencies& dependencies, const std::vector<bool>& unpacks, Roles& roles) {
    std::unordered_set<int32_t> exchanging;
    for (int32_t number = 0; number < dependencies.count(); ++number) {
      const Node& node = *dependencies.node(number);
      if (node.op().collective == Collective::kAllToAll) exchanging.insert(roles.BlockOf(node));
    }
    for (int32_t number = 0; number < dependencies.count(); ++number) {
      const Node& node = *dependencies.node(number);
      if (unpacks[At(number)] || !Computes(node)) continue;
      const int32_t layer = roles.BlockOf(node);
      if (layer < 0) {
        if (node.meta().is_backward()) top_backward_ = std::min(top_backward_, number);
        continue;
      }
      DenseRegion& region = by_layer_[layer];
      if (exchanging.contains(layer) && node.meta().ep_role != EpRole::kNone) continue;
      if (node.meta().phase == Phase::kForward) region.forward.push_back(number);
      if (node.meta().is_backward()) region.backward.push_back(number);
    }
  }

  // The region of the block so many blocks before this layer, or null. What follows the blocks is
  // layer kTop.
  static constexpr int32_t kTop = kNotNeeded;
  const DenseRegion* Before(int32_t layer, int32_t blocks = 1) const {
    auto found = by_layer_.lower_bound(layer);
    for (; blocks > 0; --blocks) {
      if (found == by_layer_.begin()) return nullptr;
      --found;
    }
    return &found->second;
  }
  const DenseRegion* Behind(int32_t layer) const {
    auto found = by_layer_.upper_bound(layer);
    return found == by_layer_.end() ? nullptr : &found->second;
  }
  // Where the backward of what follows the blocks begins, or kNotNeeded.
  int32_t TopBackward() const {
    const DenseRegion* last = Before(kTop);
    const bool comes_first =
        last == nullptr || last->backward.empty() || top_backward_ < last->backward.front();
    return comes_first ? top_backward_ : kNotNeeded;
  }

 private:
  std::map<int32_t, DenseRegion> by_layer_;
  int32_t top_backward_ = kNotNeeded;  // the first backward compute outside of blocks
};

// Where a node is: before the node with that number, gathers first, or at its own position.
enum class Rank : uint8_t { kGather, kReduction, kNode };
struct PlaceInOrder {
  int32_t at;
  Rank rank;
  int32_t number;
  friend auto operator<=>(const PlaceInOrder&, const PlaceInOrder&) = default;
};

}  // namespace

FsdpDenseRegions::FsdpDenseRegions() { Declare(&options_); }

const PassInfo& FsdpDenseRegions::info() const {
  static constexpr PassInfo kInfo = {
      .name = "fsdp_dense_regions",
      .summary = "Starts gathers and reductions of parameters in dense compute.",
      .description =
          "Token exchanges need the network while experts run, so collectives of parameters start "
          "where a block computes outside of its experts: the gathers of a block at the start of "
          "the dense region of the block that runs before it, its reduce-scatters in that of the "
          "block that runs next, behind their gradients. What follows the blocks uses the last "
          "block's regions. The first gather and the last reduce-scatter have nowhere to go and "
          "stay. Nodes that only prepare the input of a collective move with it. Waits for "
          "gradients, and what unpacks or adds them, go to the end of the step. A move that the "
          "dependencies forbid is left out and counted, or, with the option strict, fails. Runs "
          "after bucketing and before the schedule of token exchanges, which keeps gathers in "
          "their "
          "place among the exchanges and counts the time and memory of what starts where.",
      .reads = "buckets, phases, blocks, parts of experts, collective facts.",
      .writes = "the order of nodes: collectives change their order, on every rank alike.",
      .never = "adds, removes or changes a node.",
      .by_block = true,
  };
  return kInfo;
}

// Decides on a place for every node, one move after the other. The places always describe a legal
// order: a move that would break a tie is not made.
class FsdpDenseRegions::Planner {
 public:
  Planner(FsdpDenseRegions& pass, const Graph& graph, const Dependencies& dependencies)
      : pass_(pass),
        dependencies_(dependencies),
        unpacks_(FindUnpacking(dependencies)),
        roles_(graph),
        regions_(dependencies, unpacks_, roles_),
        users_in_chain_(At(dependencies.count()), 0) {
    for (int32_t number = 0; number < dependencies.count(); ++number) {
      places_.push_back({number, Rank::kNode, number});
    }
  }

  std::vector<int32_t> Order() {
    SinkWaits();
    // From the last: a reduction among replicas makes way for the one among shards before it.
    for (int32_t number = dependencies_.count() - 1; number >= 0; --number) {
      const Node& node = *dependencies_.node(number);
      if (!IsBucketed(node)) continue;
      if (node.op().collective == Collective::kAllGather) PlaceGather(number);
      if (IsReduction(node)) PlaceReduction(number);
    }
    std::sort(places_.begin(), places_.end());
    std::vector<int32_t> order;
    order.reserve(places_.size());
    for (const PlaceInOrder& place : places_) order.push_back(place.number);
    return order;
  }

 private:
  // The nodes that move with a collective, itself first, and what they need.
  struct Chain {
    std::vector<int32_t> nodes;
    std::unordered_set<int32_t> members;  // the same
    int32_t last_need = kNobody;          // the need that is last now
    bool has_wait = false;                // for another reduction
  };

  // Moves what unpacks the result of a reduction to the end, if all its users move there too.
  void SinkWaits() {
    std::vector<int32_t> kept_by(At(dependencies_.count()), kNobody);
    for (int32_t number = dependencies_.count() - 1; number >= 0; --number) {
      if (!unpacks_[At(number)]) continue;
      int32_t& by = kept_by[At(number)];
      for (int32_t user : dependencies_.UsersOf(number)) {
        if (!unpacks_[At(user)]) {
          by = user;
        } else if (kept_by[At(user)] != kNobody) {
          by = kept_by[At(user)];
        }
      }
      if (by == kNobody) places_[At(number)].at = dependencies_.count();
      const Node& node = *dependencies_.node(number);
      if (IsGradientWait(node)) CountWait(node, by);
    }
  }

  void CountWait(const Node& wait, int32_t kept_by) {
    if (kept_by == kNobody) {
      ++pass_.waits_;
      return;
    }
    // The wait between shards and replicas moves with the latter.
    const Node& user = *dependencies_.node(kept_by);
    if (IsBucketed(user) && IsReduction(user)) return;
    Block(wait, "the end of the step", user, "uses it before");
  }

  void PlaceGather(int32_t number) {
    const Node& node = *dependencies_.node(number);
    const int32_t layer = BlockOfBucket(node);
    int32_t target = kNotNeeded;
    if (node.meta().is_backward()) {
      if (layer >= 0) target = StartForBackwardGather(layer);
    } else if (layer >= 0) {
      target = Start(regions_.Before(layer));
    } else if (IsUsedAfterTheLastBlock(number)) {
      target = Start(regions_.Before(DenseRegions::kTop));
    }
    if (target == kNotNeeded) return;
    if (Move(ChainOf(number), target, Rank::kGather)) ++pass_.gathers_;
  }

  static int32_t Start(const DenseRegion* region) {
    return region == nullptr || region->forward.empty() ? kNotNeeded : region->forward.front();
  }

  int32_t StartForBackwardGather(int32_t layer) const {
    const DenseRegion* region = regions_.Behind(layer);
    if (region == nullptr) return regions_.TopBackward();
    return region->backward.empty() ? kNotNeeded : region->backward.front();
  }

  // Tells the head from the embeddings: it is used when the last block has begun.
  bool IsUsedAfterTheLastBlock(int32_t gather) const {
    const int32_t start = Start(regions_.Before(DenseRegions::kTop));
    for (int32_t wait : dependencies_.UsersOf(gather)) {
      for (int32_t user : dependencies_.UsersOf(wait)) {
        if (user < start) return false;
      }
    }
    return start != kNotNeeded;
  }

  void PlaceReduction(int32_t number) {
    const Node& node = *dependencies_.node(number);
    const Chain chain = ChainOf(number);
    const int32_t block = BlockOfBucket(node);
    const bool of_block = block >= 0;
    const int32_t layer = of_block ? block : DenseRegions::kTop;
    // Among replicas: the block that runs next is for the one among shards.
    const DenseRegion* region = regions_.Before(layer, chain.has_wait ? 2 : 1);
    if (region == nullptr || region->backward.empty()) {
      if (chain.has_wait) Move(chain, dependencies_.count(), Rank::kNode);
      return;
    }
    const std::vector<int32_t>& dense = region->backward;
    // Gradients of embeddings are ready when all blocks are done.
    if (!of_block && chain.last_need > dense.back()) return;
    auto behind = std::upper_bound(dense.begin(), dense.end(), chain.last_need);
    if (behind == dense.end()) {
      Block(node, "the dense region of the block that runs next",
            *dependencies_.node(chain.last_need), "comes behind that region and is needed");
      return;
    }
    if (Move(chain, *behind, Rank::kReduction)) ++pass_.reductions_;
  }

  // A node moves along if nobody else needs it. Ends where something is computed.
  Chain ChainOf(int32_t collective) {
    Chain chain;
    chain.nodes.push_back(collective);
    std::vector<int32_t> needs;
    for (size_t i = 0; i < chain.nodes.size(); ++i) {
      for (int32_t needed : dependencies_.NeededBy(chain.nodes[i])) {
        needs.push_back(needed);
        const Node& node = *dependencies_.node(needed);
        const auto users = static_cast<int32_t>(dependencies_.UsersOf(needed).size());
        const bool is_wait = IsGradientWait(node);
        if (++users_in_chain_[At(needed)] < users || IsOutput(node)) continue;
        if (!is_wait && !MovesData(node)) continue;
        chain.nodes.push_back(needed);
        chain.has_wait |= is_wait;
      }
    }
    for (int32_t needed : needs) users_in_chain_[At(needed)] = 0;
    chain.members.insert(chain.nodes.begin(), chain.nodes.end());
    for (int32_t needed : needs) {
      if (!chain.members.contains(needed)) chain.last_need = std::max(chain.last_need, needed);
    }
    return chain;
  }

  // Puts the chain before the node `target`, unless something outside forbids it.
  bool Move(const Chain& chain, int32_t target, Rank rank) {
    const Node& node = *dependencies_.node(chain.nodes.front());
    const std::string_view where =
        target < dependencies_.count() ? "dense compute" : "the end of the step";
    for (int32_t member : chain.nodes) {
      const PlaceInOrder place{target, rank, member};
      for (int32_t needed : dependencies_.NeededBy(member)) {
        if (chain.members.contains(needed) || places_[At(needed)] < place) continue;
        return Block(node, where, *dependencies_.node(needed), "is needed and comes behind it");
      }
      for (int32_t user : dependencies_.UsersOf(member)) {
        if (chain.members.contains(user) || place < places_[At(user)]) continue;
        return Block(node, where, *dependencies_.node(user), "uses it before");
      }
    }
    for (int32_t member : chain.nodes) places_[At(member)] = {target, rank, member};
    return true;
  }

  bool Block(const Node& node, std::string_view where, const Node& by, std::string_view why) {
    if (pass_.options_.strict) {
      Fail(ErrorCode::kMoveBlocked,
           "{} cannot move to {}: {} {}. Leave out the option strict to let it stay",
           BucketedName(node), where, BucketedName(by), why);
    }
    log::Debug("fsdp dense regions: {} stays: {} {}", BucketedName(node), BucketedName(by), why);
    ++pass_.blocked_;
    return false;
  }

  // A bucket has the name of a module that it belongs to.
  int32_t BlockOfBucket(const Node& node) { return roles_.Of(node.meta().fsdp_bucket).block; }

  FsdpDenseRegions& pass_;
  const Dependencies& dependencies_;
  std::vector<bool> unpacks_;  // by number
  Roles roles_;
  DenseRegions regions_;
  std::vector<PlaceInOrder> places_;     // by number
  std::vector<int32_t> users_in_chain_;  // by number; all zero between chains
};

bool FsdpDenseRegions::RunImpl(Graph& graph, PassContext& context) {
  const bool any = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                               [](const Node* node) { return IsBucketed(*node); });
  if (!any) return false;
  const auto& dependencies = context.Get<Dependencies>(graph);
  return ApplyOrder(graph, dependencies, Planner(*this, graph, dependencies).Order());
}

}  // namespace gt
