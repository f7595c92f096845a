// What reader, writer and checkpoints share about the format itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/storage/file_writer.h"
#include "gt/storage/safetensors.h"

namespace gt {

// A dtype of the format. Some items are smaller than a byte.
struct StoredDType {
  std::string_view name;
  int bits = 0;
  DType dtype = DType::kUndefined;  // kUndefined where graphs have no such dtype
};

const StoredDType* FindStoredDType(std::string_view name);
const StoredDType* FindStoredDType(DType dtype);

inline constexpr size_t kLengthBytes = 8;
// The limit of the reference implementation, which keeps damaged length fields from being believed.
inline constexpr size_t kMostHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

// Bytes of a dense tensor; nothing if that is no whole number, or more than any machine has.
std::optional<int64_t> StoredBytes(std::span<const int64_t> sizes, int bits);

// A file about to be written.
struct SafetensorsLayout {
  std::string header;                        // begins with the length field; padded
  std::vector<const TensorSource*> tensors;  // in the order of their bytes
  int64_t file_bytes = 0;
};

// `path` is for errors alone.
SafetensorsLayout LayOut(std::span<const TensorSource* const> tensors,
                         const SafetensorsMetadata& metadata, const std::string& path);

// Writes header and tensors. `report` is called for the header, with a null tensor, and then for
// each tensor, with the checksum of its bytes; without it no checksum is computed.
using ChecksumReport = std::function<void(const TensorSource* tensor, uint64_t checksum)>;
void WriteLayout(const SafetensorsLayout& layout, const std::string& path, FileWriter& writer,
                 const ChecksumReport& report = nullptr);

// Cuts the tensors, in order, into groups of at most `max_bytes` each; a larger tensor is alone.
// There is always at least one group.
std::vector<std::vector<const TensorSource*>> PlanShards(std::span<const TensorSource> tensors,
                                                         int64_t max_bytes);

}  // namespace gt
