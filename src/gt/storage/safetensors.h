// Reads and writes tensors in the safetensors format of Hugging Face: eight bytes with the length
// of a JSON header, the header (name -> dtype, shape, range of bytes), then the bytes of all
// tensors without gaps, little-endian and row-major.
//
// Files are user input. A file that contradicts itself in any way is a BadSafetensors error that
// names the file, the tensor and the numbers; what opens can be read without any further check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/ir/type.h"
#include "gt/storage/mapped_file.h"

namespace gt {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  // kUndefined for a published dtype that graphs do not know (U16, F8_E8M0, ...). Such a tensor is
  // listed, so that the rest of its file stays usable, but asking for it by name is an error.
  DType dtype = DType::kUndefined;
  std::vector<int64_t> sizes;
  // Inside the mapped file. Not necessarily aligned for the dtype: files with mixed dtypes, and all
  // files of early writers, may begin a tensor at any byte. Copy with memcpy.
  std::span<const std::byte> bytes;
  std::string_view stored_dtype;  // as the file names it: "BF16"
};

// Tensors with their names hashed. Movable, but not copyable: the hash refers to the names.
class TensorTable {
 public:
  TensorTable() = default;
  explicit TensorTable(std::vector<TensorEntry> tensors);
  TensorTable(TensorTable&&) = default;
  TensorTable& operator=(TensorTable&&) = default;
  TensorTable(const TensorTable&) = delete;
  TensorTable& operator=(const TensorTable&) = delete;

  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // Null when there is none. Fails with UnsupportedDType, naming the tensor and `where`, for a
  // dtype that graphs do not know.
  const TensorEntry* Find(std::string_view name, std::string_view where) const;

 private:
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  // From memory that outlives the object; `name` stands for the path in errors.
  static SafetensorsFile FromBytes(std::span<const std::byte> bytes, std::string name);

  // In the order of their bytes in the file.
  const std::vector<TensorEntry>& tensors() const { return table_.tensors(); }
  const TensorEntry* Find(std::string_view name) const { return table_.Find(name, path_); }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }
  // The length field and the header: everything before the bytes of the first tensor.
  std::span<const std::byte> header() const { return header_; }

  // See MappedFile; does nothing for files from memory.
  void WillNeed(std::span<const std::byte> bytes) const { file_.WillNeed(bytes); }
  void DontNeed(std::span<const std::byte> bytes) const { file_.DontNeed(bytes); }

 private:
  SafetensorsFile() = default;
  void Read(std::span<const std::byte> bytes);

  std::string path_;
  MappedFile file_;
  std::span<const std::byte> header_;
  TensorTable table_;
  SafetensorsMetadata metadata_;
};

// The weights of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Shards that are missing, and tensors that are not where the
// index says, are one error that lists them all. Tensors that the index forgets are
// available all the same.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  // Shard by shard, in the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return table_.tensors(); }
  const TensorEntry* Find(std::string_view name) const { return table_.Find(name, path_); }
  // Of the first shard.
  const SafetensorsMetadata& metadata() const { return shards_.front().metadata(); }
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& shards() const { return shards_; }

  // Of bytes of one tensor; see MappedFile.
  void WillNeed(std::span<const std::byte> bytes) const;
  void DontNeed(std::span<const std::byte> bytes) const;

 private:
  std::string path_;
  std::vector<SafetensorsFile> shards_;
  TensorTable table_;
};

using ByteSink = std::function<void(std::span<const std::byte>)>;

// A tensor to be written. `write` hands its bytes to the sink piece by piece, so that a tensor on
// another device never has to be in memory as a whole; a piece may be reused once the sink returns.
struct TensorSource {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::function<void(const ByteSink& sink)> write;

  int64_t bytes() const;
};

// Of memory that outlives the writing.
TensorSource SourceOf(std::string name, DType dtype, std::vector<int64_t> sizes,
                      std::span<const std::byte> bytes);

// Both write under temporary names, bring the data to the disk and rename, so that a crash leaves
// the old file or the new one. Whatever goes wrong is a CannotWrite error that names the file, and
// the temporary files are removed. What a `write` function throws passes through.
//
// Tensors are in the file in the order given, except that wider items are before narrower ones,
// as in the reference implementation: then every tensor is aligned, which torch relies on.
void WriteSafetensors(const std::filesystem::path& path, std::span<const TensorSource> tensors,
                      const SafetensorsMetadata& metadata = {});

// Writes model.safetensors if all fits into `max_shard_bytes`, else numbered shards such as
// model-00001-of-00003.safetensors with an index; a tensor larger than that gets a shard of its
// own. Weights that were in the folder before are replaced: files of the other form or of another
// number of shards are removed, since a reader would mix them up. Transformers refuses files whose
// metadata does not name a format.
void WriteSafetensorsFolder(const std::filesystem::path& folder,
                            std::span<const TensorSource> tensors, int64_t max_shard_bytes,
                            const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace gt
