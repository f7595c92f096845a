#include "gt/passes/autoparallel/bucket_by_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gt/analysis/collectives.h"
#include "gt/analysis/dependencies.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/passes/fsdp/fsdp_buckets.h"
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"
#include "gt/passes/overlap/rank_local_nodes.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

using fsdp::Bucket;
using fsdp::Candidate;
using fsdp::Key;

// The group with the most gathers of parameters, of several the first; empty if there is none. What
// an earlier run has packed has settled it.
std::string PrimaryGroup(Graph& graph, PassContext& context) {
  const auto& origins = context.Get<ParameterOrigins>(graph);
  std::vector<std::pair<std::string, int64_t>> counts;  // in the order of the graph
  for (const Node* node : graph.nodes()) {
    if (node->op().collective != Collective::kAllGather) continue;
    const std::string& group = GroupOf(*node);
    if (!node->meta().fsdp_bucket.empty()) return group;
    if (!origins.IsParameterGather(*node)) continue;
    auto found = std::find_if(counts.begin(), counts.end(),
                              [&](const auto& count) { return count.first == group; });
    if (found == counts.end()) found = counts.insert(counts.end(), {group, 0});
    ++found->second;
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : most->first;
}

// How many nodes that all ranks have are before each node, by number.
std::vector<int64_t> CommonNodesBefore(Graph& graph, PassContext& context) {
  const auto& dependencies = context.Get<Dependencies>(graph);
  const RankLocalNodes local(graph, dependencies);
  std::vector<int64_t> before;
  before.reserve(local.own.size());
  int64_t count = 0;
  for (const bool own : local.own) {
    before.push_back(count);
    count += own ? 0 : 1;
  }
  return before;
}

// Fills one bucket of each kind after the other.
class SizedBuckets : public fsdp::BucketChooser {
 public:
  SizedBuckets(Graph& graph, PassContext& context, const BucketBySizeOptions& options,
               std::string primary)
      : cap_(options.bucket_cap_mb << 20),
        max_span_(options.max_topo_span),
        primary_(std::move(primary)),
        ranks_(context.groups().Find(primary_).ranks),
        context_(context),
        nodes_before_(CommonNodesBefore(graph, context)) {}

  // Reductions over replicas follow those of the primary group: left where they are, each would need
  // its gradient immediately, and nothing could be packed.
  bool Takes(const Node& collective, bool follows) override {
    return follows ||
           (collective.op().collective != Collective::kAllReduce && IsPrimary(GroupOf(collective)));
  }

  void Choose(std::span<Candidate> candidates) override {
    if (candidates.empty() || candidates.front().key.behind >= 0) return;  // goes with that bucket
    // All ranks have the same collectives, but other nodes between them differ.
    const std::string text =
        context_.Decide("which collectives travel together", [&] { return PartsOf(candidates); });
    const std::vector<std::string> parts = Split(text, ' ');
    if (parts.size() != candidates.size()) {
      Fail(ErrorCode::kRanksDisagree,
           "the first rank packs {} gathers or reductions, this rank has {}; ranks of one job have "
           "the same ones, so this is a defect of a pass that looks at what only one rank has",
           parts.size(), candidates.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) candidates[i].key.part = std::stoi(parts[i]);
  }

  void NameBuckets(std::vector<Bucket>& buckets) override {
    for (Bucket& bucket : buckets) {
      const Bucket& named =
          bucket.key.behind >= 0 ? buckets[fsdp::Index(bucket.key.behind)] : bucket;
      bucket.name = Name(fmt::format("bucket{}", named.key.part));
    }
  }

  int64_t closed_by_bytes() const { return closed_by_bytes_; }
  int64_t closed_by_span() const { return closed_by_span_; }

 private:
  struct Open {
    int32_t part = -1;  // none yet
    int64_t bytes = 0;
    int64_t first = 0;                // place of its first collective
    int32_t deadline = fsdp::kNever;  // before which all members must be there
  };

  std::string PartsOf(std::span<const Candidate> candidates) {
    std::vector<std::pair<Key, Open>> open;
    std::vector<std::string> parts;
    for (const Candidate& candidate : candidates) {
      auto found = std::find_if(open.begin(), open.end(),
                                [&](const auto& one) { return one.first == candidate.key; });
      if (found == open.end()) found = open.insert(open.end(), {candidate.key, Open{}});
      parts.push_back(std::to_string(PartFor(candidate, found->second)));
    }
    return Join(parts, " ");
  }

  // Gathers and reductions of the same ranks may have queues of their own.
  bool IsPrimary(const std::string& group) {
    if (group == primary_) return true;
    return !ranks_.empty() && context_.groups().Find(group).ranks == ranks_;
  }

  int32_t PartFor(const Candidate& candidate, Open& open) {
    const Node& collective = *candidate.member->collective;
    const int64_t bytes = BytesOf(collective);
    // What is made of a member's result cannot travel with it.
    if (candidate.member->position >= open.deadline) return ++parts_;
    const bool full = open.bytes + bytes > cap_;
    const int64_t place = nodes_before_[fsdp::Index(collective)];
    const bool too_long = max_span_ > 0 && place - open.first > max_span_;
    if (open.part < 0 || full || too_long) {
      closed_by_bytes_ += open.part >= 0 && full ? 1 : 0;
      closed_by_span_ += open.part >= 0 && too_long ? 1 : 0;
      open = {.part = ++parts_, .first = place};
    }
    open.bytes += bytes;
    open.deadline = std::min(open.deadline, candidate.deadline);
    return open.part;
  }

  // Sizes of members are numbers.
  static int64_t BytesOf(const Node& collective) {
    return std::max(StorageBytes(collective.operand(0)->type(), {}),
                    StorageBytes(collective.result()->type(), {}));
  }

  const int64_t cap_, max_span_;
  const std::string primary_;
  const std::vector<int64_t> ranks_;
  PassContext& context_;
  const std::vector<int64_t> nodes_before_;  // by number
  int32_t parts_ = -1;
  int64_t closed_by_bytes_ = 0, closed_by_span_ = 0;
};

}  // namespace

BucketBySize::BucketBySize(BucketBySizeOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& BucketBySize::info() const {
  static constexpr PassInfo kInfo = {
      .name = "bucket_by_size",
      .summary = "Sends parameters and gradients together up to a size, wherever they are used.",
      .description =
          "Only the process group with the most gathers of parameters counts, and groups with the "
          "same ranks; other groups keep their collectives. All-gathers of parameters, and "
          "reduce-scatters of gradients, are packed in the order of the graph if they share group, "
          "phase, dtype and chunk, until the next one would make the bucket larger than `cap_mb` "
          "or longer than `max_span` nodes, a rank's own not counted. A reduction that comes after "
          "somebody has used the "
          "result of a member is not packed with it. A collective without company stays alone. "
          "Gathers start at the first use of any member, reductions when their last gradient is "
          "there; prefetch_collectives moves them. Reductions over replicas follow their bucket. "
          "Packing, and what moves with a collective, are those of bucket_fsdp.",
      .reads =
          "roles of inputs and outputs, operators, sizes, phases, chunk metadata, names and ranks "
          "of groups, output aliasing.",
      .writes =
          "collectives and the nodes around them, their order, fsdp_bucket. The number and the "
          "order of collectives change, in the same way on every rank.",
      .never =
          "packs over two chunks, moves a collective of activations or tokens, reorders other "
          "nodes among each other, packs a tensor whose size is a symbol.",
  };
  return kInfo;
}

bool BucketBySize::RunImpl(Graph& graph, PassContext& context) {
  const std::string primary = PrimaryGroup(graph, context);
  if (primary.empty()) return false;
  SizedBuckets sizes(graph, context, options_, primary);
  fsdp::Buckets found = fsdp::FindBuckets(graph, context, sizes);
  if (found.buckets.empty()) return false;

  fsdp::PackBuckets(graph, found);
  full_ += sizes.closed_by_bytes();
  long_ += sizes.closed_by_span();
  for (const Bucket& bucket : found.buckets) {
    const auto members = static_cast<int64_t>(bucket.members.size());
    if (members == 1) {
      ++alone_;
      continue;
    }
    ++(bucket.IsGather() ? gather_buckets_ : reduction_buckets_);
    (bucket.IsGather() ? gathers_ : reductions_) += members;
  }
  log::Debug("buckets by size: group {} is primary, {} buckets", primary, found.buckets.size());
  fsdp::OrderBuckets(graph, found, /*prefetch=*/0);
  return true;
}

}  // namespace gt
