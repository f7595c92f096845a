#include "gt/train/saved_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gt/base/error.h"
#include "gt/storage/checksum.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/metrics.h"
#include "gt/train/trainer.h"

namespace gt::saved_state_test {
namespace {

using nlohmann::json;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;
using testing::WriteText;

json Example() {
  return {{"step", 8},
          {"tokens", 512},
          {"batches", 8},
          {"identity", {{"architecture", {{"hidden_size", 64}}}, {"dtype", "float32"}}},
          {"config", ""},
          {"best", {{"step", 4}, {"validation_loss", 2.5}}},
          {"data", {{"rows", 2}, {"loaders", {{{"job", json::object()}}}}}}};
}

TEST(SavedState, IsReadKeyByKey) {
  const SavedState state = ReadSavedState(Example(), 8, "step-8");
  EXPECT_EQ(state.step, 8);
  EXPECT_EQ(state.tokens, 512);
  EXPECT_EQ(state.batches, 8);
  EXPECT_EQ(state.data.rows, 2);
  EXPECT_EQ(state.data.loaders.size(), 1u);
  EXPECT_EQ(state.best->validation_loss, 2.5);
}

TEST(SavedState, OfTheFirstVersionIsRead) {
  json old = Example();
  old["data"] = {{"job", json::object()}, {"place", json::object()}};
  for (const char* key : {"batches", "config", "best"}) old.erase(key);
  const SavedState state = ReadSavedState(old, 8, "step-8");
  EXPECT_EQ(state.batches, 8);
  EXPECT_EQ(state.data.rows, 0);
  EXPECT_FALSE(state.config);
}

TEST(SavedState, WrongKeysAreDamage) {
  const json wrong = {nullptr, true, -1, 1.5, "3", 1e300, UINT64_MAX, json::array(), {{"a", 1}}};
  for (const char* pointer :
       {"/step", "/tokens", "/batches", "/identity", "/identity/architecture", "/identity/dtype",
        "/config", "/best", "/best/step", "/best/validation_loss", "/data", "/data/rows",
        "/data/loaders", "/data/loaders/0"}) {
    for (const json& value : wrong) {
      json state = Example();
      json& place = state[json::json_pointer(pointer)];
      const bool has_same_type =
          place.type() == value.type() || (place.is_number_float() && value.is_number());
      if (has_same_type) continue;
      place = value;
      const std::string_view name(pointer);
      if (name == "/data" && value.is_object()) continue;
      SCOPED_TRACE(std::string(name) + " " + value.dump());
      ExpectError(ErrorCode::kCheckpointDamaged, {"step-8/state.json"},
                  [&] { ReadSavedState(state, 8, "step-8"); });
    }
  }
  for (const char* key : {"step", "tokens", "batches", "identity", "config", "data"}) {
    json state = Example();
    state.erase(key);
    ExpectError(ErrorCode::kCheckpointDamaged, {key, "missing"},
                [&] { ReadSavedState(state, 8, "step-8"); });
  }
  ExpectError(ErrorCode::kCheckpointDamaged, {"'step' is 8", "of step 7"},
              [&] { ReadSavedState(Example(), 7, "step-7"); });
  ExpectError(ErrorCode::kCheckpointDamaged, {"an object is expected"},
              [&] { ReadSavedState(json::array(), 8, "step-8"); });
}

class ForgedStateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    config_.device = DeviceChoice::kCpu;
    config_.model.flavor = "tiny";
    config_.model.tokenizer_path = "bytes";
    config_.compile.mode = CompileMode::kEager;
    config_.training.steps = 4;
    config_.training.local_batch_size = 1;
    config_.training.seq_len = 16;
    config_.threads = 1;
    config_.checkpoint.enable = true;
    config_.checkpoint.interval = 2;
    config_.checkpoint.last_save_in_hf = false;
    config_.dump_folder = (folder_ / "run").string();
  }

  // With checksums that are right, as somebody writes them who means it.
  void Forge(int64_t step, const std::string& text) const {
    const std::filesystem::path folder =
        std::filesystem::path(config_.dump_folder) / "checkpoint" / fmt::format("step-{:08}", step);
    WriteText(folder / "state.json", text);
    json manifest = json::parse(ReadText(folder / "manifest.json"));
    manifest["files"]["state.json"] = {{"bytes", text.size()},
                                       {"xxh64", ChecksumText(Xxh64Of(text))}};
    manifest.erase("xxh64");
    manifest["xxh64"] = ChecksumText(Xxh64Of(manifest.dump()));
    WriteText(folder / "manifest.json", manifest.dump(2) + "\n");
  }

  json StateOf(int64_t step) const {
    return json::parse(ReadText(std::filesystem::path(config_.dump_folder) / "checkpoint" /
                                fmt::format("step-{:08}", step) / "state.json"));
  }

  TempFolder folder_;
  Config config_;
};

TEST_F(ForgedStateTest, AnOlderCheckpointIsTaken) {
  const TrainSummary whole = Train(config_);
  json mistyped = StateOf(4), earlier = mistyped;
  mistyped["tokens"] = "3";
  earlier["step"] = 3;
  const std::string nested =
      "{\"step\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  for (const std::string& text : {mistyped.dump(), earlier.dump(), nested}) {
    Forge(4, text);
    EXPECT_EQ(Train(config_).state_hash, whole.state_hash);  // steps 3 and 4 are trained again
  }
  Forge(4, earlier.dump());
  config_.checkpoint.load_step = 4;
  ExpectError(ErrorCode::kCheckpointDamaged, {"'step' is 3", "of step 4"}, [&] { Train(config_); });
}

TEST(MetricsFileTest, LinesWithoutAStepAreLeftOut) {
  TempFolder folder;
  for (const char* step : {"\"3\"", "null", "[2]", "1.5"}) {
    WriteText(folder / "metrics.jsonl",
              fmt::format("{{\"step\": 1}}\n{{\"step\": {}}}\n{{\"step\": 2}}\n", step));
    MetricsFile metrics(folder.path().string(), 2);
    EXPECT_EQ(ReadText(folder / "metrics.jsonl"), "{\"step\": 1}\n{\"step\": 2}\n") << step;
  }
}

}  // namespace
}  // namespace gt::saved_state_test
