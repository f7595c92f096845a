#include "gt/storage/folder_claim.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "gt/testing/temp_folder.h"

namespace gt {
namespace {

using testing::ExpectError;
using testing::TempFolder;
using testing::WriteText;

TEST(FolderClaimTest, TheSecondIsToldWhoHasTheFolder) {
  const TempFolder folder;
  std::optional<FolderClaim> first(folder / "run");
  ExpectError(ErrorCode::kFolderInUse,
              {"run is in use by another run", "process " + std::to_string(getpid()) + " on ",
               ", since 20", "--dump_folder"},
              [&] { FolderClaim(folder / "run"); });
  first.reset();
  FolderClaim again(folder / "run");
}

// Whatever a process that died has left there.
TEST(FolderClaimTest, TheClaimOfADeadProcessIsNone) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    FolderClaim claim(folder.path());
    [[maybe_unused]] const ssize_t said = write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ExpectError(ErrorCode::kFolderInUse, {"process " + std::to_string(child)},
              [&] { FolderClaim(folder.path()); });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  FolderClaim claim(folder.path());
  close(ready[0]);
  close(ready[1]);
}

TEST(FolderClaimTest, AFolderThatCannotBeMadeIsAnError) {
  const TempFolder folder;
  WriteText(folder / "file", "");
  ExpectError(ErrorCode::kCannotWrite, {"file/run", "a part of the path is a file"},
              [&] { FolderClaim(folder / "file/run"); });
}

}  // namespace
}  // namespace gt
