// Event files that TensorBoard reads: scalars over steps.
//
// A file is a sequence of TFRecords (length, checksum of it, bytes, checksum of them), each holding
// a protobuf message Event. Both are small enough to write by hand, and a dependency on TensorFlow
// or protobuf would be larger than the rest of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gt {

class TensorBoardWriter {
 public:
  // Makes the folder if needed, and a new file in it: events.out.tfevents.<time>.<host>.<pid>.<n>.
  // TensorBoard joins the files of a folder into one run, so a resumed job adds its own.
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  // What is still buffered is written; a failure then is not reported, Flush() reports it.
  ~TensorBoardWriter() = default;

  // `wall_time` is in seconds since 1970. The values of a step are written when the next step
  // begins, or by Flush().
  void AddScalar(std::string_view tag, int64_t step, double wall_time, double value);

  // After this the values are seen by a TensorBoard that is running.
  void Flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  void WriteRecord(std::string_view bytes);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  int64_t step_ = 0;
};

// CRC-32C (Castagnoli), the checksum of TFRecords and of iSCSI.
uint32_t Crc32c(std::string_view bytes);

// As TFRecords store it: rotated and shifted, because checksums of data that contain checksums are
// weak.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace gt
