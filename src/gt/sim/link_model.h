// How long a collective takes on a cluster that is not there: what the emulated backend waits for,
// and what passes that overlap communication plan with.
//
// The model knows one collective at a time. sim/shared_links.h makes those that are under way at the
// same moment share the links.
#pragma once

#include <cstdint>
#include <span>

#include "gt/ir/operator.h"
#include "gt/sim/cluster.h"

namespace gt {

// Where the ranks of a group are.
struct GroupSpan {
  std::int64_t nodes = 1;
  // On every node; in an uneven group on the node that has fewest, as the whole group waits for the
  // node with the fewest links to the network.
  std::int64_t ranks_per_node = 1;
  // Ranks beyond nodes * ranks_per_node; 0 unless the group is uneven.
  std::int64_t extra_ranks = 0;

  std::int64_t ranks() const { return nodes * ranks_per_node + extra_ranks; }
  bool operator==(const GroupSpan&) const = default;
};

// The span of the group of these global ranks (distinct, in any order), when rank r runs on node
// r / gpus_per_node.
GroupSpan SpanOf(std::span<const std::int64_t> global_ranks, std::int64_t gpus_per_node);

// What a collective shares with others that are under way: the links inside a node, or the network
// between nodes.
enum class LinkResource : std::uint8_t { kNone, kNode, kNetwork };

// The time of one collective that has the links for itself, in two parts: what zero bytes take, in
// which the links are idle, and the rest, in which it fills them.
struct CollectiveTime {
  double latency_us = 0;
  double transfer_us = 0;  // never negative
  LinkResource resource = LinkResource::kNone;

  double total_us() const { return latency_us + transfer_us; }
  bool operator==(const CollectiveTime&) const = default;
};

class LinkModel {
 public:
  explicit LinkModel(Cluster cluster);

  // The time of one collective in microseconds. `bytes` is the size of
  //   all_gather      the result (all ranks' shards together)
  //   reduce_scatter  the operand (all ranks' shards together)
  //   all_reduce      the tensor
  //   broadcast       the tensor
  //   all_to_all      what one rank holds before (or after), including the part that it keeps; see
  //                   below for uneven splits
  // Zero bytes still take the latency. A group of one rank takes 0, and so does kNone or kWait.
  // Allocates nothing; safe to call from several threads.
  double Microseconds(Collective kind, std::int64_t bytes, const GroupSpan& span) const;

  // The same, split; total_us() is Microseconds() but for rounding. Of no resource if it takes no time.
  CollectiveTime Time(Collective kind, std::int64_t bytes, const GroupSpan& span) const;

  const Cluster& cluster() const { return cluster_; }

 private:
  Cluster cluster_;
};

// With uneven splits an all-to-all ends when the busiest rank has sent and received everything.
//
// What one rank moves: the larger of what it sends and what it receives, in the unit of the splits.
// All that a rank can say on its own.
std::int64_t AllToAllVolume(std::span<const std::int64_t> sent,
                            std::span<const std::int64_t> received);

// The same for the busiest of all ranks; volumes[i * ranks + j] goes from rank i to rank j.
std::int64_t BusiestAllToAllVolume(std::span<const std::int64_t> volumes, std::int64_t ranks);

// The slowest span among all groups along one axis of a mesh, of which `global_ranks` is one: the one
// with most nodes, and of those the one with the fewest ranks on a node. Groups of one axis need not
// be alike: of 24 ranks on nodes of 8, groups of 6 neighbours are in one node or across two. A plan
// that all ranks must make alike is made for the slowest, whichever group a rank is in.
//
// The ranks, in any order, are an arithmetic series; the other groups of its axis have the same stride
// and size, and together they are all ranks of the world. A group along several axes of a mesh that is
// no series counts as if it began with rank 0, so that all ranks come to the same.
GroupSpan SlowestSpan(std::span<const std::int64_t> global_ranks, std::int64_t world_size,
                      std::int64_t gpus_per_node);

}  // namespace gt
