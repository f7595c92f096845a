#include "gt/config/near_config_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gt/base/text.h"

namespace gt::near_config_files_test {
namespace {

// The names of the files in a hint, which is checked for its commands.
std::vector<std::string> NamesIn(const std::string& hint) {
  constexpr std::string_view kCommand = "gt train --config ";
  std::vector<std::string> names;
  for (size_t at = hint.find(kCommand); at != std::string::npos; at = hint.find(kCommand, at + 1)) {
    const size_t begin = at + kCommand.size();
    const std::string path = hint.substr(begin, hint.find('\n', begin) - begin);
    EXPECT_TRUE(path.ends_with(".toml")) << path;
    const std::string name = path.substr(path.rfind('/') + 1);
    names.push_back(name.substr(0, name.size() - std::string(".toml").size()));
  }
  return names;
}

std::string Near(const std::string& wanted) {
  return Join(NamesIn(NearConfigFiles(wanted, "gt train")), " ");
}

// Names that torchtitan gives to its configurations.
TEST(NearConfigFiles, FindTheModelInAName) {
  EXPECT_EQ(Near("llama3_8b"), "llama3_8B");
  EXPECT_EQ(Near("graph_trainer_llama3_8b"), "llama3_8B");
  EXPECT_EQ(Near("graph_trainer_deepseek_v3_debugmodel"), "deepseek_v3_debugmodel");
  EXPECT_EQ(Near("graph_trainer_deepseek_v3_16b_sdpa"), "deepseek_v3_16B");
  EXPECT_EQ(Near("graph_trainer_qwen3_debugmodel_moe"), "qwen3_debugmodel_moe");
  EXPECT_EQ(Near("qwen3_30b_a3b"), "qwen3_30B-A3B");
  EXPECT_EQ(Near("configs/llama3_8b.toml"), "llama3_8B");
  EXPECT_TRUE(NearConfigFiles("llama3_8b", "gt memory")
                  .starts_with("; gt reads TOML files: gt memory --config "));
}

TEST(NearConfigFiles, MayBeMistyped) {
  EXPECT_EQ(Near("configs/lama3_8B.toml"), "llama3_8B");
  EXPECT_EQ(Near("deepseekv3_16b"), "deepseek_v3_16B");
}

TEST(NearConfigFiles, AreAllThatShareTheMostWords) {
  EXPECT_EQ(Near("llama3_7b"),
            "llama3_1B llama3_3B llama3_405B llama3_70B llama3_8B llama3_debugmodel");
  EXPECT_EQ(Near("debugmodel"),
            "deepseek_v3_debugmodel llama3_debugmodel qwen3_debugmodel "
            "qwen3_debugmodel_moe");
}

TEST(NearConfigFiles, AreAllWhereANameSaysNothing) {
  EXPECT_GT(NamesIn(NearConfigFiles("flux_schnell", "gt train")).size(), 10u);
  // A path is a mistaken path.
  EXPECT_EQ(NearConfigFiles("jobs/mine.toml", "gt train"), "");
  EXPECT_EQ(NearConfigFiles("mine.toml", "gt train"), "");
  EXPECT_EQ(NearConfigFiles("/does/not/exist", "gt train"), "");
}

}  // namespace
}  // namespace gt::near_config_files_test
