#include "gt/storage/file_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "gt/storage/temp_folder_test_util.h"

namespace gt::file_writer_test {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;
using testing::WriteText;

// Pieces below, at and above the size of the buffer arrive in order.
TEST(FileWriterTest, WritesPiecesOfAnySize) {
  const TempFolder folder;
  WriteText(folder / "f", "what was there before");
  std::string expected;
  {
    FileWriter writer(folder / "f");
    writer.Reserve(1 << 24);
    char letter = 'a';
    for (const size_t size : {1u, 0u, 100u, 1u << 20, 5u, (1u << 20) - 5, 3u, 3u << 20, 7u}) {
      const std::string piece(size, letter++);
      writer.Write(piece);
      expected += piece;
    }
    writer.Finish();
  }
  EXPECT_EQ(ReadText(folder / "f"), expected);
}

TEST(FileWriterTest, UnfinishedFilesAreRemoved) {
  const TempFolder folder;
  { FileWriter(folder / "f").Write("half"); }
  EXPECT_FALSE(fs::exists(folder / "f"));
}

// The disk is full in the middle of a piece: the kernel takes a part of it first.
TEST(FileWriterTest, ReportsHowFarItCame) {
  const TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1500000, 1500000};
    setrlimit(RLIMIT_FSIZE, &limit);
    FileWriter writer(folder / "f");
    try {
      writer.Write(std::string(4 << 20, 'x'));
    } catch (const Error& error) {
      const bool as_expected =
          error.code() == ErrorCode::kCannotWrite &&
          error.message().find("cannot be written after 1.4 MiB (1500000 bytes): File too large") !=
              std::string::npos;
      _exit(as_expected ? 0 : 1);
    }
    _exit(2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(FileWriterTest, ErrorsNameThePathAndTheReason) {
  const TempFolder folder;
  WriteText(folder / "file", "");
  ExpectError(ErrorCode::kCannotWrite, {"absent/f", "cannot be created", "No such file"},
              [&] { FileWriter(folder / "absent/f"); });
  ExpectError(ErrorCode::kCannotWrite, {"file/f", "a part of the path is a file"},
              [&] { CreateFolders(folder / "file/f"); });
  ExpectError(ErrorCode::kCannotWrite, {"absent", "cannot be renamed to", "other"},
              [&] { Rename(folder / "absent", folder / "other"); });
  ExpectError(ErrorCode::kCannotWrite, {"absent"}, [&] { SyncFolder(folder / "absent"); });
  ExpectError(ErrorCode::kCannotWrite, {"absent"}, [&] { RequireSpace(folder / "absent", 1); });
  RequireSpace(folder.path(), 0);
}

TEST(FileWriterTest, BytesAreReadable) {
  EXPECT_EQ(BytesText(0), "0 bytes");
  EXPECT_EQ(BytesText(1023), "1023 bytes");
  EXPECT_EQ(BytesText(1536), "1.5 KiB (1536 bytes)");
  EXPECT_EQ(BytesText(int64_t{3} << 40), "3.0 TiB (3298534883328 bytes)");
}

}  // namespace
}  // namespace gt::file_writer_test
