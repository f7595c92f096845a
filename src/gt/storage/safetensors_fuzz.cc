// Feeds arbitrary bytes to the reader. What it accepts must be inside the file without gaps, and
// must be the same after it is laid out and reread. Run with ./gt fuzz safetensors 600.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/storage/checksum.h"
#include "gt/storage/safetensors_layout.h"

namespace gt {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void CheckCoverage(const SafetensorsFile& file, std::span<const std::byte> bytes) {
  const std::byte* covered = bytes.data() + file.header().size();
  for (const TensorEntry& tensor : file.tensors()) {
    Require(tensor.bytes.data() == covered, "the tensors leave a gap or overlap");
    covered += tensor.bytes.size();
    Xxh64Of(tensor.bytes);  // reads every byte
  }
  Require(covered == bytes.data() + bytes.size(), "the tensors do not end with the file");
}

// Without those whose dtype cannot be written.
std::vector<TensorSource> SourcesOf(const SafetensorsFile& file) {
  std::vector<TensorSource> sources;
  for (const TensorEntry& tensor : file.tensors()) {
    if (tensor.dtype == DType::kUndefined) continue;
    sources.push_back(SourceOf(tensor.name, tensor.dtype, tensor.sizes, tensor.bytes));
  }
  return sources;
}

std::string WrittenAgain(const std::vector<TensorSource>& sources,
                         const SafetensorsMetadata& metadata) {
  std::vector<const TensorSource*> pointers;
  for (const TensorSource& source : sources) pointers.push_back(&source);
  const SafetensorsLayout layout = LayOut(pointers, metadata, "fuzz");
  std::string text = layout.header;
  for (const TensorSource* source : layout.tensors) {
    source->write([&text](std::span<const std::byte> piece) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
  }
  Require(static_cast<int64_t>(text.size()) == layout.file_bytes, "the layout's size is wrong");
  return text;
}

void CheckRoundTrip(const SafetensorsFile& file) {
  const auto sources = SourcesOf(file);
  const std::string text = WrittenAgain(sources, file.metadata());
  const auto again = SafetensorsFile::FromBytes(std::as_bytes(std::span(text)), "again");
  Require(again.metadata() == file.metadata(), "the metadata changed");
  Require(again.tensors().size() == sources.size(), "the number of tensors changed");
  for (const TensorSource& source : sources) {
    const TensorEntry* before = file.Find(source.name);
    const TensorEntry* after = again.Find(source.name);
    Require(after != nullptr && after->dtype == before->dtype && after->sizes == before->sizes &&
                std::equal(after->bytes.begin(), after->bytes.end(), before->bytes.begin(),
                           before->bytes.end()),
            "a tensor changed");
  }
}

}  // namespace
}  // namespace gt

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto file = gt::SafetensorsFile::FromBytes(bytes, "fuzz");
    gt::CheckCoverage(file, bytes);
    gt::CheckRoundTrip(file);
  } catch (const gt::Error& error) {
    if (error.code() != gt::ErrorCode::kBadSafetensors) throw;
  }
  return 0;
}
