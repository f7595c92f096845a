#include "gt/storage/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <utility>

#include "gt/testing/temp_folder.h"

namespace gt::mapped_file_test {
namespace {

using testing::ExpectError;
using testing::TempFolder;
using testing::WriteText;

std::string TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFileTest, ShowsTheBytes) {
  const TempFolder folder;
  WriteText(folder / "f", "hello");
  WriteText(folder / "empty", "");
  EXPECT_EQ(TextOf(MappedFile(folder / "f", ErrorCode::kBadData)), "hello");
  EXPECT_TRUE(MappedFile(folder / "empty", ErrorCode::kBadData).bytes().empty());
}

TEST(MappedFileTest, MovesWithoutMovingTheBytes) {
  const TempFolder folder;
  WriteText(folder / "f", "hello");
  MappedFile first(folder / "f", ErrorCode::kBadData);
  const std::byte* address = first.bytes().data();
  MappedFile second = std::move(first);
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), address);
  EXPECT_EQ(TextOf(third), "hello");
}

// Hints change nothing that can be seen, and memory that is not of the mapping is left alone.
TEST(MappedFileTest, HintsKeepTheContents) {
  const TempFolder folder;
  const std::string text(50000, 'x');
  WriteText(folder / "f", text);
  const MappedFile file(folder / "f", ErrorCode::kBadData);
  file.WillNeed(file.bytes().subspan(5000, 20000));
  file.DontNeed(file.bytes().subspan(4999, 30001));
  EXPECT_EQ(TextOf(file), text);
  const std::vector<std::byte> other(50000, std::byte{7});
  file.DontNeed(other);
  EXPECT_EQ(other, std::vector<std::byte>(50000, std::byte{7}));
}

TEST(MappedFileTest, RefusesWhatIsNoFile) {
  const TempFolder folder;
  const auto open = [](const std::filesystem::path& path) {
    return [path] { MappedFile(path, ErrorCode::kBadData); };
  };
  ExpectError(ErrorCode::kBadData, {"absent", "No such file"}, open(folder / "absent"));
  ExpectError(ErrorCode::kBadData, {"is a folder"}, open(folder.path()));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  ExpectError(ErrorCode::kBadData, {"pipe", "not a regular file"}, open(folder / "pipe"));
}

}  // namespace
}  // namespace gt::mapped_file_test
