// The files of configs/ for published sizes: a step fits the GPUs that the file says it is for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "gt/testing/shell.h"
#include "gt/testing/temp_folder.h"

namespace gt::published_configs_test {
namespace {

namespace fs = std::filesystem;

const fs::path kConfigs = GT_SOURCE_DIR "/configs";

// Of an H100; what fragmentation and libraries take is left out.
constexpr double kUsableGibibytes = 0.92 * 80;

// Everything but the debug models has been published.
std::vector<std::string> PublishedSizes() {
  std::vector<std::string> names;
  std::error_code error;  // the tests may have been carried to a machine without sources
  for (const auto& entry : fs::directory_iterator(kConfigs, error)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".toml" && name.find("debugmodel") == std::string::npos) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

class PublishedConfig : public ::testing::TestWithParam<std::string> {};

TEST_P(PublishedConfig, FitsTheGpusItIsFor) {
  const fs::path file = kConfigs / (GetParam() + ".toml");
  const std::string text = testing::ReadText(file);
  EXPECT_NE(text.find("[parallelism]"), std::string::npos);
  std::smatch gpus, peak;
  ASSERT_TRUE(std::regex_search(text, gpus, std::regex("is for ([0-9]+) H100s")))
      << "the file must say how many GPUs it is for";
  const testing::ShellOutcome outcome =
      testing::RunInShell(fmt::format("GT_HOME='{}' '{}' memory --config '{}' --device cuda "
                                      "--comm.backend fake --comm.cluster h100 "
                                      "--ranks {} 2>&1",
                                      GT_SOURCE_DIR, GT_BINARY, file.string(), gpus[1].str()));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  ASSERT_TRUE(std::regex_search(outcome.output, peak, std::regex("peak: ([0-9.]+) GiB on the GPU")))
      << outcome.output;
  EXPECT_LE(std::stod(peak[1].str()), kUsableGibibytes) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Files, PublishedConfig, ::testing::ValuesIn(PublishedSizes()),
                         [](const auto& file) {
                           std::string name = file.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '.' || c == '-'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace gt::published_configs_test
