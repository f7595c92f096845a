#include "gt/sim/link_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "gt/base/error.h"

namespace gt {
namespace {

// One GB/s is a thousand bytes per microsecond.
double WireUs(double bytes, double gb_per_s) { return bytes / (1e3 * gb_per_s); }

// Formulas take numbers of ranks as they take bandwidths.
struct Span {
  explicit Span(const GroupSpan& span)
      : nodes(static_cast<double>(span.nodes)),
        per_node(static_cast<double>(span.ranks_per_node)),
        ranks(static_cast<double>(span.ranks())) {}
  double nodes, per_node, ranks;
};

// Rings of more nodes than this lose more than a fixed fraction per node.
constexpr double kShallowNodes = 4;

double Rounded(double gb_per_s, double step) {
  return step > 0 ? std::max(step, std::round(gb_per_s / step) * step) : gb_per_s;
}

double NodeUs(const NodeLinks& links, double bytes, double ranks) {
  return links.latency_us.Linear(ranks) + WireUs(bytes, links.bandwidth_gb_per_s.Linear(ranks));
}

double RingLatencyUs(const Ring& ring, std::size_t protocol, double bytes, const Span& span,
                     double rounds) {
  const double hop =
      (span.per_node > 1 ? ring.node_hop_latency_us : ring.lone_rank_hop_latency_us)[protocol];
  const double between_nodes = span.nodes - 1;
  const double within_nodes = span.ranks - span.nodes;
  const double crowding =
      std::pow(std::max(1.0, span.nodes / kShallowNodes), ring.node_latency_exponent);
  const double latency =
      ring.base_latency_us[protocol] +
      rounds * (within_nodes * ring.gpu_hop_latency_us[protocol] + between_nodes * hop) +
      ring.node_latency_us * span.nodes * crowding;
  const bool large = rounds > 1 && bytes >= ring.large_message_bytes_per_rank * span.ranks;
  return protocol == kProtocolSimple && large ? latency * ring.large_message_latency_factor
                                              : latency;
}

// Levels of a tree over the nodes.
double LevelsOf(const Span& span, bool published) {
  const double levels = std::log2(span.nodes);
  return published ? std::floor(levels) : levels;
}

double RingRamp(const Ring& ring, double bytes, const Span& span, double gpus_per_node,
                bool published) {
  if (ring.ramp_full_nodes_only && span.per_node < gpus_per_node) return 1;
  const double doublings = std::max(0.0, LevelsOf(span, published) - std::log2(kShallowNodes));
  return ring.ramp.At(bytes / span.ranks, 1 + ring.ramp_deepening * doublings);
}

// What all network cards of a node carry that have a rank.
double NodeBandwidth(const Ring& ring, const Span& span) {
  return std::min(ring.node_bandwidth_gb_per_s, ring.rank_bandwidth_gb_per_s * span.per_node);
}

// `rounds` is how often the data goes around: once to gather it, twice to add and gather it.
double RingUs(const Ring& ring, double bytes, const Span& span, double rounds, double gpus_per_node,
              bool published) {
  const double bus = published && rounds > 1 && span.nodes <= 2 ? ring.node_bandwidth_gb_per_s
                                                                : NodeBandwidth(ring, span);
  const PerProtocol& limits =
      span.nodes > 2 ? ring.protocol_limit_gb_per_s : ring.two_node_protocol_limit_gb_per_s;
  const double message_per_link = span.ranks / (rounds * (span.ranks - 1));
  const double ramp = RingRamp(ring, bytes, span, gpus_per_node, published);
  double fastest = std::numeric_limits<double>::infinity();
  for (std::size_t p = 0; p < kProtocols; ++p) {
    const double link = std::min(limits[p], ring.protocol_share[p] * bus);
    const double bandwidth = Rounded(link * message_per_link, ring.bandwidth_step_gb_per_s);
    const double time =
        RingLatencyUs(ring, p, bytes, span, rounds) + WireUs(bytes, bandwidth * ramp);
    fastest = std::min(fastest, time);
  }
  return fastest;
}

// What the links of the tree carry, with each protocol. The sum goes up and down over the same
// links, so that a message sees half of it.
PerProtocol TreeBandwidth(const Tree& tree, const Span& span) {
  const bool two = span.nodes <= 2;
  const double channels = std::min(tree.max_channels, tree.channels_per_rank * span.per_node);
  const double network = tree.rank_bandwidth_gb_per_s * span.per_node * (two ? 2 : 1);
  const double simple_channel =
      two ? tree.two_node_simple_channel_gb_per_s : tree.simple_channel_gb_per_s;
  const double ll128_channel =
      two ? tree.two_node_ll128_channel_gb_per_s : tree.ll128_channel_gb_per_s;
  const double ll_limit = two ? tree.two_node_ll_limit_gb_per_s : tree.ll_limit_gb_per_s;

  const double simple = std::min(tree.network_efficiency * network, channels * simple_channel);
  const PerProtocol limits = {ll_limit, channels * ll128_channel, simple};
  PerProtocol bandwidth;
  for (std::size_t p = 0; p < kProtocols; ++p) {
    bandwidth[p] = tree.tree_efficiency * std::min(limits[p], tree.protocol_share[p] * simple);
  }
  return bandwidth;
}

double TreeUs(const Tree& tree, double bytes, const Span& span, bool published) {
  const PerProtocol bandwidth = TreeBandwidth(tree, span);
  double fastest = std::numeric_limits<double>::infinity();
  for (std::size_t p = 0; p < kProtocols; ++p) {
    const double up_or_down = (span.per_node - 1) * tree.gpu_hop_latency_us[p] +
                              LevelsOf(span, published) * tree.node_hop_latency_us[p];
    const double message = Rounded(bandwidth[p] / 2, tree.bandwidth_step_gb_per_s);
    const double time =
        tree.base_latency_us[p] + 2 * up_or_down + WireUs(bytes, message * tree.ramps[p].At(bytes));
    fastest = std::min(fastest, time);
  }
  return fastest;
}

double NvlsTreeUs(const NvlsTree& tree, double bytes, const Span& span) {
  const Curve& bandwidth =
      span.nodes > 2 ? tree.bandwidth_gb_per_s : tree.two_node_bandwidth_gb_per_s;
  return tree.base_latency_us + tree.level_latency_us * std::log2(span.nodes) +
         WireUs(bytes, bandwidth.Linear(span.per_node) * tree.ramp.At(bytes / span.ranks));
}

// Numbers of nodes of which rings and trees were measured.
bool IsMeasured(const Span& span) {
  constexpr std::array<double, 5> kNodes = {2, 4, 8, 16, 32};
  return std::find(kNodes.begin(), kNodes.end(), span.nodes) != kNodes.end();
}

// The published model of sums over other numbers of nodes, three or more: NCCL's algorithms with the
// constants of its source, on 16 channels.
double UnmeasuredAllReduceUs(const NcclLinks& links, double bytes, const Span& span) {
  const double bus = NodeBandwidth(links.all_reduce_ring, span);
  const double message_per_link = span.ranks / (2 * (span.ranks - 1));
  const bool lone = span.per_node == 1;
  const double lone_hop_us = links.all_reduce_ring.lone_rank_hop_latency_us[kProtocolSimple];
  // The switches of nodes add up, and one network card or a tree connects them.
  constexpr double kSwitchUs = 25, kSwitchHopUs = 18, kTreeHopUs = 20.9;
  const double by_switch =
      kSwitchUs + (lone ? lone_hop_us : kSwitchHopUs) +
      WireUs(bytes, links.all_reduce_ring.rank_bandwidth_gb_per_s * message_per_link);
  const double by_switch_tree = kSwitchUs +
                                2 * LevelsOf(span, true) * (lone ? lone_hop_us : kTreeHopUs) +
                                WireUs(bytes, bus * message_per_link);
  double fastest = std::min(by_switch, by_switch_tree);
  if (links.all_reduce_tree) {
    Tree tree = *links.all_reduce_tree;
    tree.rank_bandwidth_gb_per_s = bus / span.per_node;
    tree.tree_efficiency = 1;
    tree.channels_per_rank = tree.max_channels = 16;
    tree.bandwidth_step_gb_per_s = 0;
    fastest = std::min(fastest, TreeUs(tree, bytes, span, /*published=*/true));
  }
  return fastest;
}

double AllGatherUs(const NcclLinks& links, double bytes, const Span& span, double gpus_per_node) {
  if (span.nodes == 1) return NodeUs(links.all_gather_node, bytes, span.ranks);
  const bool measured = !links.published || IsMeasured(span);
  return RingUs(measured ? links.all_gather_ring : links.all_reduce_ring, bytes, span, 1,
                gpus_per_node, links.published);
}

double AllReduceUs(const NcclLinks& links, double bytes, const Span& span, double gpus_per_node) {
  if (span.nodes == 1) return NodeUs(links.all_reduce_node, bytes, span.ranks);
  double fastest = RingUs(links.all_reduce_ring, bytes, span, 2, gpus_per_node, links.published);
  if (links.published && !IsMeasured(span)) {
    return std::min(fastest, UnmeasuredAllReduceUs(links, bytes, span));
  }
  if (links.all_reduce_tree) {
    fastest = std::min(fastest, TreeUs(*links.all_reduce_tree, bytes, span, links.published));
  }
  if (const std::optional<NvlsTree>& tree = links.all_reduce_nvls_tree;
      tree && span.per_node >= tree->bandwidth_gb_per_s.at.front()) {
    fastest = std::min(fastest, NvlsTreeUs(*tree, bytes, span));
  }
  return fastest;
}

double AllToAllUs(const NcclLinks& links, double bytes, const Span& span) {
  if (span.nodes == 1) return NodeUs(links.all_to_all_node, bytes, span.ranks);
  const AllToAllNetwork& network = links.all_to_all_network;
  const double remote_bytes = bytes * (span.ranks - span.per_node) / span.ranks;
  // With more nodes more messages are in flight at the same time, and their ramps overlap.
  const double missing =
      (1 - network.ramp.At(bytes / span.ranks)) / LevelsOf(span, links.published);
  const double bandwidth = network.rank_bandwidth_gb_per_s * (1 - network.node_loss / span.nodes);
  const double latency = links.published ? network.latency_us.Linear(span.nodes)
                                         : network.latency_us.Logarithmic(span.nodes);
  return latency + WireUs(remote_bytes, bandwidth * (1 - missing));
}

double CollectiveUs(const NcclLinks& links, Collective kind, double bytes, const Span& span,
                    double gpus_per_node) {
  switch (kind) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return AllGatherUs(links, bytes, span, gpus_per_node);
    case Collective::kAllReduce:
      return AllReduceUs(links, bytes, span, gpus_per_node);
    case Collective::kAllToAll:
      return AllToAllUs(links, bytes, span);
    case Collective::kBroadcast:
      // A chain through all ranks. All bytes pass every link, in an all-gather all but one part.
      return AllGatherUs(links, bytes * span.ranks / (span.ranks - 1), span, gpus_per_node);
    case Collective::kNone:
    case Collective::kWait:
      break;
  }
  return 0;
}

// One step after the other to every other rank; bandwidth is that of the slowest link on the way.
double CollectiveUs(const SimpleLinks& links, Collective kind, double bytes, const Span& span) {
  const bool one_node = span.nodes == 1;
  const double round_latency = (span.ranks - span.nodes) * links.node.latency_us +
                               (span.nodes - 1) * links.network.latency_us;
  const double ring_bandwidth =
      one_node ? links.node.bandwidth_gb_per_s
               : std::min(links.node.bandwidth_gb_per_s, links.network.bandwidth_gb_per_s);
  const double others = (span.ranks - 1) / span.ranks;
  switch (kind) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return round_latency + WireUs(bytes * others, ring_bandwidth);
    case Collective::kAllReduce:
      return 2 * (round_latency + WireUs(bytes * others, ring_bandwidth));
    case Collective::kBroadcast:
      return round_latency + WireUs(bytes, ring_bandwidth);
    case Collective::kAllToAll: {
      const double near_bytes = bytes * (span.per_node - 1) / span.ranks;
      const double far_bytes = bytes * (span.ranks - span.per_node) / span.ranks;
      // The ranks of a node share its link to the network. Both kinds of links work in parallel.
      return round_latency +
             std::max(WireUs(near_bytes, links.node.bandwidth_gb_per_s),
                      WireUs(far_bytes * span.per_node, links.network.bandwidth_gb_per_s));
    }
    case Collective::kNone:
    case Collective::kWait:
      break;
  }
  return 0;
}

const NodeLinks& LinksOf(const MeasuredLinks::Kinds& kinds, Collective kind) {
  switch (kind) {
    case Collective::kReduceScatter:
      return kinds.reduce_scatter;
    case Collective::kAllReduce:
      return kinds.all_reduce;
    case Collective::kAllToAll:
      return kinds.all_to_all;
    case Collective::kBroadcast:
      return kinds.broadcast;
    default:
      return kinds.all_gather;
  }
}

double CollectiveUs(const MeasuredLinks& links, Collective kind, double bytes, const Span& span) {
  if (kind == Collective::kNone || kind == Collective::kWait) return 0;
  const bool across = span.nodes > 1 && links.network;
  return NodeUs(LinksOf(across ? *links.network : links.node, kind), bytes, span.ranks);
}

}  // namespace

GroupSpan SpanOf(std::span<const std::int64_t> global_ranks, std::int64_t gpus_per_node) {
  GT_CHECK(!global_ranks.empty(), "a group has at least one rank");
  GT_CHECK(gpus_per_node > 0, "a node has at least one GPU");
  std::vector<std::int64_t> ranks(global_ranks.begin(), global_ranks.end());
  std::sort(ranks.begin(), ranks.end());
  GT_CHECK(ranks.front() >= 0, "rank {} of a group is negative", ranks.front());
  GT_CHECK(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end(),
           "a rank is twice in one group");

  const auto count = static_cast<std::int64_t>(ranks.size());
  GroupSpan span{.nodes = 0, .ranks_per_node = count};
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    const std::int64_t node = ranks[begin] / gpus_per_node;
    while (end < ranks.size() && ranks[end] / gpus_per_node == node) ++end;
    ++span.nodes;
    span.ranks_per_node = std::min(span.ranks_per_node, static_cast<std::int64_t>(end - begin));
  }
  span.extra_ranks = count - span.nodes * span.ranks_per_node;
  return span;
}

LinkModel::LinkModel(Cluster cluster) : cluster_(std::move(cluster)) {}

double LinkModel::Microseconds(Collective kind, std::int64_t bytes, const GroupSpan& group) const {
  GT_CHECK(bytes >= 0, "a collective of {} bytes", bytes);
  GT_CHECK(group.nodes >= 1 && group.ranks_per_node >= 1 && group.extra_ranks >= 0,
           "a group of {} nodes with {} ranks each and {} more", group.nodes, group.ranks_per_node,
           group.extra_ranks);
  if (group.ranks() == 1) return 0;
  const auto size = static_cast<double>(bytes);
  const Span span(group);
  if (const auto* simple = std::get_if<SimpleLinks>(&cluster_.links)) {
    return CollectiveUs(*simple, kind, size, span);
  }
  if (const auto* measured = std::get_if<MeasuredLinks>(&cluster_.links)) {
    return CollectiveUs(*measured, kind, size, span);
  }
  return CollectiveUs(std::get<NcclLinks>(cluster_.links), kind, size, span,
                      static_cast<double>(cluster_.gpus_per_node));
}

CollectiveTime LinkModel::Time(Collective kind, std::int64_t bytes, const GroupSpan& span) const {
  const double total = Microseconds(kind, bytes, span);
  if (total <= 0) return {};
  const double latency = std::min(total, Microseconds(kind, 0, span));
  return {.latency_us = latency,
          .transfer_us = total - latency,
          .resource = span.nodes > 1 ? LinkResource::kNetwork : LinkResource::kNode};
}

std::int64_t AllToAllVolume(std::span<const std::int64_t> sent,
                            std::span<const std::int64_t> received) {
  return std::max(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}),
                  std::accumulate(received.begin(), received.end(), std::int64_t{0}));
}

std::int64_t BusiestAllToAllVolume(std::span<const std::int64_t> volumes, std::int64_t ranks) {
  GT_CHECK(ranks >= 1 && volumes.size() == static_cast<std::size_t>(ranks * ranks),
           "{} volumes for {} ranks", volumes.size(), ranks);
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> received(n, 0);
  std::int64_t busiest = 0;
  for (std::size_t from = 0; from < n; ++from) {
    std::int64_t sent = 0;
    for (std::size_t to = 0; to < n; ++to) {
      sent += volumes[from * n + to];
      received[to] += volumes[from * n + to];
    }
    busiest = std::max(busiest, sent);
  }
  return std::max(busiest, *std::max_element(received.begin(), received.end()));
}

GroupSpan SlowestSpan(std::span<const std::int64_t> global_ranks, std::int64_t world_size,
                      std::int64_t gpus_per_node) {
  GT_CHECK(gpus_per_node > 0, "a node has at least one GPU");
  if (global_ranks.size() < 2) return SpanOf(global_ranks, gpus_per_node);
  std::vector<std::int64_t> sorted(global_ranks.begin(), global_ranks.end());
  std::sort(sorted.begin(), sorted.end());
  const auto size = static_cast<std::int64_t>(sorted.size());
  const std::int64_t first = sorted[0], stride = sorted[1] - first;
  GT_CHECK(stride > 0, "rank {} is in the group twice", first);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] - sorted[i - 1] == stride) continue;
    // Along several axes of a mesh: as the group of rank 0, from which the others differ by a shift.
    for (std::int64_t& rank : sorted) rank -= first;
    return SpanOf(sorted, gpus_per_node);
  }
  const std::int64_t period = stride * size;  // of as many ranks `stride` groups consist
  GT_CHECK(first >= 0 && first % period < stride && world_size % period == 0 &&
               sorted.back() < world_size,
           "no axis of {} ranks has a group of {} ranks, {} apart, that begins with rank {}",
           world_size, size, stride, first);

  // A span depends only on where in its node the first rank is.
  std::vector<bool> seen(static_cast<std::size_t>(gpus_per_node), false);
  std::vector<std::int64_t> ranks(global_ranks.size());
  GroupSpan slowest{.nodes = 0};
  for (std::int64_t begin = 0; begin < world_size; begin += period) {
    for (std::int64_t start = begin; start < begin + stride; ++start) {
      const std::int64_t place = start % gpus_per_node;
      if (seen[static_cast<std::size_t>(place)]) continue;
      seen[static_cast<std::size_t>(place)] = true;
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        ranks[i] = place + static_cast<std::int64_t>(i) * stride;
      }
      const GroupSpan span = SpanOf(ranks, gpus_per_node);
      if (std::pair(span.nodes, -span.ranks_per_node) >
          std::pair(slowest.nodes, -slowest.ranks_per_node)) {
        slowest = span;
      }
    }
  }
  return slowest;
}

}  // namespace gt
