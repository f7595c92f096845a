// A file of token ids, mapped: .npy, or .bin, which is the numbers alone.
#pragma once

#include <cstdint>
#include <string>

#include "gt/data/files.h"
#include "gt/data/npy.h"
#include "gt/storage/mapped_file.h"

namespace gt {

class TokenFile {
 public:
  // The type of a .bin is what the JSON file beside it says ({"dtype": "uint16", "shape": [1000,
  // 257]}, each key may be missing). Without one it is unsigned, of 16 bits when `vocab_size` fits
  // into them and of 32 bits otherwise, unless the file's beginning shows wider elements.
  TokenFile(const DataFile& file, DataKind kind, int64_t vocab_size);

  int64_t size() const { return size_; }
  // Tokens in a row, or 0 when the file is one stream.
  int64_t row_width() const { return row_width_; }
  TokenType type() const { return type_; }
  const std::string& path() const { return path_; }

  // Tokens [begin, begin + count); an id outside of [0, vocab_size) is TokenOutOfVocabulary.
  void Read(int64_t begin, int64_t count, int64_t vocab_size, int64_t* out) const;

 private:
  void OpenNpy();
  void OpenBin(int64_t vocab_size);
  void ApplySidecar(const std::filesystem::path& sidecar);
  void SetShape(const std::vector<int64_t>& shape);

  std::string path_;
  MappedFile mapping_;
  std::span<const std::byte> data_;
  TokenType type_ = TokenType::kUint16;
  int64_t size_ = 0;
  int64_t row_width_ = 0;
};

// The width of the elements of a raw file of token ids, judged by its first bytes: ids of more than
// 16 (32) bits are so rare that wider elements have upper halves of zero throughout. `type` is the
// answer unless the bytes show otherwise.
TokenType WidestPlausibleType(std::span<const std::byte> bytes, TokenType type);

}  // namespace gt
