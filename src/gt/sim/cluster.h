// What the links of a cluster can do, and what its GPUs have, as data: a file of configs/clusters, or
// one that users write for machines of their own. sim/link_model.h turns the numbers into the time of
// a collective.
//
// Units everywhere: bytes, microseconds, GB/s = 1e9 bytes per second.
//
// A file has a section [cluster] (name, generation, gpus_per_node) and one of three descriptions:
//
//   simple        [simple.node] and [simple.network], each with latency_us and bandwidth_gb_per_s.
//
//   measured      [measured.node.KIND] with ranks, latency_us and bandwidth_gb_per_s for each kind of
//                 collective: what gt measure writes. [measured.network.KIND] for groups with ranks
//                 on several nodes.
//
//   closed forms  how NCCL's algorithms behave on machines with a network card per GPU:
//                 [all_gather.node]       measured latency and bandwidth within one node
//                 [all_gather.ring]       the ring across nodes
//                 [all_reduce.node]       as above; across nodes the fastest of ring and trees
//                 [all_reduce.ring]
//                 [all_reduce.tree]       may be missing
//                 [all_reduce.nvls_tree]  may be missing: the tree in which switches add up
//                 [all_to_all.node]
//                 [all_to_all.network]
//
// Three more sections may be missing:
//
//   [device]      rates of one rank's device; without it those of the generation
//   [gpu]         memory_gb and multiprocessors of one GPU
//   [contention]  how many multiprocessors each kind of collective occupies while it is under way;
//                 needs [gpu]. Without it collectives take nothing from compute.
//
// Reduce-scatter has no section of its own: it moves the bytes of an all-gather the other way, in the same
// time. Broadcast has none either: it is an all-gather of more bytes. Every key of a section must
// exist, so that a file says all that it relies on, and keys that are not known are errors.
// configs/clusters/h100.toml explains them where they are used.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gt/ir/operator.h"
#include "gt/sim/cluster_path.h"

namespace gt {

// NCCL sends a message in one of three ways, and takes the fastest: LL (flags between the data: low
// latency, at most half of the bandwidth), LL128 (a flag per 128 bytes), and Simple (large chunks).
inline constexpr std::size_t kProtocols = 3;
inline constexpr std::size_t kProtocolLl = 0, kProtocolLl128 = 1, kProtocolSimple = 2;
using PerProtocol = std::array<double, kProtocols>;

// The fraction of the bandwidth that a message of a certain size reaches. Entry i is for 64 * 2^i
// bytes; smaller messages use the first entry and larger ones the last. Between entries the factor
// follows a power law, and no entry is more than twice the one before it: so time never falls when
// a message grows. (With steps or straight lines between entries it would. Those are there to
// reproduce published figures, and count whole units of 64 bytes.)
struct Ramp {
  enum class Between : uint8_t { kPowerLaw, kStraight, kStep };

  std::vector<double> log2_factors;  // at least one
  Between between = Between::kPowerLaw;

  // The factor raised to `exponent` (at least 1), with steps between entries still at most twofold.
  double At(double bytes, double exponent = 1) const;
};

// Values measured for some numbers (of ranks, of nodes), linear in between.
struct Curve {
  std::vector<double> at;      // ascending
  std::vector<double> values;  // as many

  // Outside of what was measured the nearest value holds.
  double Linear(double x) const;
  // Linear in log2(x); above the last point the value grows in proportion to x.
  double Logarithmic(double x) const;
};

// Time within a node: latency + bytes / bandwidth, each depending on how many ranks take part.
struct NodeLinks {
  Curve latency_us;
  Curve bandwidth_gb_per_s;
};

// A ring through all ranks that enters and leaves every node once per network card it uses.
struct Ring {
  PerProtocol base_latency_us;
  PerProtocol gpu_hop_latency_us;        // a step between GPUs of one node
  PerProtocol node_hop_latency_us;       // a step between nodes
  PerProtocol lone_rank_hop_latency_us;  // the same where only one rank of each node takes part

  // More for every node; above four nodes each of them adds (nodes / 4)^exponent times as much.
  double node_latency_us;
  double node_latency_exponent;
  // Multiplies the latency of protocol Simple for messages of at least so many bytes per rank.
  double large_message_latency_factor;
  double large_message_bytes_per_rank;

  double rank_bandwidth_gb_per_s;  // what one network card carries
  double node_bandwidth_gb_per_s;  // at most so much for all cards of a node
  PerProtocol protocol_share;      // the part of it that is payload
  PerProtocol protocol_limit_gb_per_s;
  PerProtocol two_node_protocol_limit_gb_per_s;
  double bandwidth_step_gb_per_s;  // the resolution of the measurements; 0: exact

  Ramp ramp;                  // by bytes per rank
  bool ramp_full_nodes_only;  // it counts only where all GPUs of each node take part
  double ramp_deepening;      // above four nodes its exponent grows so much per doubling
};

// Two trees over the nodes, a chain within each node; up to add, down to spread the sum.
struct Tree {
  PerProtocol base_latency_us;
  PerProtocol gpu_hop_latency_us;
  PerProtocol node_hop_latency_us;  // for each level of the tree
  double rank_bandwidth_gb_per_s;
  double network_efficiency;  // the part of that which a tree reaches
  double tree_efficiency;     // the part of all limits below that is left over for the sum
  double channels_per_rank;
  double max_channels;
  // What one channel carries. LL is limited as a whole instead, by ll_limit.
  double ll128_channel_gb_per_s, two_node_ll128_channel_gb_per_s;
  double simple_channel_gb_per_s, two_node_simple_channel_gb_per_s;
  double ll_limit_gb_per_s, two_node_ll_limit_gb_per_s;
  PerProtocol protocol_share;  // of the bandwidth of protocol Simple
  double bandwidth_step_gb_per_s;
  std::array<Ramp, kProtocols> ramps;  // by bytes of the whole message
};

// Sums within a node are made by its switch. Only for as many ranks per node as the first point of
// the curves, or more.
struct NvlsTree {
  double base_latency_us;
  double level_latency_us;  // for each doubling of the nodes
  Curve bandwidth_gb_per_s;
  Curve two_node_bandwidth_gb_per_s;
  Ramp ramp;  // by bytes per rank
};

// All-to-all across nodes: latency + bytes for other nodes / bandwidth.
struct AllToAllNetwork {
  Curve latency_us;  // by nodes
  double rank_bandwidth_gb_per_s;
  double node_loss;  // bandwidth is lower by the factor 1 - node_loss / nodes
  Ramp ramp;         // by bytes for each peer; what is missing to 1 is divided by log2(nodes)
};

// One latency and one bandwidth inside a node, one of each between nodes. A node's bandwidth to the
// network is shared by its ranks.
struct SimpleLinks {
  struct Link {
    double latency_us;
    double bandwidth_gb_per_s;
  };
  Link node;
  Link network;
};

// Latency and bandwidth of each kind of collective as they were measured, by number of ranks. The
// links of several kinds may be very different where a CPU does the work of the network.
struct MeasuredLinks {
  struct Kinds {
    NodeLinks all_gather, reduce_scatter, all_reduce, all_to_all, broadcast;
  };
  Kinds node;                    // groups on one node
  std::optional<Kinds> network;  // groups with ranks on several; without it, as on one
};

struct NcclLinks {
  NodeLinks all_gather_node;
  Ring all_gather_ring;
  NodeLinks all_reduce_node;
  Ring all_reduce_ring;
  std::optional<Tree> all_reduce_tree;
  std::optional<NvlsTree> all_reduce_nvls_tree;
  NodeLinks all_to_all_node;
  AllToAllNetwork all_to_all_network;
  // As AutoParallel's cost model reads the same numbers, also where they say little of real links; see
  // WithPublishedFormulas.
  bool published = false;
};

// What kernels reach on the device of one rank.
struct DeviceSpeed {
  std::string name;
  double peak_tflops = 0;         // matrix products of bf16, as sold; 0: not known
  double half_tflops = 0;         // matrix products of bf16 and f16 that large kernels reach
  double float_tflops = 0;        // of f32, and all arithmetic that is no matrix product
  double memory_gb_per_s = 0;     // what streaming kernels reach
  double kernel_us = 0;           // the shortest kernel, and the gap between two
  double launch_us = 0;           // the host's work for one kernel; 0: the host computes itself
  double host_read_us = 0;        // from the end of a kernel to the host's knowing a number it made
  double host_link_gb_per_s = 0;  // copies between the device's memory and the host's
};

// Zeros: not known.
struct Gpu {
  double memory_gb = 0;  // GiB, what the vendor sells as GB
  std::int64_t multiprocessors = 0;
};

// Multiprocessors that one collective occupies from its beginning to its end, so that kernels beside
// it have only the others.
struct Contention {
  std::int64_t all_gather = 0;
  std::int64_t reduce_scatter = 0;
  std::int64_t all_reduce = 0;
  std::int64_t all_to_all = 0;
  std::int64_t broadcast = 0;
};

struct Cluster {
  std::string name;
  std::string generation;  // of the GPUs, for reports: "hopper", "blackwell"
  std::int64_t gpus_per_node = 1;
  std::variant<SimpleLinks, MeasuredLinks, NcclLinks> links;
  std::optional<DeviceSpeed> device = {};  // nothing: as the generation says
  Gpu gpu = {};
  Contention contention = {};

  // The part of a GPU's multiprocessors that a collective of this kind occupies: at least 0 and below
  // 1; 0 for kNone and kWait, and where the file does not say.
  double ComputeShareTaken(Collective kind) const;
};

// `file` is only used in errors: code BadCluster with file, line and key, or those of toml::Parse.
Cluster ParseCluster(std::string_view text, std::string_view file);
Cluster ReadCluster(const std::filesystem::path& path);

// The form that ParseCluster reads, of a cluster with simple or measured links.
std::string ClusterToml(const Cluster& cluster);

// The same cluster with its numbers read as AutoParallel's cost model reads them. Ramps of trees and
// all-to-alls go in steps, all others along straight lines. A ring that sums over two nodes is as fast as
// one within a node. Numbers of nodes that were not measured (all but
// 2, 4, 8, 16 and 32) are those of a model of NCCL's choice between algorithms instead.
Cluster WithPublishedFormulas(Cluster cluster);

}  // namespace gt
