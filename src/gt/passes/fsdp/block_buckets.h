// Chooses the buckets of FSDP collectives by the blocks of the model: what a block needs travels
// together, its experts' parameters apart.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/analysis/roles.h"
#include "gt/passes/fsdp/fsdp_buckets.h"

namespace gt::fsdp {

class BlockBuckets : public BucketChooser {
 public:
  // Numbers the nodes.
  explicit BlockBuckets(Graph& graph);

  bool Takes(const Node& /*collective*/, bool /*follows*/) override { return true; }
  void Choose(std::span<Candidate> candidates) override;
  void NameBuckets(std::vector<Bucket>& buckets) override;

 private:
  // Where a module is in the model. Modules outside of blocks are told apart by the first component
  // of their names; those that run after the last block, the head, count as one.
  struct Place {
    Name unit;     // the block, or the module outside of blocks
    Name experts;  // the module whose parameters differ from rank to rank; empty: dense
    bool is_block = false;
  };

  const Place& PlaceOf(Name module);
  const Place& PlaceOf(const Member& member);
  bool IsHead(const Place& place) const;
  std::string HeadName(const std::vector<Bucket>& buckets);

  const Graph& graph_;
  Roles roles_;
  std::unordered_map<Name, Place> places_;
  std::unordered_map<Name, int32_t> ends_;  // last node of the forward, by unit
  int32_t end_of_blocks_ = -1;
};

}  // namespace gt::fsdp
