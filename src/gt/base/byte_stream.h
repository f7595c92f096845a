// The bytes of a file from beginning to end, decompressed on the way and never held whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace gt {

enum class Compression { kNone, kGzip, kZstd };

// By the end of its name: .gz, .zst, .zstd.
Compression CompressionOf(const std::filesystem::path& file);

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Puts at most `capacity` bytes into `out` and returns how many; 0 only at the end. A file that
  // is damaged or cut short is BadData, one that cannot be read is DataUnreadable.
  virtual std::size_t Read(char* out, std::size_t capacity) = 0;

  // Bytes of the file consumed so far, as stored.
  virtual std::size_t consumed() const = 0;
};

std::unique_ptr<ByteStream> OpenByteStream(const std::filesystem::path& file,
                                           Compression compression);

}  // namespace gt
