#include "gt/report/tensorboard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "gt/base/error.h"

namespace gt {
namespace {

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

void AppendFixed(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

// The wire format of protocol buffers, as far as it is needed here.
class Message {
 public:
  void Varint(int field, uint64_t value) {
    Tag(field, 0);
    AppendVarint(value);
  }
  void Double(int field, double value) {
    Tag(field, 1);
    AppendFixed(std::bit_cast<uint64_t>(value), 8, bytes_);
  }
  void Bytes(int field, std::string_view value) {
    Tag(field, 2);
    AppendVarint(value.size());
    bytes_ += value;
  }
  void Float(int field, float value) {
    Tag(field, 5);
    AppendFixed(std::bit_cast<uint32_t>(value), 4, bytes_);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void Tag(int field, int wire_type) {
    AppendVarint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
  }
  void AppendVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// The fields of event.proto and summary.proto.
namespace field {
constexpr int kEventWallTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimple = 2;
}  // namespace field

Message VersionEvent(double wall_time) {
  Message event;
  event.Double(field::kEventWallTime, wall_time);
  event.Bytes(field::kEventFileVersion, "brain.Event:2");
  return event;
}

Message ScalarEvent(std::string_view tag, int64_t step, double wall_time, double value) {
  Message scalar;
  scalar.Bytes(field::kValueTag, tag);
  scalar.Float(field::kValueSimple, static_cast<float>(value));
  Message summary;
  summary.Bytes(field::kSummaryValue, scalar.bytes());
  Message event;
  event.Double(field::kEventWallTime, wall_time);
  event.Varint(field::kEventStep, static_cast<uint64_t>(step));
  event.Bytes(field::kEventSummary, summary.bytes());
  return event;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

// The number at the end keeps apart writers that one process opens within a second.
std::string FileName(double now) {
  static std::atomic<int> count = 0;
  return fmt::format("events.out.tfevents.{:010d}.{}.{}.{}", static_cast<int64_t>(now), HostName(),
                     getpid(), count++);
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xA282EAD8; }

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    Fail(ErrorCode::kCannotWrite, "cannot make the folder '{}' for TensorBoard: {}",
         folder.string(), error.message());
  }
  const double now = Now();
  path_ = folder / FileName(now);
  file_.reset(std::fopen(path_.c_str(), "wbx"));
  if (!file_) {
    Fail(ErrorCode::kCannotWrite, "cannot open '{}': {}", path_.string(), std::strerror(errno));
  }
  WriteRecord(VersionEvent(now).bytes());
  Flush();
}

void TensorBoardWriter::AddScalar(std::string_view tag, int64_t step, double wall_time,
                                  double value) {
  if (step != step_) Flush();
  step_ = step;
  WriteRecord(ScalarEvent(tag, step, wall_time, value).bytes());
}

void TensorBoardWriter::Flush() {
  if (std::fflush(file_.get()) == 0) return;
  Fail(ErrorCode::kCannotWrite, "writing '{}' failed: {}", path_.string(), std::strerror(errno));
}

void TensorBoardWriter::WriteRecord(std::string_view bytes) {
  std::string length;
  AppendFixed(bytes.size(), 8, length);
  std::string record = length;
  AppendFixed(MaskedCrc32c(length), 4, record);
  record += bytes;
  AppendFixed(MaskedCrc32c(bytes), 4, record);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size()) return;
  Fail(ErrorCode::kCannotWrite, "writing '{}' failed: {}", path_.string(), std::strerror(errno));
}

}  // namespace gt
