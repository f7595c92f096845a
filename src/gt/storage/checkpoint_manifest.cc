#include "gt/storage/checkpoint_manifest.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/text.h"
#include "gt/storage/checksum.h"
#include "gt/storage/mapped_file.h"
#include "gt/storage/safetensors_layout.h"

namespace gt {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "gt-checkpoint";
// A manifest has the oldest version that can say what it has to say.
constexpr int kVersion = 1;
constexpr int kVersionWithPieces = 2;
constexpr const char* kChecksum = "xxh64";
constexpr std::string_view kPartDescription = "the description of a rank's part";

template <typename... Args>
[[noreturn]] void Damaged(std::string_view where, fmt::format_string<Args...> format,
                          Args&&... args) {
  Fail(ErrorCode::kCheckpointDamaged, "{}: {}", where,
       fmt::format(format, std::forward<Args>(args)...));
}

uint64_t ParseChecksum(const std::string& text, std::string_view where) {
  constexpr int kHexadecimal = 16;
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, kHexadecimal);
  if (error != std::errc() || end != text.data() + text.size()) {
    Damaged(where, "a checksum is not a number");
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

json ToJson(const FileRecords& files) {
  json result = json::object();
  for (const auto& [name, record] : files) {
    result[name] = ToJson(record, name.ends_with(".safetensors"));
  }
  return result;
}

json ToJson(const TensorIndex& tensors) {
  json result = json::object();
  for (const auto& [name, info] : tensors) {
    const StoredDType* dtype = FindStoredDType(info.dtype);
    GT_CHECK(dtype != nullptr, "tensor {} is {}", Quoted(name), InfoText(info));
    result[name] = {{"dtype", dtype->name}, {"sizes", info.sizes}};
  }
  return result;
}

FileRecord RecordFrom(const json& value, std::string_view where) {
  FileRecord record;
  record.size = value.at("bytes").get<int64_t>();
  const bool has_tensors = value.contains("tensors_xxh64");
  record.checksum = ParseChecksum(value.at(has_tensors ? "header_xxh64" : kChecksum), where);
  if (!has_tensors) return record;
  for (const auto& [name, checksum] : value.at("tensors_xxh64").items()) {
    record.tensors.emplace(name, ParseChecksum(checksum, where));
  }
  return record;
}

FileRecords FilesFrom(const json& value, std::string_view where) {
  FileRecords files;
  for (const auto& [name, record] : value.items()) {
    if (name.find('/') != std::string::npos) {
      Damaged(where, "names the file {}, which is not in the checkpoint's folder", Quoted(name));
    }
    files.emplace(name, RecordFrom(record, where));
  }
  return files;
}

TensorInfo InfoFrom(const std::string& name, const json& value, std::string_view where) {
  const auto& dtype_name = value.at("dtype").get_ref<const std::string&>();
  const StoredDType* dtype = FindStoredDType(dtype_name);
  if (dtype == nullptr || dtype->dtype == DType::kUndefined) {
    Damaged(where, "tensor {} has the dtype {}, which gt does not write", Quoted(name),
            Quoted(dtype_name));
  }
  for (const json& size : value.at("sizes")) {
    if (!size.is_number_integer())
      Damaged(where, "tensor {} has {} as a size", Quoted(name), ShortJson(size));
  }
  TensorInfo info = {.dtype = dtype->dtype, .sizes = value.at("sizes")};
  if (!StoredBytes(info.sizes, dtype->bits).has_value()) {
    Damaged(where, "tensor {} is {}, which no machine can hold", Quoted(name), InfoText(info));
  }
  return info;
}

TensorIndex IndexFrom(const json& value, std::string_view where) {
  TensorIndex tensors;
  for (const auto& [name, info] : value.items()) {
    tensors.emplace(name, InfoFrom(name, info, where));
  }
  return tensors;
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
json Unsealed(const std::string& text, std::string_view where) {
  json body;
  try {
    body = ParseJson(text, kLargeJson);
  } catch (const BadJson& problem) {
    Damaged(where, "is not JSON: {}", problem.what());
  }
  if (!body.is_object()) Damaged(where, "is not a JSON object");
  body.erase(kChecksum);
  if (Sealed(body) != text) Damaged(where, "its checksum is wrong");
  return body;
}

// The version, which this program can read.
int VersionOf(const json& body, const std::filesystem::path& folder) {
  const json& version = body.at("version");
  if (body.at("format") != kFormat || (version != kVersion && version != kVersionWithPieces)) {
    Fail(ErrorCode::kCheckpointMismatch,
         "{}: is of format {} version {}, but this program reads {} up to version {}: use the "
         "version of gt that wrote it",
         (folder / kManifestFile).string(), ShortJson(body.at("format")), ShortJson(version),
         kFormat, kVersionWithPieces);
  }
  return version;
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  json body = {{"format", kFormat},
               {"version", kVersion},
               {"step", manifest.step},
               {"files", ToJson(manifest.files)}};
  if (!manifest.tensors.empty()) {
    body["version"] = kVersionWithPieces;
    body["tensors"] = ToJson(manifest.tensors);
  }
  return Sealed(std::move(body));
}

std::string PartText(const PartRecord& part) {
  return Sealed({{"part", part.part},
                 {"parts", part.parts},
                 {"temporary", part.temporary},
                 {"files", ToJson(part.files)},
                 {"tensors", ToJson(part.tensors)}});
}

Manifest ReadManifest(const std::filesystem::path& folder) {
  const json body = Unsealed(ReadText(folder), kManifestFile);
  try {
    const int version = VersionOf(body, folder);
    Manifest manifest;
    manifest.step = body.at("step");
    manifest.files = FilesFrom(body.at("files"), kManifestFile);
    if (version == kVersionWithPieces) {
      manifest.tensors = IndexFrom(body.at("tensors"), kManifestFile);
    }
    return manifest;
  } catch (const json::exception& error) {
    Damaged(kManifestFile, "{}", error.what());
  }
}

PartRecord ParsePart(const std::string& text) {
  const json body = Unsealed(text, kPartDescription);
  try {
    PartRecord part;
    part.part = body.at("part");
    part.parts = body.at("parts");
    part.temporary = body.at("temporary");
    part.files = FilesFrom(body.at("files"), kPartDescription);
    part.tensors = IndexFrom(body.at("tensors"), kPartDescription);
    return part;
  } catch (const json::exception& error) {
    Damaged(kPartDescription, "{}", error.what());
  }
}

}  // namespace gt
