// The buckets that FSDP collectives are packed into: which collectives count, which nodes around them
// move with them, and how they are packed and placed. Which of them travel together is decided by a
// BucketChooser: passes/fsdp/bucket_fsdp.h packs by block, passes/autoparallel/bucket_by_size.h by size.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/passes/framework/context.h"

namespace gt::fsdp {

inline constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

inline size_t Index(int32_t number) { return static_cast<size_t>(number); }
inline size_t Index(const Node& node) { return Index(node.number()); }

// What members of one bucket have in common.
struct Key {
  const Operator* op = nullptr;
  bool backward = false;
  // From the chooser: the block and its experts (the unit is empty for the head), or a number.
  Name unit;
  Name experts;
  int32_t part = -1;
  Name group;
  Name reduction;  // "sum"; empty for gathers
  int64_t ranks = 1;
  DType dtype = DType::kFloat32;
  Device device;
  // Chunks run one after the other: a bucket over several could start only after the last.
  int32_t chunk = -1;
  Name region;
  int32_t behind = -1;  // the bucket whose results it reduces once more
  int32_t alone = -1;   // set for a member that cannot wait for others
  friend bool operator==(const Key&, const Key&) = default;
  // Whether its members become ready together, so that neither should wait for the other.
  bool IsInOneRoundWith(const Key& other) const {
    return unit == other.unit && experts == other.experts && part == other.part &&
           chunk == other.chunk && region == other.region;
  }
};

struct Member {
  Node* collective;
  Node* wait;
  int32_t parameter;         // position among the graph's inputs
  int32_t position;          // gathers: the first user's; reductions: where the gradient is made
  bool escapes;              // an output of the graph shows the result's memory
  std::vector<Node*> chain;  // the nodes between the parameter or gradient and the collective
};

struct Bucket {
  Key key;
  std::vector<Member> members;
  Name name;
  // Of the member that decides: the first to be used, or the last whose gradient is made.
  int32_t position = kNever;
  // Reductions only. Those of one round become ready at about the same time; the next round finishes them. A
  // reduction of reduced values is a round later.
  int32_t round = 0;
  std::vector<Node*> tail;      // what is made of the results on the way to the step's outputs
  std::vector<int32_t> behind;  // buckets that reduce its results once more

  std::vector<Node*> launch;  // up to the collective
  std::vector<Node*> end;     // the wait and what cuts the results out

  bool IsGather() const { return key.op->collective == Collective::kAllGather; }
};

struct Buckets {
  // Gathers, then reductions in the order in which they start, then those after reductions.
  std::vector<Bucket> buckets;
  // The nodes that stay, by their positions; null where a node moves or is removed.
  std::vector<Node*> staying;
  int64_t left_alone = 0;  // gathers and reductions that cannot be packed or moved
};

// A member that has no bucket yet.
struct Candidate {
  const Member* member = nullptr;
  Key key;  // what members of one bucket must have in common in any case
  // The first node that needs the result and does not move with it.
  int32_t deadline = kNever;
};

// Decides which collectives travel together.
class BucketChooser {
 public:
  virtual ~BucketChooser() = default;
  // Whether a gather of a parameter or a reduction of a gradient is packed at all; one that is not
  // stays as it is. `follows`: it reduces once more what another member has reduced.
  virtual bool Takes(const Node& collective, bool follows) = 0;
  // Completes the keys. Called with all gathers, with all reductions, each in the order of the graph,
  // and with single ones that reduce once more, whose keys name the bucket that they are behind.
  virtual void Choose(std::span<Candidate> candidates) = 0;
  virtual void NameBuckets(std::vector<Bucket>& buckets) = 0;
};

// The nodes must be numbered.
Buckets FindBuckets(Graph& graph, PassContext& context, BucketChooser& chooser);

// Makes one collective of each bucket with several members. New nodes are at the end of the graph
// until OrderBuckets finds their places.
void PackBuckets(Graph& graph, Buckets& found);

// Finds the places of packed buckets and puts the graph into its new order. Gathers start `prefetch`
// units (or parts) ahead of their use.
void OrderBuckets(Graph& graph, const Buckets& found, int64_t prefetch);

}  // namespace gt::fsdp
