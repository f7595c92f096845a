#include "gt/base/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace gt::read_file_test {
namespace {

class ReadFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string ProblemOf(const std::filesystem::path& path, std::size_t limit) {
    try {
      ReadWholeFile(path, limit);
    } catch (const UnreadableFile& problem) {
      return problem.what();
    }
    return "";
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("gt_read_file_" + std::to_string(::getpid()));
};

TEST_F(ReadFileTest, FilesAreReadToTheirEnd) {
  const std::string text(100'000, 'x');
  std::ofstream(folder_ / "file") << text;
  EXPECT_EQ(ReadWholeFile(folder_ / "file"), text);
  EXPECT_EQ(ReadWholeFile("/dev/null"), "");
}

TEST_F(ReadFileTest, WhatIsNoFileOrNeverEndsIsRefused) {
  constexpr std::size_t kLimit = 1000;
  EXPECT_EQ(ProblemOf(folder_, kLimit), "it is a folder");
  EXPECT_EQ(ProblemOf("/dev/zero", kLimit), "it is larger than 1000 B");
  EXPECT_EQ(ProblemOf(folder_ / "missing", kLimit), "No such file or directory");
}

// As of `--config <(...)`: the writer may come later, and pause.
TEST_F(ReadFileTest, PipesAreReadUntilTheirWriterLeaves) {
  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::ofstream file(pipe);
    file << "a = 1\n" << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    file << "b = 2\n";
  });
  EXPECT_EQ(ReadWholeFile(pipe), "a = 1\nb = 2\n");
  writer.join();
}

}  // namespace
}  // namespace gt::read_file_test
