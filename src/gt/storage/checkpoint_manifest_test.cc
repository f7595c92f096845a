#include "gt/storage/checkpoint_manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gt/storage/checksum.h"
#include "gt/testing/temp_folder.h"

namespace gt::checkpoint_manifest_test {
namespace {

using nlohmann::json;
using testing::ExpectError;
using testing::TempFolder;
using testing::WriteText;

// As the first version of the program wrote it.
constexpr std::string_view kFirstVersion = R"({
  "files": {
    "state.json": {
      "bytes": 3,
      "xxh64": "0000000000000001"
    },
    "tensors-00001-of-00001.safetensors": {
      "bytes": 80,
      "header_xxh64": "0000000000000002",
      "tensors_xxh64": {
        "x": "00000000000000ff"
      }
    }
  },
  "format": "gt-checkpoint",
  "step": 7,
  "version": 1,
  "xxh64": "7a21df6320439af4"
}
)";

Manifest Example() {
  Manifest manifest;
  manifest.step = 7;
  manifest.files["state.json"] = {.size = 3, .checksum = 1, .tensors = {}};
  manifest.files["tensors-00001-of-00001.safetensors"] = {
      .size = 80, .checksum = 2, .tensors = {{"x", 255}}};
  return manifest;
}

class CheckpointManifestTest : public ::testing::Test {
 protected:
  Manifest Read(std::string_view text) {
    WriteText(folder_ / kManifestFile, text);
    return ReadManifest(folder_.path());
  }

  // The text of the body with a right checksum: what only somebody who means it can write.
  Manifest ReadSealed(json body) {
    body["xxh64"] = ChecksumText(Xxh64Of(body.dump()));
    return Read(body.dump(2) + "\n");
  }

  json WithPieces() {
    Manifest manifest = Example();
    manifest.tensors["x"] = {DType::kBFloat16, {4, 2}};
    json body = json::parse(ManifestText(manifest));
    body.erase("xxh64");
    return body;
  }

  TempFolder folder_;
};

// Where no tensor is in pieces, old and new programs read each other's checkpoints.
TEST_F(CheckpointManifestTest, WholeTensorsAreWrittenAsEver) {
  EXPECT_EQ(ManifestText(Example()), kFirstVersion);
  const Manifest manifest = Read(kFirstVersion);
  EXPECT_EQ(manifest.step, 7);
  EXPECT_EQ(manifest.files.at("state.json").size, 3);
  EXPECT_EQ(manifest.files.at("tensors-00001-of-00001.safetensors").tensors.at("x"), 255u);
  EXPECT_TRUE(manifest.tensors.empty());
}

TEST_F(CheckpointManifestTest, PiecesComeWithTheirTensors) {
  const Manifest manifest = ReadSealed(WithPieces());
  EXPECT_EQ(manifest.tensors, (TensorIndex{{"x", {DType::kBFloat16, {4, 2}}}}));
}

TEST_F(CheckpointManifestTest, RefusesOtherVersions) {
  json body = WithPieces();
  body["version"] = 3;
  ExpectError(ErrorCode::kCheckpointMismatch, {"manifest.json", "version 3", "up to version 2"},
              [&] { ReadSealed(body); });
}

TEST_F(CheckpointManifestTest, RefusesTensorsThatCannotBe) {
  const auto expect_damaged = [&](const char* key, const json& value,
                                  std::initializer_list<std::string_view> parts) {
    json body = WithPieces();
    body["tensors"]["x"][key] = value;
    ExpectError(ErrorCode::kCheckpointDamaged, parts, [&] { ReadSealed(body); });
  };
  expect_damaged("dtype", "F33", {"manifest.json", "\"x\"", "\"F33\""});
  expect_damaged("dtype", "F4", {"\"F4\", which gt does not write"});
  expect_damaged("dtype", 5, {"manifest.json"});
  expect_damaged("sizes", {4, -2}, {"bf16 [4, -2], which no machine can hold"});
  expect_damaged("sizes", {int64_t{1} << 40, int64_t{1} << 40}, {"no machine can hold"});
  expect_damaged("sizes", {uint64_t{1} << 63}, {"no machine can hold"});
  expect_damaged("sizes", {4, 1.5}, {"\"x\" has 1.5 as a size"});
  expect_damaged("sizes", "4", {"\"x\" has \"4\" as a size"});
  expect_damaged("sizes", nullptr, {"manifest.json"});
}

// Values that are nested so deep would overflow the stack when they are compared or written again.
TEST_F(CheckpointManifestTest, RefusesDeepNests) {
  std::string text = "{\"files\": ";
  for (int i = 0; i < 100'000; ++i) text += "[";
  for (int i = 0; i < 100'000; ++i) text += "]";
  ExpectError(ErrorCode::kCheckpointDamaged, {"manifest.json", "nested"},
              [&] { Read(text + "}"); });
}

TEST_F(CheckpointManifestTest, RefusesFilesElsewhere) {
  json body = WithPieces();
  body["files"]["../secret.safetensors"] = body["files"]["state.json"];
  ExpectError(ErrorCode::kCheckpointDamaged, {"\"../secret.safetensors\""},
              [&] { ReadSealed(body); });
}

TEST_F(CheckpointManifestTest, WhatARankSaysIsUnderstood) {
  const PartRecord part = {.part = 2,
                           .parts = 4,
                           .temporary = ".tmp-step-00000007-1",
                           .files = Example().files,
                           .tensors = {{"x", {DType::kFloat32, {8}}}}};
  const std::string text = PartText(part);
  const PartRecord parsed = ParsePart(text);
  EXPECT_EQ(parsed.part, 2);
  EXPECT_EQ(parsed.parts, 4);
  EXPECT_EQ(parsed.temporary, part.temporary);
  EXPECT_EQ(parsed.tensors, part.tensors);
  EXPECT_EQ(PartText(parsed), text);
  for (size_t length = 0; length < text.size(); ++length) {
    ExpectError(ErrorCode::kCheckpointDamaged, {"the description of a rank's part"},
                [&] { ParsePart(text.substr(0, length)); });
  }
}

}  // namespace
}  // namespace gt::checkpoint_manifest_test
