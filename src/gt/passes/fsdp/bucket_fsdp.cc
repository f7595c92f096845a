// In four steps, each linear in nodes:
//   fsdp_buckets.cc        the collectives that count, and the nodes that move with them;
//   block_buckets.cc       which of them travel together: those of one block;
//   fsdp_bucket_packer.cc  makes one collective of each bucket;
//   fsdp_bucket_order.cc   writes the nodes down in their new order.
//
// Why no cycle can arise. A gather needs one parameter and nothing else. A reduction is packed with
// others only if nothing needs its result before all of the bucket's gradients are available
// (fsdp_buckets.cc). Nodes that do not move keep their relative order; those that move are emitted
// at their new position, or earlier if a node needs them.
#include "gt/passes/fsdp/bucket_fsdp.h"

#include "gt/passes/fsdp/block_buckets.h"
#include "gt/passes/fsdp/fsdp_buckets.h"

namespace gt {

BucketFsdp::BucketFsdp(BucketFsdpOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& BucketFsdp::info() const {
  static constexpr PassInfo kInfo = {
      .name = "bucket_fsdp",
      .summary =
          "Sends the parameters and gradients of a block together, side by side with compute.",
      .description =
          "All-gathers of parameters become one for each transformer block and direction, the "
          "experts' apart; what is outside of blocks has one for each top-level module, and one "
          "for "
          "everything behind the last block. Members share group, dtype, and chunk, and are packed "
          "in "
          "the order of the parameters. A gather starts `prefetch` blocks before its first use, "
          "the "
          "first ones where the forward or backward begins; compute waits for it in front of the "
          "first use of any member. Reductions of gradients become one for each block likewise. "
          "One "
          "starts when its last gradient is there and is waited for behind the start of the next; "
          "all-reduces behind it (replicated shards) follow in the same way. Casts, pads, copies "
          "and "
          "views around a collective move with it. A reduction that somebody needs before the "
          "bucket's last gradient is made stays alone.",
      .reads =
          "roles of inputs and outputs, operators, roles and names of modules, phases, chunk "
          "metadata, names of "
          "groups, output aliasing.",
      .writes =
          "collectives and the nodes around them, their order, fsdp_bucket. The number and the "
          "order "
          "of collectives change, in the same way on every rank.",
      .never =
          "packs over two chunks, moves a collective of activations or tokens, reorders other "
          "nodes "
          "among each other, packs a tensor whose size is a symbol.",
      .by_block = true,
  };
  return kInfo;
}

bool BucketFsdp::RunImpl(Graph& graph, PassContext& context) {
  fsdp::BlockBuckets blocks(graph);
  fsdp::Buckets found = fsdp::FindBuckets(graph, context, blocks);
  left_ += found.left_alone;
  if (found.buckets.empty()) return false;

  fsdp::PackBuckets(graph, found);
  for (const fsdp::Bucket& bucket : found.buckets) {
    ++(bucket.IsGather() ? gather_buckets_ : reduction_buckets_);
    (bucket.IsGather() ? gathers_ : reductions_) += static_cast<int64_t>(bucket.members.size());
  }
  fsdp::OrderBuckets(graph, found, options_.fsdp_prefetch);
  return true;
}

}  // namespace gt
