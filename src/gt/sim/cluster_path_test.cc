#include "gt/sim/cluster_path.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"

namespace gt::cluster_path_test {
namespace {

TEST(ClusterPath, ClustersAreNamesOrFiles) {
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

}  // namespace
}  // namespace gt::cluster_path_test
