#include "gt/report/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"

namespace gt::tensorboard_test {
namespace {

namespace fs = std::filesystem;
using testing::ReadText;

class TensorBoardTest : public ::testing::Test {
 protected:
  testing::TempFolder folder_;
};

template <typename T>
T Fixed(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// The payloads of the records, each checked against its sums.
std::vector<std::string> Records(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    if (file.size() < 16) {
      ADD_FAILURE() << file.size() << " bytes left over";
      return records;
    }
    const auto length = Fixed<uint64_t>(file);
    EXPECT_EQ(Fixed<uint32_t>(file.substr(8)), MaskedCrc32c(file.substr(0, 8)));
    if (length > file.size() - 16) {
      ADD_FAILURE() << "a record of " << length << " bytes";
      return records;
    }
    const std::string_view data = file.substr(12, length);
    EXPECT_EQ(Fixed<uint32_t>(file.substr(12 + length)), MaskedCrc32c(data));
    records.emplace_back(data);
    file.remove_prefix(16 + length);
  }
  return records;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::string tag;
  std::optional<float> value;
};

uint64_t TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// Reads an Event, a Summary or a Value, according to `path`, the fields above it.
void Decode(std::string_view bytes, const std::string& path, Event& event) {
  while (!bytes.empty()) {
    const uint64_t tag = TakeVarint(bytes);
    const std::string field = path + "/" + std::to_string(tag >> 3);
    switch (tag & 7) {
      case 0: {
        const uint64_t value = TakeVarint(bytes);
        if (field == "/2") event.step = static_cast<int64_t>(value);
        break;
      }
      case 1:
        if (field == "/1") event.wall_time = Fixed<double>(bytes);
        bytes.remove_prefix(8);
        break;
      case 2: {
        const uint64_t length = TakeVarint(bytes);
        const std::string_view value = bytes.substr(0, length);
        bytes.remove_prefix(length);
        if (field == "/3") event.version = value;
        if (field == "/5" || field == "/5/1") Decode(value, field, event);
        if (field == "/5/1/1") event.tag = value;
        break;
      }
      case 5:
        if (field == "/5/1/2") event.value = Fixed<float>(bytes);
        bytes.remove_prefix(4);
        break;
      default:
        FAIL() << "wire type " << (tag & 7);
    }
  }
}

std::vector<Event> Events(const fs::path& path) {
  std::vector<Event> events;
  for (const std::string& record : Records(ReadText(path))) {
    events.emplace_back();
    Decode(record, "", events.back());
  }
  return events;
}

TEST(Crc32cTest, AgreesWithPublishedValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST_F(TensorBoardTest, WritesWhatTensorBoardReads) {
  TensorBoardWriter writer(folder_ / "tb");
  writer.AddScalar("loss", 1, 1700000000.25, 4.5);
  writer.AddScalar("optimizer/lr", 300, 1700000001.5, 1e-3);
  writer.AddScalar("loss", int64_t{1} << 40, 1700000002, std::numeric_limits<double>::quiet_NaN());
  writer.Flush();
  const std::vector<Event> events = Events(writer.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_FALSE(events[0].value);
  EXPECT_EQ(events[1].tag, "loss");
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].wall_time, 1700000000.25);
  EXPECT_EQ(events[1].value, 4.5f);
  EXPECT_EQ(events[2].tag, "optimizer/lr");
  EXPECT_EQ(events[2].step, 300);
  EXPECT_EQ(events[2].value, 1e-3f);
  EXPECT_EQ(events[3].step, int64_t{1} << 40);
  EXPECT_TRUE(std::isnan(*events[3].value));
}

TEST_F(TensorBoardTest, IsNamedSoThatTensorBoardFindsIt) {
  TensorBoardWriter first(folder_);
  TensorBoardWriter second(folder_);
  EXPECT_TRUE(first.path().filename().string().starts_with("events.out.tfevents.1"));
  EXPECT_NE(first.path(), second.path());
}

// A job that is killed must leave the values of every step but the running one.
TEST_F(TensorBoardTest, AStepIsOnDiskWhenTheNextOneBegins) {
  TensorBoardWriter writer(folder_);
  EXPECT_EQ(Events(writer.path()).size(), 1u);
  writer.AddScalar("a", 1, 0, 1);
  writer.AddScalar("b", 1, 0, 2);
  writer.AddScalar("a", 2, 0, 3);
  EXPECT_EQ(Events(writer.path()).size(), 3u);
}

TEST_F(TensorBoardTest, SaysWhatCannotBeWritten) {
  std::ofstream(folder_ / "file") << "x";
  try {
    TensorBoardWriter writer(folder_ / "file");
    FAIL() << "wrote into a file as if it were a folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCannotWrite);
    EXPECT_NE(error.message().find((folder_ / "file").string()), std::string::npos);
  }
}

}  // namespace
}  // namespace gt::tensorboard_test
