#include "gt/train/tokenizer_export.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "gt/base/error.h"
#include "gt/models/hf_config.h"
#include "gt/storage/file_writer.h"
#include "gt/storage/mapped_file.h"
#include "gt/tokenizer/byte_tokenizer.h"

namespace gt {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";
// Files beside tokenizer.json that say which of its tokens begin and end texts.
constexpr const char* kTokenizerCompanions[] = {"tokenizer_config.json", "special_tokens_map.json",
                                                "generation_config.json"};
// Of config.json. Other programs pass over keys that they do not know.
constexpr const char* kTokenizerKey = "gt_tokenizer";

void CopyOrRemove(const std::filesystem::path& source, const std::filesystem::path& target) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(source, error)) {
    std::filesystem::remove(target, error);
    if (error) FailWriting(target, "cannot be removed", error.value());
    return;
  }
  if (std::filesystem::equivalent(source, target, error)) return;
  MappedFile file(source, ErrorCode::kBadTokenizer);
  WriteFile(target, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

void SetOrErase(nlohmann::json& object, const char* key, const std::optional<int32_t>& value) {
  if (value) {
    object[key] = *value;
  } else {
    object.erase(key);
  }
}

// The file of a codec that has one.
std::filesystem::path FileOf(const TextCodec& codec) {
  std::filesystem::path path = codec.path();
  return std::filesystem::is_directory(path) ? path / kTokenizerFile : path;
}

void CopyFiles(const TextCodec& codec, const std::filesystem::path& folder) {
  // Of bytes there is nothing to copy, only what is left to remove.
  std::filesystem::path file = codec.tokenizer() == nullptr ? "" : FileOf(codec);
  CopyOrRemove(file, folder / kTokenizerFile);
  for (const char* name : kTokenizerCompanions) {
    CopyOrRemove(file.empty() ? file : file.parent_path() / name, folder / name);
  }
}

// For other programs, which do not know the key in config.json.
void WriteByteTokenizer(const std::filesystem::path& folder) {
  WriteFile(folder / kTokenizerFile, ByteTokenizerJson());
  WriteFile(folder / "tokenizer_config.json", ByteTokenizerConfigJson());
}

bool CameWith(const TextCodec& codec, const std::string& original) {
  if (original.empty() || codec.tokenizer() == nullptr) return false;
  std::error_code error;
  std::filesystem::path theirs = std::filesystem::path(original) / kTokenizerFile;
  return std::filesystem::equivalent(FileOf(codec), theirs, error);
}

}  // namespace

void ExportTokenizer(const TextCodec& codec, const std::string& original,
                     const std::string& folder) {
  CopyFiles(codec, folder);
  if (codec.tokenizer() == nullptr) WriteByteTokenizer(folder);
  std::string path = (std::filesystem::path(folder) / "config.json").string();
  nlohmann::json config = HfConfig::FromFile(path).json();
  if (codec.tokenizer() == nullptr) {
    config[kTokenizerKey] = std::string(TextCodec::kBytes);
  } else {
    config.erase(kTokenizerKey);
  }
  // The model's own tokens for beginnings and ends hold for its own tokenizer alone.
  if (!CameWith(codec, original)) {
    SetOrErase(config, "bos_token_id", codec.bos_id());
    SetOrErase(config, "eos_token_id", codec.eos_id());
  }
  WriteFile(path, config.dump(2) + "\n");
}

std::string ExportedTokenizer(const std::string& folder) {
  std::filesystem::path path(folder);
  std::error_code error;
  if (std::filesystem::is_regular_file(path / "config.json", error)) {
    HfConfig config = HfConfig::FromFile((path / "config.json").string());
    if (config.Find(kTokenizerKey) != nullptr) {
      std::string kind = config.String(kTokenizerKey);
      if (kind != TextCodec::kBytes) {
        config.Reject(kTokenizerKey, "is '" + kind + "', but gt knows bytes alone");
      }
      return kind;
    }
  }
  return std::filesystem::is_regular_file(path / kTokenizerFile, error) ? folder : "";
}

}  // namespace gt
