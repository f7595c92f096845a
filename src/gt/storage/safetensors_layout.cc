#include "gt/storage/safetensors_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "gt/base/byte_text.h"
#include "gt/base/text.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

constexpr std::array<StoredDType, 22> kStoredDTypes = {{
    {"BOOL", 8, DType::kBool},
    {"F4", 4, DType::kUndefined},
    {"F6_E2M3", 6, DType::kUndefined},
    {"F6_E3M2", 6, DType::kUndefined},
    {"U8", 8, DType::kUInt8},
    {"I8", 8, DType::kInt8},
    {"F8_E5M2", 8, DType::kFloat8E5M2},
    {"F8_E4M3", 8, DType::kFloat8E4M3},
    {"F8_E8M0", 8, DType::kUndefined},
    {"F8_E4M3FNUZ", 8, DType::kUndefined},
    {"F8_E5M2FNUZ", 8, DType::kUndefined},
    {"I16", 16, DType::kInt16},
    {"U16", 16, DType::kUndefined},
    {"F16", 16, DType::kFloat16},
    {"BF16", 16, DType::kBFloat16},
    {"I32", 32, DType::kInt32},
    {"U32", 32, DType::kUndefined},
    {"F32", 32, DType::kFloat32},
    {"C64", 64, DType::kComplex64},
    {"F64", 64, DType::kFloat64},
    {"I64", 64, DType::kInt64},
    {"U64", 64, DType::kUInt64},
}};

const StoredDType& StoredDTypeOf(const TensorSource& tensor) {
  const StoredDType* stored = FindStoredDType(tensor.dtype);
  if (stored == nullptr) {
    Fail(ErrorCode::kUnsupportedDType, "tensor {}: safetensors files cannot hold {}",
         Quoted(tensor.name), DTypeName(tensor.dtype));
  }
  return *stored;
}

std::string JsonText(std::string_view text, const std::string& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    Fail(ErrorCode::kCannotWrite, "{}: the name {} is not valid UTF-8", path, Quoted(text));
  }
}

std::string MetadataText(const SafetensorsMetadata& metadata, const std::string& path) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    text +=
        fmt::format("{}{}:{}", text.empty() ? "" : ",", JsonText(key, path), JsonText(value, path));
  }
  return fmt::format("{}:{{{}}}", JsonText(kMetadataKey, path), text);
}

// The reference implementation pads with spaces so that the tensors begin at a multiple of eight.
void AddLengthAndPadding(std::string& header) {
  constexpr size_t kAlignment = 8;
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = header.size();
  std::array<char, kLengthBytes> field = {};
  std::memcpy(field.data(), &length, field.size());
  header.insert(0, field.data(), field.size());
}

class NameCheck {
 public:
  void Add(const TensorSource& tensor) {
    GT_CHECK(tensor.name != kMetadataKey, "a tensor is named {}", kMetadataKey);
    GT_CHECK(names_.insert(tensor.name).second, "two tensors are named {}", Quoted(tensor.name));
  }

 private:
  std::unordered_set<std::string_view> names_;
};

}  // namespace

const StoredDType* FindStoredDType(std::string_view name) {
  const auto* found = std::find_if(kStoredDTypes.begin(), kStoredDTypes.end(),
                                   [name](const StoredDType& dtype) { return dtype.name == name; });
  return found == kStoredDTypes.end() ? nullptr : found;
}

const StoredDType* FindStoredDType(DType dtype) {
  if (dtype == DType::kUndefined) return nullptr;
  const auto* found =
      std::find_if(kStoredDTypes.begin(), kStoredDTypes.end(),
                   [dtype](const StoredDType& stored) { return stored.dtype == dtype; });
  return found == kStoredDTypes.end() ? nullptr : found;
}

std::optional<int64_t> StoredBytes(std::span<const int64_t> sizes, int bits) {
  int64_t product = bits;
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  constexpr int64_t kBitsPerByte = 8;
  if (product % kBitsPerByte != 0) return std::nullopt;
  return product / kBitsPerByte;
}

int64_t TensorSource::bytes() const {
  const auto bytes = StoredBytes(sizes, StoredDTypeOf(*this).bits);
  GT_CHECK(bytes.has_value(), "tensor {} has the sizes [{}]", Quoted(name), fmt::join(sizes, ", "));
  return *bytes;
}

SafetensorsLayout LayOut(std::span<const TensorSource* const> tensors,
                         const SafetensorsMetadata& metadata, const std::string& path) {
  NameCheck names;
  for (const TensorSource* tensor : tensors) names.Add(*tensor);
  SafetensorsLayout layout;
  layout.tensors.assign(tensors.begin(), tensors.end());
  std::stable_sort(layout.tensors.begin(), layout.tensors.end(),
                   [](const TensorSource* a, const TensorSource* b) {
                     return StoredDTypeOf(*a).bits > StoredDTypeOf(*b).bits;
                   });
  std::string& header = layout.header;
  header = "{";
  if (!metadata.empty()) header += MetadataText(metadata, path);
  int64_t end = 0;
  for (const TensorSource* tensor : layout.tensors) {
    const int64_t begin = end;
    end += tensor->bytes();
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", JsonText(tensor->name, path),
                          StoredDTypeOf(*tensor).name, fmt::join(tensor->sizes, ","), begin, end);
  }
  header += "}";
  AddLengthAndPadding(header);
  if (header.size() - kLengthBytes > kMostHeaderBytes) {
    Fail(ErrorCode::kCannotWrite,
         "{}: the names of the tensors take {}, more than the format allows; write more shards",
         path, ExactByteText(static_cast<int64_t>(header.size())));
  }
  layout.file_bytes = static_cast<int64_t>(header.size()) + end;
  return layout;
}

void WriteLayout(const SafetensorsLayout& layout, const std::string& path, FileWriter& writer,
                 const ChecksumReport& report) {
  writer.Reserve(layout.file_bytes);
  writer.Write(layout.header);
  if (report) report(nullptr, Xxh64Of(layout.header));
  for (const TensorSource* tensor : layout.tensors) {
    const int64_t expected = tensor->bytes();
    int64_t given = 0;
    Xxh64 checksum;
    tensor->write([&](std::span<const std::byte> piece) {
      given += static_cast<int64_t>(piece.size());
      GT_CHECK(given <= expected, "{}: tensor {} gave more than its {} bytes", path,
               Quoted(tensor->name), expected);
      // In steps that fit into the cache, so that memory is read once for checksum and copy.
      constexpr size_t kStep = size_t{1} << 20;
      for (; !piece.empty(); piece = piece.subspan(std::min(kStep, piece.size()))) {
        const auto part = piece.first(std::min(kStep, piece.size()));
        if (report) checksum.Update(part);
        writer.Write(part);
      }
    });
    GT_CHECK(given == expected, "{}: tensor {} gave {} of its {} bytes", path, Quoted(tensor->name),
             given, expected);
    if (report) report(tensor, checksum.Digest());
  }
}

std::vector<std::vector<const TensorSource*>> PlanShards(std::span<const TensorSource> tensors,
                                                         int64_t max_bytes) {
  std::vector<std::vector<const TensorSource*>> shards(1);
  int64_t in_shard = 0;
  NameCheck names;  // over all shards
  for (const TensorSource& tensor : tensors) {
    names.Add(tensor);
    const int64_t bytes = tensor.bytes();
    if (!shards.back().empty() && bytes > max_bytes - in_shard) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(&tensor);
    in_shard += bytes;
  }
  return shards;
}

}  // namespace gt
