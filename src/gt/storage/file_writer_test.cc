#include "gt/storage/file_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include "gt/testing/temp_folder.h"

namespace gt::file_writer_test {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;
using testing::WriteText;

// In a process of its own, since limits and signals are of the whole process.
int ExitStatusOf(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    std::signal(SIGPIPE, SIG_IGN);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// Whether writing 64 KiB to the path is the error that it should be.
bool CannotWrite(const fs::path& path) {
  try {
    WriteFile(path, std::string(1 << 16, 'x'));
  } catch (const Error& error) {
    return error.code() == ErrorCode::kCannotWrite &&
           error.message().find(path.string()) != std::string::npos;
  }
  return false;
}

void LimitFileSize(rlim_t bytes) {
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_FSIZE, &limit);
}

int64_t FilesIn(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

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
  EXPECT_EQ(ExitStatusOf([&] {
              LimitFileSize(1500000);
              FileWriter writer(folder / "f");
              try {
                writer.Write(std::string(4 << 20, 'x'));
              } catch (const Error& error) {
                return error.code() == ErrorCode::kCannotWrite &&
                       error.message().find(
                           "cannot be written after 1.4 MiB (1500000 bytes): File "
                           "too large") != std::string::npos;
              }
              return false;
            }),
            0);
}

TEST(FileWriterTest, AFullDiskDoesNotCostTheFileThatWasThere) {
  const TempFolder folder;
  WriteText(folder / "f", "what was there before");
  fs::create_symlink("f", folder / "link");
  for (const char* name : {"f", "link"}) {
    EXPECT_EQ(ExitStatusOf([&] {
                LimitFileSize(5000);
                return CannotWrite(folder / name);
              }),
              0);
    EXPECT_EQ(ReadText(folder / "f"), "what was there before");
  }
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(FilesIn(folder.path()), 2);
}

// To a file elsewhere, through another link, and to one that does not exist yet.
TEST(FileWriterTest, LinksStayLinks) {
  const TempFolder folder;
  fs::create_directory(folder / "below");
  fs::create_symlink("below/target", folder / "first");
  fs::create_symlink(folder / "first", folder / "second");
  for (const char* text : {"new", "old"}) {
    WriteFile(folder / "second", text);
    EXPECT_EQ(ReadText(folder / "below/target"), text);
  }
  EXPECT_TRUE(fs::is_symlink(folder / "first"));
  EXPECT_TRUE(fs::is_symlink(folder / "second"));
  EXPECT_EQ(FilesIn(folder / "below"), 1);
  fs::create_symlink("loop", folder / "loop");
  EXPECT_TRUE(CannotWrite(folder / "loop"));
  EXPECT_TRUE(fs::is_symlink(folder / "loop"));
}

TEST(FileWriterTest, PermissionsAreKept) {
  const TempFolder folder;
  for (const auto mode : {fs::perms{0600}, fs::perms{0755}}) {
    WriteText(folder / "f", "old");
    fs::permissions(folder / "f", mode);
    WriteFile(folder / "f", "new");
    EXPECT_EQ(fs::status(folder / "f").permissions(), mode);
  }
}

TEST(FileWriterTest, FilesThatMustNotBeWrittenAreNotReplaced) {
  const TempFolder folder;
  WriteText(folder / "f", "old");
  fs::permissions(folder / "f", fs::perms{0444});
  // In a folder in which anybody may replace files, by somebody who is not root.
  fs::permissions(folder.path(), fs::perms{0777});
  constexpr uid_t kNobody = 65534;
  EXPECT_EQ(ExitStatusOf([&] {
              return (geteuid() != 0 || seteuid(kNobody) == 0) && CannotWrite(folder / "f");
            }),
            0);
  EXPECT_EQ(ReadText(folder / "f"), "old");
}

TEST(FileWriterTest, PipesAreWrittenInPlace) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder / "link");
  for (const char* name : {"pipe", "link"}) {
    std::string read;
    std::thread reader([&] { read = ReadText(folder / "pipe"); });
    WriteFile(folder / name, "through the pipe");
    reader.join();
    EXPECT_EQ(read, "through the pipe");
    // A reader that goes away.
    EXPECT_EQ(ExitStatusOf([&] {
                const int fd = open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
                FileWriter writer(folder / name);
                close(fd);
                try {
                  writer.Write("nobody reads this");
                  writer.Finish();
                } catch (const Error& error) {
                  return error.code() == ErrorCode::kCannotWrite;
                }
                return false;
              }),
              0);
    EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
    EXPECT_TRUE(fs::is_symlink(folder / "link"));
  }
}

// A device of our own: were it removed, nobody would miss it.
TEST(FileWriterTest, DevicesAreWrittenInPlaceAndNeverRemoved) {
  const TempFolder folder;
  const dev_t null = makedev(1, 3), full = makedev(1, 7);
  if (mknod((folder / "null").c_str(), S_IFCHR | 0600, null) != 0 ||
      mknod((folder / "full").c_str(), S_IFCHR | 0600, full) != 0) {
    GTEST_SKIP() << "devices cannot be made here";
  }
  int fd = open((folder / "null").c_str(), O_WRONLY);
  if (fd < 0) GTEST_SKIP() << "devices cannot be opened here";
  close(fd);
  fs::create_symlink("full", folder / "link");
  WriteFile(folder / "null", "text");
  EXPECT_TRUE(CannotWrite(folder / "full"));
  EXPECT_TRUE(CannotWrite(folder / "link"));
  for (const char* name : {"null", "full"}) {
    EXPECT_TRUE(fs::is_character_file(folder / name)) << name;
  }
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
}

// As --output /dev/stdout > file does: what was printed before stays before it.
TEST(FileWriterTest, StandardOutputIsNotReplaced) {
  const TempFolder folder;
  EXPECT_EQ(ExitStatusOf([&] {
              const int fd = open((folder / "f").c_str(), O_WRONLY | O_CREAT, 0600);
              std::fflush(stdout);
              dup2(fd, STDOUT_FILENO);
              std::fputs("before, ", stdout);
              WriteFile("/dev/stdout", "the file, ");
              std::fputs("after", stdout);
              return std::fflush(stdout) == 0;
            }),
            0);
  EXPECT_EQ(ReadText(folder / "f"), "before, the file, after");
}

TEST(FileWriterTest, FilesThatAppearTogetherWaitForEachOther) {
  const TempFolder folder;
  FileWriter a(folder / "a");
  FileWriter b(folder / "b");
  a.Write("a");
  a.Complete();
  b.Write("b");
  b.Complete();
  EXPECT_FALSE(fs::exists(folder / "a"));
  a.Publish();
  b.Publish();
  EXPECT_EQ(ReadText(folder / "a") + ReadText(folder / "b"), "ab");
  EXPECT_EQ(FilesIn(folder.path()), 2);
}

TEST(FileWriterTest, WhatCannotBeWrittenIsFoundBefore) {
  const TempFolder folder;
  WriteText(folder / "file", "text");
  fs::create_directory(folder / "folder");
  RequireWritable(folder / "file");
  RequireWritable(folder / "new");
  RequireWritable(folder / "not/there/yet");
  EXPECT_EQ(ReadText(folder / "file"), "text");
  EXPECT_EQ(FilesIn(folder.path()), 2);
  ExpectError(ErrorCode::kCannotWrite, {"file/f", "a part of the path is a file"},
              [&] { RequireWritable(folder / "file/f"); });
  ExpectError(ErrorCode::kCannotWrite, {"file/below/f", "a part of the path is a file"},
              [&] { RequireWritable(folder / "file/below/f"); });
  ExpectError(ErrorCode::kCannotWrite, {"folder", "Is a directory"},
              [&] { RequireWritable(folder / "folder"); });
}

// Each alone would fit.
TEST(FileWriterTest, RoomIsNeededForAllThatGoesToADisk) {
  const TempFolder folder;
  fs::create_directory(folder / "a");
  fs::create_directory(folder / "b");
  const int64_t most = FreeSpace(folder.path()) / 3 * 2;
  const SpaceNeed a = {folder / "a", most, "checkpoints"}, b = {folder / "b", most, "weights"};
  RequireSpace({&a, 1});
  RequireSpace({&b, 1});
  const std::array both = {a, b};
  ExpectError(ErrorCode::kCannotWrite,
              {"are needed for checkpoints and weights, but only", "are free"},
              [&] { RequireSpace(both); });
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

}  // namespace
}  // namespace gt::file_writer_test
