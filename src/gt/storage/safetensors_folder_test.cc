#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gt/storage/safetensors.h"
#include "gt/storage/weight_files.h"
#include "gt/testing/temp_folder.h"

namespace gt::safetensors_folder_test {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;
using testing::WriteText;

constexpr std::string_view kShard1 = "model-00001-of-00003.safetensors";
constexpr std::string_view kShard2 = "model-00002-of-00003.safetensors";
constexpr std::string_view kShard3 = "model-00003-of-00003.safetensors";

TensorSource Source(std::string name, std::string_view data) {
  return SourceOf(std::move(name), DType::kUInt8, {static_cast<int64_t>(data.size())},
                  std::as_bytes(std::span(data)));
}

// In shards of at most 4 bytes: {a, b}, {large}, {c}.
std::vector<TensorSource> FourTensors() {
  return {Source("a", "12"), Source("b", "34"), Source("large", "567890"), Source("c", "x")};
}

std::string TextOf(const TensorEntry* tensor) {
  if (tensor == nullptr) return "(none)";
  return {reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size()};
}

void ExpectFourTensors(const fs::path& path) {
  const SafetensorsFolder folder(path);
  EXPECT_EQ(folder.tensors().size(), 4u);
  EXPECT_EQ(TextOf(folder.Find("a")), "12");
  EXPECT_EQ(TextOf(folder.Find("b")), "34");
  EXPECT_EQ(TextOf(folder.Find("large")), "567890");
  EXPECT_EQ(TextOf(folder.Find("c")), "x");
  EXPECT_EQ(folder.Find("d"), nullptr);
  EXPECT_EQ(folder.metadata().at("format"), "pt");
  for (const TensorEntry& tensor : folder.tensors()) {
    folder.WillNeed(tensor.bytes);
    folder.DontNeed(tensor.bytes);
  }
  EXPECT_EQ(TextOf(folder.Find("c")), "x");
}

void EditIndex(const TempFolder& folder, const std::function<void(nlohmann::json&)>& edit) {
  auto index = nlohmann::json::parse(ReadText(folder / kIndexFile));
  edit(index);
  WriteText(folder / kIndexFile, index.dump());
}

TEST(SafetensorsFolderTest, SmallModelsAreOneFile) {
  const TempFolder folder;
  WriteSafetensorsFolder(folder / "new/model", FourTensors(), 1000);
  EXPECT_EQ(WeightFilesIn(folder / "new/model"), std::vector<std::string>{"model.safetensors"});
  ExpectFourTensors(folder / "new/model");
}

TEST(SafetensorsFolderTest, LargeModelsAreShardsWithAnIndex) {
  const TempFolder folder;
  WriteSafetensorsFolder(folder.path(), FourTensors(), 4);
  ExpectFourTensors(folder.path());
  EXPECT_EQ(ReadText(folder / kIndexFile), R"({
  "metadata": {
    "total_size": 11
  },
  "weight_map": {
    "a": "model-00001-of-00003.safetensors",
    "b": "model-00001-of-00003.safetensors",
    "c": "model-00003-of-00003.safetensors",
    "large": "model-00002-of-00003.safetensors"
  }
}
)");
  EXPECT_EQ(SafetensorsFile(folder / kShard1).tensors().size(), 2u);
}

// Weights of an earlier export would otherwise be read in place of the new ones.
TEST(SafetensorsFolderTest, OldWeightsAreReplacedAndOtherFilesKept) {
  const TempFolder folder;
  WriteText(folder / "model-extra.safetensors", "not ours");
  for (const int64_t shard_bytes : {1000, 4, 2, 1000, 4, 1000}) {
    WriteSafetensorsFolder(folder.path(), FourTensors(), shard_bytes);
    ExpectFourTensors(folder.path());
    const size_t files = shard_bytes == 1000 ? 1 : shard_bytes == 4 ? 4 : 5;
    EXPECT_EQ(WeightFilesIn(folder.path()).size(), files);
    EXPECT_EQ(static_cast<size_t>(std::distance(fs::directory_iterator(folder.path()), {})),
              files + 1);
  }
}

TEST(SafetensorsFolderTest, ANameInTwoShardsIsRefused) {
  const TempFolder folder;
  std::vector<TensorSource> tensors = FourTensors();
  tensors.back().name = "a";
  ExpectError(ErrorCode::kInternal, {"two tensors are named \"a\""},
              [&] { WriteSafetensorsFolder(folder.path(), tensors, 4); });
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SafetensorsFolderTest, MissingShardsAreListed) {
  const TempFolder folder;
  WriteSafetensorsFolder(folder.path(), FourTensors(), 4);
  fs::remove(folder / kShard1);
  fs::remove(folder / kShard3);
  ExpectError(ErrorCode::kBadSafetensors, {"2 of the 3 files", kShard1, kShard3},
              [&] { SafetensorsFolder f(folder.path()); });
}

TEST(SafetensorsFolderTest, DisagreementsAreListed) {
  const TempFolder folder;
  WriteSafetensorsFolder(folder.path(), FourTensors(), 4);
  EditIndex(folder, [](nlohmann::json& index) {
    index["weight_map"]["a"] = kShard2;
    index["weight_map"]["ghost"] = kShard3;
  });
  WriteSafetensors(folder / kShard3, std::vector<TensorSource>{Source("b", "?"), Source("c", "x")});
  ExpectError(
      ErrorCode::kBadSafetensors,
      {"disagree about 3 tensors", "\"a\": should be in model-00002", "but is in model-00001",
       "\"ghost\": should be in model-00003", "in none", "\"b\": is in both model-00001"},
      [&] { SafetensorsFolder f(folder.path()); });
}

TEST(SafetensorsFolderTest, TensorsThatTheIndexForgetsAreThere) {
  const TempFolder folder;
  WriteSafetensorsFolder(folder.path(), FourTensors(), 4);
  EditIndex(folder, [](nlohmann::json& index) { index["weight_map"].erase("b"); });
  ExpectFourTensors(folder.path());
}

TEST(SafetensorsFolderTest, DamagedIndexesAreRefused) {
  const TempFolder folder;
  const auto expect = [&](std::string_view text, std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(text);
    WriteText(folder / kIndexFile, text);
    ExpectError(ErrorCode::kBadSafetensors, parts, [&] { SafetensorsFolder f(folder.path()); });
  };
  expect("", {kIndexFile, "weight_map"});
  expect("[]", {kIndexFile, "weight_map"});
  expect(R"({"weight_map": []})", {kIndexFile, "weight_map"});
  expect(R"({"weight_map": {}})", {kIndexFile, "empty"});
  expect(R"({"weight_map": {"a": 1}})", {"\"a\" is 1"});
  expect(R"({"weight_map": {"a": "../x"}})", {"\"a\" is \"../x\""});
  expect(R"({"weight_map": {"a": "/etc/passwd"}})", {"\"a\" is \"/etc/passwd\""});
  expect(R"({"weight_map": {"a": ""}})", {"\"a\" is \"\""});
  expect(R"({"weight_map": {"a": "."}})", {"is a folder"});
}

TEST(SafetensorsFolderTest, SaysWhatIsThereInstead) {
  const TempFolder folder;
  const auto open = [&](std::string_view name) {
    return [path = folder / name] { SafetensorsFolder f(path); };
  };
  fs::create_directories(folder / "empty");
  fs::create_directories(folder / "pickled");
  fs::create_directories(folder / "shards");
  WriteText(folder / "pickled/pytorch_model.bin", "");
  WriteText(folder / "shards" / kShard1, "");
  ExpectError(ErrorCode::kBadSafetensors, {"no such folder"}, open("absent"));
  ExpectError(ErrorCode::kBadSafetensors, {"neither model.safetensors nor"}, open("empty"));
  ExpectError(ErrorCode::kBadSafetensors, {"convert pytorch_model.bin"}, open("pickled"));
  ExpectError(ErrorCode::kBadSafetensors, {"index", "is missing"}, open("shards"));
}

}  // namespace
}  // namespace gt::safetensors_folder_test
