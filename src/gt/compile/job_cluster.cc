#include "gt/compile/job_cluster.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/user_cache.h"
#include "gt/dist/measure_links.h"
#include "gt/exec/measure_device.h"
#include "gt/job/config.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/node_cost.h"
#include "gt/storage/checksum.h"
#include "gt/storage/file_writer.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

// Raise it when measurements mean something else.
constexpr int kMeasurementVersion = 1;
// A machine may be resized. One that had other work to do may soon have none.
constexpr auto kLifetime = std::chrono::hours(24 * 7), kLifetimeOfBusy = std::chrono::hours(1);

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

int64_t UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// Whether other programs use the cores: what they leave is measured, too.
bool IsBusy() {
  double load = 0;
  return getloadavg(&load, 1) == 1 && load > 0.5 * static_cast<double>(UsableCores());
}

// The ranks whose speed is measured: one that represents others has only its own.
int64_t MeasuredRanks(const World& world) { return world.pretended() ? 1 : world.size(); }

std::string Title(const World& world) {
  const int64_t ranks = MeasuredRanks(world);
  return fmt::format("{} of {}, {} rank{} with {} thread{}", UsableCores(), CpuName(), ranks,
                     ranks == 1 ? "" : "s", at::get_num_threads(),
                     at::get_num_threads() == 1 ? "" : "s");
}

// Where the measurement of ranks like these is kept; empty where there is no home.
fs::path CacheFile(const World& world) {
  const fs::path cache = UserCacheFolder();
  if (cache.empty()) return cache;
  const int64_t on_machine = world.pretended() ? 1 : world.ranks_on_machine();
  const std::string key = fmt::format(
      "{} {} on a machine, {}, libtorch {}, measurement {}", Title(world), on_machine,
      world.ranks_in_process() > 1 ? "threads" : "processes", TORCH_VERSION, kMeasurementVersion);
  return cache / "machines" / fmt::format("cpu_{}.toml", ChecksumText(Xxh64Of(key)));
}

std::optional<Cluster> ReadKept(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  if (error || fs::file_time_type::clock::now() - written > kLifetime) return std::nullopt;
  try {
    return ReadCluster(file);
  } catch (const Error& problem) {
    log::Debug("{}: measured again: {}", file.string(), problem.what());
    return std::nullopt;
  }
}

void Keep(const Cluster& cluster, const fs::path& file, bool busy) {
  try {
    CreateFolders(file.parent_path());
    WriteFile(file, ClusterToml(cluster));
    if (busy) {  // written so long ago that it is soon too old
      std::error_code ignored;
      fs::last_write_time(file, fs::file_time_type::clock::now() - (kLifetime - kLifetimeOfBusy),
                          ignored);
    }
  } catch (const Error& problem) {  // measured again next time
    log::Debug("the measurement of this machine is not kept: {}", problem.what());
  }
}

// The slowest rank's rates.
DeviceSpeed SlowestOf(World& world, DeviceSpeed speed) {
  if (MeasuredRanks(world) == 1) return speed;
  const std::vector<double> worst = world.Max(
      {1 / speed.float_tflops, 1 / speed.half_tflops, 1 / speed.memory_gb_per_s, speed.kernel_us});
  speed.float_tflops = 1 / worst[0];
  speed.half_tflops = 1 / worst[1];
  speed.memory_gb_per_s = speed.host_link_gb_per_s = 1 / worst[2];
  speed.kernel_us = worst[3];
  return speed;
}

Cluster MeasuredOrKept(World& world) {
  const fs::path file = CacheFile(world);
  const bool alone = MeasuredRanks(world) == 1;
  const auto read = [&file] {
    const std::optional<Cluster> kept = ReadKept(file);
    return kept ? ClusterToml(*kept) : std::string();
  };
  const std::string kept = alone ? read() : world.DecideForAll("what this machine can do", read);
  if (!kept.empty()) return ParseCluster(kept, "the measurement of rank 0");
  if (world.first() || alone) log::Info("measuring what this machine's CPUs and links do, once");
  const bool busy = IsBusy();  // the measurement is work, too
  Cluster cluster = MeasureCluster(world);
  if (!file.empty() && (world.first() || alone)) Keep(cluster, file, busy);
  return cluster;
}

}  // namespace

Cluster MeasureCluster(World& world) {
  Cluster cluster;
  cluster.name = Title(world);
  cluster.generation = "cpu";
  if (MeasuredRanks(world) > 1) world.Barrier();  // ranks that share cores compute at the same time
  cluster.device = SlowestOf(world, MeasureCpu());
  if (MeasuredRanks(world) > 1) {
    MeasureLinks(world, cluster);
  } else {  // never asked: a rank alone sends nothing
    const SimpleLinks::Link memory = {.latency_us = 0,
                                      .bandwidth_gb_per_s = cluster.device->memory_gb_per_s};
    cluster.links = SimpleLinks{.node = memory, .network = memory};
  }
  return cluster;
}

JobCluster ClusterOfPlan(const Config& config) {
  const auto configured = [&config] { return ReadCluster(ClusterPath(config.comm.cluster)); };
  const bool is_named = config.comm.cluster != CommSection().cluster;
  if (config.device == DeviceChoice::kCuda || is_named) {
    return {std::make_shared<Cluster>(configured())};
  }
  const int64_t ranks = std::max<int64_t>(1, config.ranks);
  if (ranks > kMostMeasured) {
    Cluster cluster = configured();
    cluster.device = SpeedOf("cpu");
    return {std::make_shared<Cluster>(std::move(cluster)), /*is_known=*/false};
  }
  Config measured;
  measured.device = DeviceChoice::kCpu;
  measured.ranks = ranks;
  JobCluster result;
  World::Run(measured, [&](World& world) {
    SetThreads(ranks > 1 && config.threads == 0 ? 1 : config.threads);
    Cluster cluster = MeasuredOrKept(world);
    if (world.first()) result.cluster = std::make_shared<Cluster>(std::move(cluster));
  });
  return result;
}

JobCluster ClusterOfJob(const Config& config, World& world, c10::Device device) {
  const bool is_named = config.comm.cluster != CommSection().cluster;
  const auto configured = [&config] { return ReadCluster(ClusterPath(config.comm.cluster)); };
  if (device.is_cuda() || FactsOf(world.backend()).sends_nothing) {
    // Ranks on GPUs that communicate through host memory do not use the cluster's links.
    const bool is_known = world.backend() != CommBackend::kGloo || world.size() == 1;
    return {std::make_shared<Cluster>(configured()), is_known};
  }
  Cluster measured = MeasuredOrKept(world);
  if (!world.pretended() && !is_named) return {std::make_shared<Cluster>(std::move(measured))};
  Cluster cluster = configured();  // emulated links, or those that a file describes
  cluster.device = measured.device;
  return {std::make_shared<Cluster>(std::move(cluster))};
}

}  // namespace gt
