#include "gt/config/files.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"

namespace gt::files_test {
namespace {

TEST(Files, ClustersAreNamesOrFiles) {
  EXPECT_TRUE(std::filesystem::exists(ClusterPath("h100")));
  EXPECT_EQ(ClusterPath("some/where.toml"), "some/where.toml");
  try {
    ClusterPath("h10");
    FAIL() << "found a cluster that nobody has described";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadCluster);
    EXPECT_NE(error.message().find("'h10'"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("--comm.cluster"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("did you mean h100?"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("b200, ethernet, h100"), std::string::npos) << error.message();
  }
}

TEST(Files, CostsAreReadWhenAskedFor) {
  Config config;
  config.dump_folder = "out";
  EXPECT_EQ(CostsPath(config), std::nullopt);
  config.compile.costs = CostSource::kMeasured;
  EXPECT_EQ(CostsPath(config), "out/costs.json");
  config.compile.costs_file = "mine.json";
  EXPECT_EQ(CostsPath(config), "mine.json");
  config.compile.costs = CostSource::kEstimated;
  EXPECT_EQ(CostsPath(config), "mine.json");
}

}  // namespace
}  // namespace gt::files_test
