#include "gt/storage/checkpoint_manifest.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/storage/checksum.h"
#include "gt/storage/mapped_file.h"

namespace gt {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "gt-checkpoint";
constexpr int kVersion = 1;
constexpr const char* kChecksum = "xxh64";

uint64_t ParseChecksum(const std::string& text) {
  constexpr int kHexadecimal = 16;
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, kHexadecimal);
  if (error != std::errc() || end != text.data() + text.size()) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: a checksum is not a number", kManifestFile);
  }
  return value;
}

json ToJson(const FileRecord& record, bool has_tensors) {
  json result = {{"bytes", record.size}};
  result[has_tensors ? "header_xxh64" : kChecksum] = ChecksumText(record.checksum);
  if (!has_tensors) return result;
  json& tensors = result["tensors_xxh64"] = json::object();
  for (const auto& [name, checksum] : record.tensors) tensors[name] = ChecksumText(checksum);
  return result;
}

FileRecord RecordFrom(const json& value) {
  FileRecord record;
  record.size = value.at("bytes").get<int64_t>();
  const bool has_tensors = value.contains("tensors_xxh64");
  record.checksum = ParseChecksum(value.at(has_tensors ? "header_xxh64" : kChecksum));
  if (!has_tensors) return record;
  for (const auto& [name, checksum] : value.at("tensors_xxh64").items()) {
    record.tensors.emplace(name, ParseChecksum(checksum));
  }
  return record;
}

// `body` has no checksum yet. Keys are sorted, so that equal manifests are equal texts.
std::string Sealed(json body) {
  body[kChecksum] = ChecksumText(Xxh64Of(body.dump()));
  return body.dump(2) + "\n";
}

std::string ReadText(const std::filesystem::path& folder) {
  const MappedFile file(folder / kManifestFile, ErrorCode::kCheckpointDamaged);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Without its checksum, which was right.
json Unsealed(const std::string& text) {
  json body = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: is not a JSON object", kManifestFile);
  }
  body.erase(kChecksum);
  if (Sealed(body) != text) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: its checksum is wrong", kManifestFile);
  }
  return body;
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, record] : manifest.files) {
    files[name] = ToJson(record, name.ends_with(".safetensors"));
  }
  return Sealed({{"format", kFormat},
                 {"version", kVersion},
                 {"step", manifest.step},
                 {"files", std::move(files)}});
}

Manifest ReadManifest(const std::filesystem::path& folder) {
  const json body = Unsealed(ReadText(folder));
  try {
    if (body.at("format") != kFormat || body.at("version") != kVersion) {
      Fail(ErrorCode::kCheckpointMismatch,
           "{}: is of format {} version {}, but this program reads {} version {}: use the version "
           "of "
           "gt that wrote it",
           (folder / kManifestFile).string(), body.at("format").dump(), body.at("version").dump(),
           kFormat, kVersion);
    }
    Manifest manifest;
    manifest.step = body.at("step");
    for (const auto& [name, record] : body.at("files").items()) {
      manifest.files.emplace(name, RecordFrom(record));
    }
    return manifest;
  } catch (const json::exception& error) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: {}", kManifestFile, error.what());
  }
}

}  // namespace gt
