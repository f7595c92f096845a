#include "gt/sim/cluster.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/config/toml.h"

namespace gt {
namespace {

// Longer lists are mistakes: 64 doublings of 64 bytes are more than any message has.
constexpr std::size_t kMaxListLength = 64;

struct Range {
  double low;
  double high;
  std::string_view what;  // "a latency in microseconds"
};
// Wide enough for anything between a slow modem and a memory bus, and narrow enough that no time
// becomes infinite.
constexpr Range kLatency{0, 1e9, "a latency in microseconds"};
constexpr Range kBandwidth{1e-6, 1e6, "a bandwidth in GB/s"};
constexpr Range kRate{1e-6, 1e6, "a rate in TFLOP/s"};
constexpr Range kBandwidthStep{0, 1e3, "a resolution in GB/s, 0 for none"};
constexpr Range kShare{1e-3, 1, "a part of the whole"};
constexpr Range kLoss{0, 1, "a part of the whole, 0 for none"};
constexpr Range kExponent{0, 4, "an exponent"};
constexpr Range kFactor{1, 100, "a factor"};
constexpr Range kBytes{0, 1e15, "a number of bytes"};
constexpr Range kMemory{0.01, 1e6, "a number of GiB"};
constexpr std::int64_t kMaxMultiprocessors = 65536;
constexpr Range kCount{1, 1e6, "a number of ranks, nodes or channels"};
// Where a curve begins: a group of one rank, or one node, needs no links.
constexpr Range kSeveral{2, 1e6, "a number of ranks or nodes"};

// The entries of a file by key. Remembers which were asked for, so that the rest can be refused.
class ClusterFile {
 public:
  ClusterFile(std::string_view text, std::string_view file) : file_(file) {
    for (toml::Entry& entry : toml::Parse(text, file).entries) {
      const std::string path = entry.path;
      entries_.emplace(path, std::move(entry));
    }
  }

  // Whether the file says anything about the section.
  bool Has(const std::string& section) const {
    const auto first = entries_.lower_bound(section + ".");
    return first != entries_.end() && first->first.starts_with(section + ".");
  }

  std::string Text(const std::string& key) {
    const toml::Entry& entry = Find(key, "a text");
    const auto* text = std::get_if<std::string>(&entry.value.data);
    if (text == nullptr || text->empty()) Wrong(entry, "a text in quotes");
    return *text;
  }

  bool Bool(const std::string& key) {
    const toml::Entry& entry = Find(key, "true or false");
    const auto* value = std::get_if<bool>(&entry.value.data);
    if (value == nullptr) Wrong(entry, "true or false");
    return *value;
  }

  double Number(const std::string& key, const Range& range) {
    const toml::Entry& entry = Find(key, range.what);
    return Checked(entry, entry.value, range);
  }

  std::int64_t Integer(const std::string& key, std::int64_t low, std::int64_t high) {
    const std::string expected = fmt::format("an integer between {} and {}", low, high);
    const toml::Entry& entry = Find(key, expected);
    const auto* value = std::get_if<std::int64_t>(&entry.value.data);
    if (value == nullptr || *value < low || *value > high) Wrong(entry, expected);
    return *value;
  }

  std::vector<double> List(const std::string& key, const Range& range) {
    const toml::Entry& entry = Find(key, fmt::format("a list, each entry {}", range.what));
    const auto* list = std::get_if<toml::Array>(&entry.value.data);
    if (list == nullptr || list->empty() || list->size() > kMaxListLength) {
      Wrong(entry, fmt::format("a list of 1 to {} numbers", kMaxListLength));
    }
    std::vector<double> numbers;
    for (const toml::Value& value : *list) numbers.push_back(Checked(entry, value, range));
    return numbers;
  }

  PerProtocol Protocols(const std::string& key, const Range& range) {
    const std::vector<double> numbers = List(key, range);
    if (numbers.size() != kProtocols) {
      FailAt(key, "has {} entries; it needs three, for the protocols LL, LL128 and Simple",
             numbers.size());
    }
    return {numbers[kProtocolLl], numbers[kProtocolLl128], numbers[kProtocolSimple]};
  }

  Ramp ReadRamp(const std::string& key) {
    const std::vector<double> factors = List(key, kShare);
    Ramp ramp;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      // Twofold as written in decimals may be a rounding error more than twofold.
      constexpr double kTwofold = 2 * (1 + 1e-9);
      if (i > 0 && factors[i] > factors[i - 1] * kTwofold) {
        FailAt(key,
               "rises from {} to {} at entry {}, more than twofold: a message of twice the size "
               "would take less time",
               factors[i - 1], factors[i], i + 1);
      }
      ramp.log2_factors.push_back(std::log2(factors[i]));
    }
    return ramp;
  }

  Curve ReadCurve(const std::string& key, const Range& range, const std::string& points_key) {
    Curve curve{List(points_key, kSeveral), List(key, range)};
    if (std::adjacent_find(curve.at.begin(), curve.at.end(), std::greater_equal<>()) !=
        curve.at.end()) {
      FailAt(points_key, "must ascend");
    }
    if (curve.at.size() != curve.values.size()) {
      FailAt(key, "has {} entries; it needs as many as {}, {}", curve.values.size(), points_key,
             curve.at.size());
    }
    return curve;
  }

  // Called last: a key that was never asked for does not belong in a cluster.
  void RefuseUnknownKeys() const {
    const std::vector<std::string> known(known_.begin(), known_.end());
    for (const auto& [path, entry] : entries_) {
      if (!known_.contains(path)) {
        Fail(ErrorCode::kBadCluster,
             "{}:{}: unknown key {}{}; the keys are explained in "
             "configs/clusters/h100.toml",
             file_, entry.line, path, DidYouMean(path, known));
      }
    }
  }

  template <typename... Args>
  [[noreturn]] void FailAt(const std::string& key, fmt::format_string<Args...> format,
                           Args&&... args) const {
    Fail(ErrorCode::kBadCluster, "{}:{}: {} {}", file_, entries_.at(key).line, key,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const toml::Entry& Find(const std::string& key, std::string_view expected) {
    known_.insert(key);
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
      Fail(ErrorCode::kBadCluster, "{}: the key {} is missing ({}); add it to section [{}]{}",
           file_, key, expected, key.substr(0, key.rfind('.')), NearbyKey(key));
    }
    return found->second;
  }

  // A key of the same section that looks like a misspelling of the missing one.
  std::string NearbyKey(const std::string& key) const {
    const std::string section = key.substr(0, key.rfind('.') + 1);
    std::vector<std::string> written;
    for (auto it = entries_.lower_bound(section);
         it != entries_.end() && it->first.starts_with(section); ++it) {
      if (!known_.contains(it->first)) written.push_back(it->first);
    }
    const std::optional<std::string> nearest = NearestName(key, written);
    if (!nearest) return "";
    return fmt::format("; line {} has {}, is that what was meant?", entries_.at(*nearest).line,
                       *nearest);
  }

  [[noreturn]] void Wrong(const toml::Entry& entry, std::string_view expected) const {
    Fail(ErrorCode::kBadCluster, "{}:{}: {} is {}; it must be {}", file_, entry.line, entry.path,
         toml::Describe(entry.value), expected);
  }

  double Checked(const toml::Entry& entry, const toml::Value& value, const Range& range) const {
    double number = std::numeric_limits<double>::quiet_NaN();
    if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
      number = static_cast<double>(*integer);
    } else if (const auto* floating = std::get_if<double>(&value.data)) {
      number = *floating;
    }
    // Written so that a value that is no number fails as well.
    if (!(number >= range.low && number <= range.high)) {
      Fail(ErrorCode::kBadCluster, "{}:{}: {} has {} where {} between {} and {} is needed", file_,
           entry.line, entry.path, toml::Describe(value), range.what, range.low, range.high);
    }
    return number;
  }

  std::string file_;
  std::map<std::string, toml::Entry> entries_;
  std::set<std::string> known_;
};

SimpleLinks::Link ReadLink(ClusterFile& file, const std::string& section) {
  return {.latency_us = file.Number(section + ".latency_us", kLatency),
          .bandwidth_gb_per_s = file.Number(section + ".bandwidth_gb_per_s", kBandwidth)};
}

NodeLinks ReadNodeLinks(ClusterFile& file, const std::string& section) {
  const std::string ranks = section + ".ranks";
  return {.latency_us = file.ReadCurve(section + ".latency_us", kLatency, ranks),
          .bandwidth_gb_per_s = file.ReadCurve(section + ".bandwidth_gb_per_s", kBandwidth, ranks)};
}

MeasuredLinks::Kinds ReadKinds(ClusterFile& file, const std::string& section) {
  const auto links = [&](const char* kind) { return ReadNodeLinks(file, section + "." + kind); };
  return {.all_gather = links("all_gather"),
          .reduce_scatter = links("reduce_scatter"),
          .all_reduce = links("all_reduce"),
          .all_to_all = links("all_to_all"),
          .broadcast = links("broadcast")};
}

MeasuredLinks ReadMeasuredLinks(ClusterFile& file) {
  MeasuredLinks links{.node = ReadKinds(file, "measured.node"), .network = std::nullopt};
  if (file.Has("measured.network")) links.network = ReadKinds(file, "measured.network");
  return links;
}

DeviceSpeed ReadDevice(ClusterFile& file, const std::string& name) {
  return {.name = name,
          .half_tflops = file.Number("device.half_tflops", kRate),
          .float_tflops = file.Number("device.float_tflops", kRate),
          .memory_gb_per_s = file.Number("device.memory_gb_per_s", kBandwidth),
          .kernel_us = file.Number("device.kernel_us", kLatency),
          .launch_us = file.Number("device.launch_us", kLatency),
          .host_read_us = file.Number("device.host_read_us", kLatency),
          .host_link_gb_per_s = file.Number("device.host_link_gb_per_s", kBandwidth)};
}

Ring ReadRing(ClusterFile& file, const std::string& section) {
  const auto key = [&section](const char* name) { return section + "." + name; };
  return {
      .base_latency_us = file.Protocols(key("base_latency_us"), kLatency),
      .gpu_hop_latency_us = file.Protocols(key("gpu_hop_latency_us"), kLatency),
      .node_hop_latency_us = file.Protocols(key("node_hop_latency_us"), kLatency),
      .lone_rank_hop_latency_us = file.Protocols(key("lone_rank_hop_latency_us"), kLatency),
      .node_latency_us = file.Number(key("node_latency_us"), kLatency),
      .node_latency_exponent = file.Number(key("node_latency_exponent"), kExponent),
      .large_message_latency_factor = file.Number(key("large_message_latency_factor"), kFactor),
      .large_message_bytes_per_rank = file.Number(key("large_message_bytes_per_rank"), kBytes),
      .rank_bandwidth_gb_per_s = file.Number(key("rank_bandwidth_gb_per_s"), kBandwidth),
      .node_bandwidth_gb_per_s = file.Number(key("node_bandwidth_gb_per_s"), kBandwidth),
      .protocol_share = file.Protocols(key("protocol_share"), kShare),
      .protocol_limit_gb_per_s = file.Protocols(key("protocol_limit_gb_per_s"), kBandwidth),
      .two_node_protocol_limit_gb_per_s =
          file.Protocols(key("two_node_protocol_limit_gb_per_s"), kBandwidth),
      .bandwidth_step_gb_per_s = file.Number(key("bandwidth_step_gb_per_s"), kBandwidthStep),
      .ramp = file.ReadRamp(key("ramp")),
      .ramp_full_nodes_only = file.Bool(key("ramp_full_nodes_only")),
      .ramp_deepening = file.Number(key("ramp_deepening"), kExponent),
  };
}

Tree ReadTree(ClusterFile& file, const std::string& section) {
  const auto key = [&section](const char* name) { return section + "." + name; };
  const auto bandwidth = [&](const char* name) { return file.Number(key(name), kBandwidth); };
  return {
      .base_latency_us = file.Protocols(key("base_latency_us"), kLatency),
      .gpu_hop_latency_us = file.Protocols(key("gpu_hop_latency_us"), kLatency),
      .node_hop_latency_us = file.Protocols(key("node_hop_latency_us"), kLatency),
      .rank_bandwidth_gb_per_s = bandwidth("rank_bandwidth_gb_per_s"),
      .network_efficiency = file.Number(key("network_efficiency"), kShare),
      .tree_efficiency = file.Number(key("tree_efficiency"), kShare),
      .channels_per_rank = file.Number(key("channels_per_rank"), kCount),
      .max_channels = file.Number(key("max_channels"), kCount),
      .ll128_channel_gb_per_s = bandwidth("ll128_channel_gb_per_s"),
      .two_node_ll128_channel_gb_per_s = bandwidth("two_node_ll128_channel_gb_per_s"),
      .simple_channel_gb_per_s = bandwidth("simple_channel_gb_per_s"),
      .two_node_simple_channel_gb_per_s = bandwidth("two_node_simple_channel_gb_per_s"),
      .ll_limit_gb_per_s = bandwidth("ll_limit_gb_per_s"),
      .two_node_ll_limit_gb_per_s = bandwidth("two_node_ll_limit_gb_per_s"),
      .protocol_share = file.Protocols(key("protocol_share"), kShare),
      .bandwidth_step_gb_per_s = file.Number(key("bandwidth_step_gb_per_s"), kBandwidthStep),
      .ramps = {file.ReadRamp(key("ll_ramp")), file.ReadRamp(key("ll128_ramp")),
                file.ReadRamp(key("simple_ramp"))},
  };
}

NvlsTree ReadNvlsTree(ClusterFile& file, const std::string& section) {
  const auto key = [&section](const char* name) { return section + "." + name; };
  return {
      .base_latency_us = file.Number(key("base_latency_us"), kLatency),
      .level_latency_us = file.Number(key("level_latency_us"), kLatency),
      .bandwidth_gb_per_s = file.ReadCurve(key("bandwidth_gb_per_s"), kBandwidth, key("ranks")),
      .two_node_bandwidth_gb_per_s =
          file.ReadCurve(key("two_node_bandwidth_gb_per_s"), kBandwidth, key("ranks")),
      .ramp = file.ReadRamp(key("ramp")),
  };
}

AllToAllNetwork ReadAllToAllNetwork(ClusterFile& file, const std::string& section) {
  const auto key = [&section](const char* name) { return section + "." + name; };
  return {
      .latency_us = file.ReadCurve(key("latency_us"), kLatency, key("nodes")),
      .rank_bandwidth_gb_per_s = file.Number(key("rank_bandwidth_gb_per_s"), kBandwidth),
      .node_loss = file.Number(key("node_loss"), kLoss),
      .ramp = file.ReadRamp(key("ramp")),
  };
}

NcclLinks ReadNcclLinks(ClusterFile& file) {
  NcclLinks links{
      .all_gather_node = ReadNodeLinks(file, "all_gather.node"),
      .all_gather_ring = ReadRing(file, "all_gather.ring"),
      .all_reduce_node = ReadNodeLinks(file, "all_reduce.node"),
      .all_reduce_ring = ReadRing(file, "all_reduce.ring"),
      .all_reduce_tree = std::nullopt,
      .all_reduce_nvls_tree = std::nullopt,
      .all_to_all_node = ReadNodeLinks(file, "all_to_all.node"),
      .all_to_all_network = ReadAllToAllNetwork(file, "all_to_all.network"),
  };
  if (file.Has("all_reduce.tree")) links.all_reduce_tree = ReadTree(file, "all_reduce.tree");
  if (file.Has("all_reduce.nvls_tree")) {
    links.all_reduce_nvls_tree = ReadNvlsTree(file, "all_reduce.nvls_tree");
  }
  return links;
}

Gpu ReadGpu(ClusterFile& file) {
  return {.memory_gb = file.Number("gpu.memory_gb", kMemory),
          .multiprocessors = file.Integer("gpu.multiprocessors", 1, kMaxMultiprocessors)};
}

// A collective leaves at least one multiprocessor to compute, which would otherwise never end.
Contention ReadContention(ClusterFile& file, std::int64_t multiprocessors) {
  const auto taken = [&](const char* kind) {
    return file.Integer(fmt::format("contention.{}", kind), 0, multiprocessors - 1);
  };
  return {.all_gather = taken("all_gather"),
          .reduce_scatter = taken("reduce_scatter"),
          .all_reduce = taken("all_reduce"),
          .all_to_all = taken("all_to_all"),
          .broadcast = taken("broadcast")};
}

// Index of the last point at or below x, so that x is between it and the next one; -1 before the
// first point.
std::ptrdiff_t PointBefore(const std::vector<double>& at, double x) {
  return std::upper_bound(at.begin(), at.end(), x) - at.begin() - 1;
}

}  // namespace

double Ramp::At(double bytes, double exponent) const {
  const double last = static_cast<double>(log2_factors.size() - 1);
  const double units = between == Between::kPowerLaw ? bytes / 64 : std::floor(bytes / 64);
  // The logarithm of no bytes at all is minus infinity, which the clamp turns into the first entry.
  const double position = std::clamp(std::log2(units), 0.0, last);
  const auto entry = static_cast<std::size_t>(position);
  double here = exponent * log2_factors[0];
  const auto next = [&](std::size_t i) {
    return std::min(exponent * log2_factors[i], here + 1);  // + 1: twice
  };
  for (std::size_t i = 1; i <= entry; ++i) here = next(i);
  const double fraction = position - static_cast<double>(entry);
  if (fraction == 0 || between == Between::kStep) return std::exp2(here);
  const double there = next(entry + 1);
  if (between == Between::kStraight) {
    return std::lerp(std::exp2(here), std::exp2(there), fraction);
  }
  return std::exp2(here + fraction * (there - here));
}

double Curve::Linear(double x) const {
  const std::ptrdiff_t i = PointBefore(at, x);
  if (i < 0) return values.front();
  const auto left = static_cast<std::size_t>(i);
  if (left + 1 == at.size()) return values.back();
  return std::lerp(values[left], values[left + 1], (x - at[left]) / (at[left + 1] - at[left]));
}

double Curve::Logarithmic(double x) const {
  const std::ptrdiff_t i = PointBefore(at, x);
  if (i < 0) return values.front();
  const auto left = static_cast<std::size_t>(i);
  if (left + 1 == at.size()) return values.back() * x / at.back();
  return std::lerp(values[left], values[left + 1],
                   std::log2(x / at[left]) / std::log2(at[left + 1] / at[left]));
}

double Cluster::ComputeShareTaken(Collective kind) const {
  if (gpu.multiprocessors <= 0) return 0;
  const auto share = [this](std::int64_t taken) {
    return static_cast<double>(taken) / static_cast<double>(gpu.multiprocessors);
  };
  switch (kind) {
    case Collective::kAllGather:
      return share(contention.all_gather);
    case Collective::kReduceScatter:
      return share(contention.reduce_scatter);
    case Collective::kAllReduce:
      return share(contention.all_reduce);
    case Collective::kAllToAll:
      return share(contention.all_to_all);
    case Collective::kBroadcast:
      return share(contention.broadcast);
    case Collective::kNone:
    case Collective::kWait:
      break;
  }
  return 0;
}

Cluster ParseCluster(std::string_view text, std::string_view file_name) {
  ClusterFile file(text, file_name);
  const bool simple = file.Has("simple"), measured = file.Has("measured");
  const bool closed_forms =
      file.Has("all_gather") || file.Has("all_reduce") || file.Has("all_to_all");
  if (simple + measured + closed_forms > 1) {
    Fail(ErrorCode::kBadCluster,
         "{}: describes its links in several ways ([simple], [measured], or sections for single "
         "collectives); keep one of them",
         file_name);
  }
  Cluster cluster;
  cluster.name = file.Text("cluster.name");
  cluster.generation = file.Text("cluster.generation");
  cluster.gpus_per_node = file.Integer("cluster.gpus_per_node", 1, 4096);
  if (simple) {
    cluster.links = SimpleLinks{.node = ReadLink(file, "simple.node"),
                                .network = ReadLink(file, "simple.network")};
  } else if (measured) {
    cluster.links = ReadMeasuredLinks(file);
  } else {
    cluster.links = ReadNcclLinks(file);
  }
  if (file.Has("device")) cluster.device = ReadDevice(file, cluster.generation);
  // Multiprocessors that are taken mean nothing without the number of all of them.
  const bool contention = file.Has("contention");
  if (contention || file.Has("gpu")) cluster.gpu = ReadGpu(file);
  if (contention) cluster.contention = ReadContention(file, cluster.gpu.multiprocessors);
  file.RefuseUnknownKeys();
  return cluster;
}

Cluster ReadCluster(const std::filesystem::path& path) {
  std::string text;
  try {
    text = ReadWholeFile(path);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kBadCluster, "cannot read the cluster file {} (--comm.cluster): {}",
         path.string(), problem.what());
  }
  return ParseCluster(text, path.string());
}

namespace {

std::string LinkToml(const std::string& section, const SimpleLinks::Link& link) {
  return fmt::format("\n[{}]\nlatency_us = {}\nbandwidth_gb_per_s = {}\n", section, link.latency_us,
                     link.bandwidth_gb_per_s);
}

std::string LinksToml(const std::string& section, const NodeLinks& links) {
  return fmt::format("\n[{}]\nranks = [{}]\nlatency_us = [{}]\nbandwidth_gb_per_s = [{}]\n",
                     section, fmt::join(links.latency_us.at, ", "),
                     fmt::join(links.latency_us.values, ", "),
                     fmt::join(links.bandwidth_gb_per_s.values, ", "));
}

std::string KindsToml(const std::string& section, const MeasuredLinks::Kinds& kinds) {
  return LinksToml(section + ".all_gather", kinds.all_gather) +
         LinksToml(section + ".reduce_scatter", kinds.reduce_scatter) +
         LinksToml(section + ".all_reduce", kinds.all_reduce) +
         LinksToml(section + ".all_to_all", kinds.all_to_all) +
         LinksToml(section + ".broadcast", kinds.broadcast);
}

}  // namespace

std::string ClusterToml(const Cluster& cluster) {
  std::string text =
      fmt::format("[cluster]\nname = {}\ngeneration = {}\ngpus_per_node = {}\n",
                  Quoted(cluster.name), Quoted(cluster.generation), cluster.gpus_per_node);
  if (const std::optional<DeviceSpeed>& device = cluster.device) {
    text += fmt::format(
        "\n[device]\nhalf_tflops = {}\nfloat_tflops = {}\nmemory_gb_per_s = {}\nkernel_us = {}\n"
        "launch_us = {}\nhost_read_us = {}\nhost_link_gb_per_s = {}\n",
        device->half_tflops, device->float_tflops, device->memory_gb_per_s, device->kernel_us,
        device->launch_us, device->host_read_us, device->host_link_gb_per_s);
  }
  if (cluster.gpu.multiprocessors > 0) {
    text += fmt::format("\n[gpu]\nmemory_gb = {}\nmultiprocessors = {}\n", cluster.gpu.memory_gb,
                        cluster.gpu.multiprocessors);
    const Contention& taken = cluster.contention;
    text += fmt::format(
        "\n[contention]\nall_gather = {}\nreduce_scatter = {}\nall_reduce = {}\nall_to_all = {}\n"
        "broadcast = {}\n",
        taken.all_gather, taken.reduce_scatter, taken.all_reduce, taken.all_to_all,
        taken.broadcast);
  }
  if (const auto* simple = std::get_if<SimpleLinks>(&cluster.links)) {
    return text + LinkToml("simple.node", simple->node) +
           LinkToml("simple.network", simple->network);
  }
  const auto& measured = std::get<MeasuredLinks>(cluster.links);
  text += KindsToml("measured.node", measured.node);
  if (measured.network) text += KindsToml("measured.network", *measured.network);
  return text;
}

Cluster WithPublishedFormulas(Cluster cluster) {
  auto* links = std::get_if<NcclLinks>(&cluster.links);
  if (links == nullptr) return cluster;
  links->published = true;
  links->all_gather_ring.ramp.between = Ramp::Between::kStraight;
  links->all_reduce_ring.ramp.between = Ramp::Between::kStraight;
  if (links->all_reduce_nvls_tree) {
    links->all_reduce_nvls_tree->ramp.between = Ramp::Between::kStraight;
  }
  if (links->all_reduce_tree) {
    for (Ramp& ramp : links->all_reduce_tree->ramps) {
      constexpr std::size_t kEntries = 23;  // larger messages have all of the bandwidth
      ramp.log2_factors.resize(kEntries, ramp.log2_factors.back());
      ramp.log2_factors.push_back(0);
      ramp.between = Ramp::Between::kStep;
    }
  }
  links->all_to_all_network.ramp.between = Ramp::Between::kStep;
  return cluster;
}

}  // namespace gt
