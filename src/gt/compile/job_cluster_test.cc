// What predictions of a job count with, by the device that it trains on.
#include "gt/compile/job_cluster.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>

#include "gt/job/config.h"
#include "gt/sim/link_model.h"
#include "gt/testing/temp_folder.h"

namespace gt::job_cluster_test {
namespace {

namespace fs = std::filesystem;

class JobClusterTest : public ::testing::Test {
 protected:
  JobClusterTest() {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    if (const char* cache = std::getenv("XDG_CACHE_HOME")) cache_before_ = cache;
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  ~JobClusterTest() override {
    if (cache_before_.empty()) {
      unsetenv("XDG_CACHE_HOME");
    } else {
      setenv("XDG_CACHE_HOME", cache_before_.c_str(), 1);
    }
  }

  static Config Job(DeviceChoice device, int64_t ranks) {
    Config config;
    config.device = device;
    config.ranks = ranks;
    return config;
  }

  std::vector<fs::path> Kept() const {
    std::vector<fs::path> files;
    const fs::path machines = folder_ / "graphtrainer/machines";
    if (!fs::exists(machines)) return files;
    for (const auto& entry : fs::directory_iterator(machines)) files.push_back(entry.path());
    return files;
  }

  testing::TempFolder folder_;
  std::string cache_before_;
};

TEST_F(JobClusterTest, CpuRanksAreMeasuredOnceAndKept) {
  const JobCluster measured = ClusterOfPlan(Job(DeviceChoice::kCpu, 2));
  EXPECT_TRUE(measured.is_known);
  EXPECT_EQ(measured.cluster->generation, "cpu");
  ASSERT_TRUE(measured.cluster->device.has_value());
  EXPECT_GT(measured.cluster->device->float_tflops, 0);
  EXPECT_GT(measured.cluster->device->memory_gb_per_s, 0);
  EXPECT_TRUE(std::holds_alternative<MeasuredLinks>(measured.cluster->links));
  const LinkModel links(*measured.cluster);
  const GroupSpan both{.nodes = 1, .ranks_per_node = 2};
  const CollectiveTime small = links.Time(Collective::kAllReduce, 4096, both);
  EXPECT_GT(small.latency_us, 0);
  EXPECT_GT(links.Time(Collective::kAllReduce, 64 << 20, both).total_us(), small.total_us());

  ASSERT_EQ(Kept().size(), 1U);
  EXPECT_EQ(ClusterToml(*ClusterOfPlan(Job(DeviceChoice::kCpu, 2)).cluster),
            ClusterToml(*measured.cluster));
  // Other ranks share the cores differently.
  ClusterOfPlan(Job(DeviceChoice::kCpu, 1));
  EXPECT_EQ(Kept().size(), 2U);
}

TEST_F(JobClusterTest, ADamagedMeasurementIsMadeAgain) {
  ClusterOfPlan(Job(DeviceChoice::kCpu, 1));
  ASSERT_EQ(Kept().size(), 1U);
  std::ofstream(Kept().front()) << "[cluster";
  const JobCluster measured = ClusterOfPlan(Job(DeviceChoice::kCpu, 1));
  EXPECT_TRUE(measured.is_known);
  EXPECT_EQ(ClusterToml(ReadCluster(Kept().front())), ClusterToml(*measured.cluster));
}

TEST_F(JobClusterTest, GpusAreThoseOfTheConfiguredCluster) {
  const JobCluster cluster = ClusterOfPlan(Job(DeviceChoice::kCuda, 64));
  EXPECT_TRUE(cluster.is_known);
  EXPECT_EQ(cluster.cluster->generation, "hopper");
  EXPECT_TRUE(Kept().empty());
}

// More ranks than a machine can stand for have no estimate, unless a file describes their links.
TEST_F(JobClusterTest, ManyCpuRanksHaveNoEstimate) {
  Config many = Job(DeviceChoice::kCpu, kMostMeasured + 1);
  EXPECT_FALSE(ClusterOfPlan(many).is_known);
  many.comm.cluster = "slow";
  EXPECT_TRUE(ClusterOfPlan(many).is_known);
  EXPECT_TRUE(Kept().empty());
}

}  // namespace
}  // namespace gt::job_cluster_test
