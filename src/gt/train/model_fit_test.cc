#include "gt/train/model_fit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/trainer.h"

namespace gt::model_fit_test {
namespace {

using nlohmann::json;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;
using testing::WriteText;

class ModelFitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    config_.device = DeviceChoice::kCpu;
    config_.model.tokenizer_path = "bytes";
    config_.training.steps = 1;
    config_.training.local_batch_size = 1;
    config_.training.seq_len = 16;
    config_.threads = 1;
    config_.dump_folder = (folder_ / "run").string();
  }

  void ExpectRefused() {
    ExpectError(ErrorCode::kDoesNotFit,
                {"parameters", "this machine has room for", "--training.check_memory=false"},
                [&] { Train(config_); });
  }

  TempFolder folder_;
  Config config_;
};

// Building and capturing them takes minutes.
TEST_F(ModelFitTest, LayersWithoutEndAreRefusedBeforeTheyAreBuilt) {
  config_.model.flavor = "8B";
  config_.model.n_layers = 4096;
  ExpectRefused();
}

TEST_F(ModelFitTest, LayersOfAFolderCount) {
  for (const char* fixture : {"llama", "qwen3_moe", "deepseek_v3"}) {
    json config = json::parse(
        ReadText(std::string(GT_SOURCE_DIR "/tests/parity/") + fixture + "/config.json"));
    config["num_hidden_layers"] = 65'536;
    config["hidden_size"] = 2048;
    WriteText(folder_ / "config.json", config.dump());
    config_.model.hf_path = folder_.path().string();
    ExpectRefused();
  }
}

}  // namespace
}  // namespace gt::model_fit_test
