#include "gt/dist/measure_links.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "gt/base/error.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;
using c10d::ProcessGroup;

constexpr int64_t kSmallBytes = 4096, kLargeBytes = int64_t{4} << 20;
constexpr int kRounds = 3, kSmallRuns = 8, kLargeRuns = 2, kStretches = 10;
constexpr int64_t kProducts = 40;  // some milliseconds of compute
// The unit of Contention: a part of a rank's compute in thousandths.
constexpr int64_t kWholeDevice = 1000;

// The operands of one collective that moves `bytes` as LinkModel counts them.
class Message {
 public:
  Message(int64_t ranks, int64_t bytes) {
    const int64_t elements = bytes / static_cast<int64_t>(sizeof(float)) / ranks * ranks;
    whole_ = at::zeros({elements});
    received_ = at::zeros({elements});
    part_ = at::zeros({elements / ranks});
  }

  c10::intrusive_ptr<c10d::Work> Start(ProcessGroup& group, Collective kind) {
    switch (kind) {
      case Collective::kAllGather:
        return group._allgather_base(whole_, part_);
      case Collective::kReduceScatter:
        return group._reduce_scatter_base(part_, whole_);
      case Collective::kAllReduce:
        list_ = {whole_};
        return group.allreduce(list_);
      case Collective::kAllToAll:
        return group.alltoall_base(received_, whole_, equal_, equal_);
      default:
        list_ = {whole_};
        return group.broadcast(list_);
    }
  }

 private:
  at::Tensor whole_, received_, part_;
  std::vector<at::Tensor> list_;
  std::vector<int64_t> equal_;
};

// Compute to run beside a collective.
class Products {
 public:
  void Run(int64_t count) {
    for (int64_t i = 0; i < count; ++i) at::mm_out(out_, a_, b_);
  }

 private:
  at::Tensor a_ = at::ones({64, 256}), b_ = at::ones({256, 256}), out_ = at::empty({64, 256});
};

// Groups of equal size that run at the same time, as groups along an axis of a mesh do.
class GroupMeasurement {
 public:
  // `ranks`: those of this rank's group; empty if it is in none.
  // `name`: unique within the job, since a group is found under its name in the store of the ranks.
  GroupMeasurement(World& world, const std::string& name, std::vector<int64_t> ranks)
      : world_(world) {
    if (ranks.empty()) return;
    Group group;
    group.name = name;
    group.description = "measures links";
    group.index = world.rank() - ranks.front();
    group.ranks = std::move(ranks);
    group_ = c10d::resolve_process_group(world.MakeGroup(std::move(group)).name);
  }
  ~GroupMeasurement() {
    if (group_) world_.CloseLastGroup();
  }
  GroupMeasurement(const GroupMeasurement&) = delete;
  GroupMeasurement& operator=(const GroupMeasurement&) = delete;

  struct Link {
    double latency_us = 0, bandwidth_gb_per_s = 0;
    double taken = 0;  // part of a rank's compute that a large message takes while it is under way
  };
  Link Measure(Collective kind) {
    const double small = Collectives(kind, kSmallBytes, kSmallRuns);
    const double large = Collectives(kind, kLargeBytes, kLargeRuns);
    // Where noise makes the large one look fast: no link is faster than memory.
    constexpr double kFastest = 200;
    const auto bytes = static_cast<double>(kLargeBytes - kSmallBytes);
    const double transfer = std::max(large - small, bytes / (1e3 * kFastest));
    return {small + WaitingForOthers(), bytes / (1e3 * transfer), ShareTaken(kind, large)};
  }

 private:
  double Collectives(Collective kind, int64_t bytes, int runs) {
    Message message(Ranks(), bytes);
    return Microseconds([&] {
             for (int i = 0; i < runs; ++i) message.Start(*group_, kind)->wait();
           }) /
           runs;
  }

  // By how much later the last rank arrives at a collective than the others, after a stretch of compute as
  // long as that of a layer: ranks that share cores do not arrive at the same time.
  double WaitingForOthers() {
    if (waiting_us_ >= 0) return waiting_us_;
    Products products;
    Message message(Ranks(), kSmallBytes);
    const double with = Microseconds([&] {
      for (int i = 0; i < kStretches; ++i) {
        products.Run(kProducts);
        message.Start(*group_, Collective::kAllGather)->wait();
      }
    });
    const double collective = Collectives(Collective::kAllGather, kSmallBytes, kSmallRuns);
    waiting_us_ = std::max(0.0, with / kStretches - ComputeMicroseconds() - collective);
    return waiting_us_;
  }

  // From compute that takes as long as the collective and runs beside it.
  double ShareTaken(Collective kind, double collective_us) {
    Products products;
    const double one = ComputeMicroseconds() / kProducts;
    const int64_t count = std::max<int64_t>(1, std::llround(collective_us / one));
    Message message(Ranks(), kLargeBytes);
    const double both = Microseconds([&] {
      const auto work = message.Start(*group_, kind);
      products.Run(count);
      work->wait();
    });
    return std::clamp((both - one * static_cast<double>(count)) / collective_us, 0.0, 0.9);
  }

  double ComputeMicroseconds() {
    if (compute_us_ == 0) {
      Products products;
      compute_us_ = Microseconds([&] { products.Run(kStretches * kProducts); }) / kStretches;
    }
    return compute_us_;
  }

  int64_t Ranks() const { return group_ ? group_->getSize() : 1; }

  // Of the slowest rank, in the middle one of three rounds: other work on the machine comes and goes.
  double Microseconds(const std::function<void()>& body) {
    std::array<double, kRounds> rounds = {};
    if (group_) body();
    for (double& round : rounds) {
      world_.Barrier();
      const Clock::time_point start = Clock::now();
      if (group_) body();
      round = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      round = world_.Max({round}).front();
    }
    std::sort(rounds.begin(), rounds.end());
    return rounds[kRounds / 2];
  }

  World& world_;
  c10::intrusive_ptr<ProcessGroup> group_;
  double compute_us_ = 0;   // of kProducts; 0: not measured yet
  double waiting_us_ = -1;  // negative: not measured yet
};

// The group of this rank among groups of `size` consecutive ranks within stretches of `within`; empty if
// it is in none.
std::vector<int64_t> ConsecutiveRanks(const World& world, int64_t size, int64_t within) {
  const int64_t base = world.rank() / within * within;
  const int64_t first = base + (world.rank() - base) / size * size;
  if (first + size > std::min(base + within, world.size())) return {};
  std::vector<int64_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

void Append(NodeLinks& links, int64_t ranks, const GroupMeasurement::Link& link) {
  for (Curve* curve : {&links.latency_us, &links.bandwidth_gb_per_s}) {
    curve->at.push_back(static_cast<double>(ranks));
  }
  links.latency_us.values.push_back(link.latency_us);
  links.bandwidth_gb_per_s.values.push_back(link.bandwidth_gb_per_s);
}

// Returns what collectives take from compute.
Contention MeasureSize(World& world, int64_t size, int64_t within, MeasuredLinks::Kinds& kinds) {
  GroupMeasurement measurement(world, fmt::format("measure.{}.{}", size, within),
                               ConsecutiveRanks(world, size, within));
  Contention taken;
  const std::tuple<Collective, NodeLinks*, int64_t*> all[] = {
      {Collective::kAllGather, &kinds.all_gather, &taken.all_gather},
      {Collective::kReduceScatter, &kinds.reduce_scatter, &taken.reduce_scatter},
      {Collective::kAllReduce, &kinds.all_reduce, &taken.all_reduce},
      {Collective::kAllToAll, &kinds.all_to_all, &taken.all_to_all},
      {Collective::kBroadcast, &kinds.broadcast, &taken.broadcast}};
  for (const auto& [kind, links, share] : all) {
    const GroupMeasurement::Link link = measurement.Measure(kind);
    Append(*links, size, link);
    *share = std::llround(link.taken * kWholeDevice);
  }
  return taken;
}

}  // namespace

void MeasureLinks(World& world, Cluster& cluster) {
  GT_CHECK(world.size() > 1 && !world.pretended(), "links between ranks that are there");
  const c10::InferenceMode no_gradients;
  MeasuredLinks links;
  const int64_t on_machine = std::min(world.ranks_on_machine(), world.size());
  cluster.gpus_per_node = on_machine;
  cluster.gpu = {.memory_gb = 1, .multiprocessors = kWholeDevice};
  if (on_machine > 1) cluster.contention = MeasureSize(world, 2, on_machine, links.node);
  if (on_machine > 2) cluster.contention = MeasureSize(world, on_machine, on_machine, links.node);
  if (on_machine < world.size()) {
    links.network.emplace();
    cluster.contention = MeasureSize(world, world.size(), world.size(), *links.network);
    if (on_machine == 1) links.node = *links.network;  // no group is on one machine
  }
  cluster.links = std::move(links);
}

}  // namespace gt
