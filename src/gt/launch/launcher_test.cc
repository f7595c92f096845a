#include "gt/launch/launcher.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>

#include "gt/base/error.h"
#include "gt/launch/processes_test_util.h"

namespace gt::launcher_test {
namespace {

using Strings = std::vector<std::string>;

class LauncherTest : public ::testing::Test {
 protected:
  LauncherTest() {
    options_.processes = 2;
    options_.program = "/bin/sh";
    options_.process_set.stdout_fd = stdout_.fd();
    options_.process_set.stderr_fd = stderr_.fd();
    options_.process_set.grace_seconds = 0.05;
    options_.process_set.kill_seconds = 0.05;
  }

  int RunScript(const std::string& script) {
    options_.arguments = {"-c", script};
    return Launch(options_);
  }

  QuietLog quiet_;
  CollectedOutput stdout_;
  CollectedOutput stderr_;
  LaunchOptions options_;
};

TEST_F(LauncherTest, RanksFindTheirPlaceInTheEnvironment) {
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(RunScript("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
                      "$GT_RESTART_COUNT $OMP_NUM_THREADS; [ $MASTER_PORT -gt 1023 ]"),
            0);
  Strings lines = Split(stdout_.Text(), '\n');
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (Strings{"", "0 2 0 2 127.0.0.1 0 1", "[rank 1] 1 2 1 2 127.0.0.1 0 1"}));
}

TEST_F(LauncherTest, WhatTheUserSetIsKept) {
  setenv("OMP_NUM_THREADS", "3", 1);
  setenv("RANK", "77", 1);  // of a launcher around this one
  options_.processes = 1;
  EXPECT_EQ(RunScript("echo $OMP_NUM_THREADS $RANK"), 0);
  unsetenv("OMP_NUM_THREADS");
  unsetenv("RANK");
  EXPECT_EQ(stdout_.Text(), "3 0\n");
}

TEST_F(LauncherTest, RunsThisVeryProgramUnlessToldOtherwise) {
  options_.program.clear();
  options_.processes = 1;
  options_.arguments = {"--gtest_list_tests", "--gtest_filter=LauncherTest.RunsThisVery*"};
  EXPECT_EQ(Launch(options_), 0);
  EXPECT_NE(stdout_.Text().find("RunsThisVeryProgramUnlessToldOtherwise"), std::string::npos);
}

TEST_F(LauncherTest, RestartsAllRanksUntilTheyWork) {
  options_.max_restarts = 5;
  EXPECT_EQ(RunScript("[ $RANK = 0 ] && echo $GT_RESTART_COUNT\n"
                      "[ $RANK = 0 ] || [ $GT_RESTART_COUNT = 2 ] || exit 5"),
            0);
  EXPECT_EQ(stdout_.Text(), "0\n1\n2\n");
}

TEST_F(LauncherTest, GivesUpWhenTheRestartsAreUsedUp) {
  options_.max_restarts = 2;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunScript("[ $RANK = 0 ] && exec sleep 30; echo x; exit 5"), 5);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("GT-E0812"), std::string::npos) << said;
  EXPECT_NE(said.find("rank 1 was the first to fail: it ended with exit status 5"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("restarted 2 times"), std::string::npos) << said;
  EXPECT_EQ(stdout_.Text(), "[rank 1] x\n[rank 1] x\n[rank 1] x\n");
}

TEST_F(LauncherTest, TheExitStatusTellsASignal) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunScript("[ $RANK = 0 ] && exec sleep 30; kill -9 $$"), 128 + SIGKILL);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("rank 1 was the first to fail: it was "
                                                          "killed by SIGKILL"),
            std::string::npos);
}

// Whether its ranks stop as they should, with 143, or fail on the way.
TEST_F(LauncherTest, AJobThatWasAskedToStopIsNotRestarted) {
  for (const int end : {143, 4}) {
    Marks marks;
    options_.max_restarts = 5;
    std::thread user([&] {
      EXPECT_TRUE(Eventually([&] { return marks.Has("ready0") && marks.Has("ready1"); }));
      kill(getpid(), SIGTERM);
    });
    ::testing::internal::CaptureStderr();
    const int status =
        RunScript(fmt::format("trap 'exit {}' TERM; echo $RANK >> {}/starts; : > {}/ready$RANK; "
                              "while [ $GT_RESTART_COUNT = 0 ]; do sleep 0.02; done",
                              end, marks.folder(), marks.folder()));
    user.join();
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.empty(), end == 143) << said;
    EXPECT_EQ(status, end);
    EXPECT_EQ(std::filesystem::file_size(marks.folder() + "/starts"), 4U);
  }
}

TEST_F(LauncherTest, APortInUseIsRefused) {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  options_.master_port = ntohs(address.sin_port);
  try {
    RunScript("exit 0");
    ADD_FAILURE() << "took the port";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadOptionValue);
    EXPECT_NE(error.message().find(std::to_string(options_.master_port)), std::string::npos);
  }
}

TEST(ParseLaunchTest, ReadsFlagsAndCommand) {
  for (const Strings& form : {Strings{"-n", "4"}, Strings{"-n4"}, Strings{"-n=4"},
                              Strings{"--processes", "4"}, Strings{"--processes=4"}}) {
    Strings args = form;
    for (const char* arg : {"--max-restarts", "2", "--master-port=2000", "--grace-seconds", "1.5",
                            "--", "train", "-n", "--help", "--"}) {
      args.emplace_back(arg);
    }
    LaunchOptions options;
    ASSERT_TRUE(ParseLaunch(args, &options));
    EXPECT_EQ(options.processes, 4);
    EXPECT_EQ(options.max_restarts, 2);
    EXPECT_EQ(options.master_port, 2000);
    EXPECT_EQ(options.process_set.grace_seconds, 1.5);
    EXPECT_EQ(options.arguments, (Strings{"train", "-n", "--help", "--"}));
  }
}

TEST(ParseLaunchTest, Helps) {
  LaunchOptions options;
  EXPECT_FALSE(ParseLaunch(Strings{"--help"}, &options));
  EXPECT_FALSE(ParseLaunch(Strings{"-n", "2", "-h", "--", "train"}, &options));
  for (const char* part : {"--processes N", "also -n N", "--max-restarts", "--master-port",
                           "--grace-seconds", "RANK"}) {
    EXPECT_NE(LaunchHelp().find(part), std::string::npos) << part;
  }
}

TEST(ParseLaunchTest, SaysWhatIsWrong) {
  const struct {
    Strings args;
    ErrorCode code;
    std::string part;
  } cases[] = {
      {{}, ErrorCode::kMissingArgument, "a -- is missing"},
      {{"-n", "2", "train", "--training.steps", "5"}, ErrorCode::kMissingArgument, "-- is missing"},
      {{"--", "train"}, ErrorCode::kMissingArgument, "-n is missing"},
      {{"-n", "2", "--"}, ErrorCode::kMissingArgument, "no command"},
      {{"-n", "--", "train"}, ErrorCode::kMissingArgument, "--processes needs a value"},
      {{"-n", "0", "--", "train"}, ErrorCode::kOptionOutOfRange, "--processes"},
      {{"-n", "many", "--", "train"}, ErrorCode::kBadOptionValue, "--processes"},
      {{"-n", "2", "train", "--", "x"}, ErrorCode::kUnexpectedArgument, "\"train\" stands before"},
      {{"-n", "2", "--max_restarts", "1", "--", "x"}, ErrorCode::kUnknownOption, "--max-restarts"},
      {{"-n", "2", "--max-restarts", "-1", "--", "x"},
       ErrorCode::kOptionOutOfRange,
       "max-restarts"},
      {{"-n", "2", "--master-port", "70000", "--", "x"}, ErrorCode::kOptionOutOfRange, "65535"},
      {{"-n", "2", "--grace-seconds", "-1", "--", "x"}, ErrorCode::kOptionOutOfRange, "grace"},
  };
  for (const auto& [args, code, part] : cases) {
    LaunchOptions options;
    try {
      (void)ParseLaunch(args, &options);
      ADD_FAILURE() << "accepted in spite of: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(error.message().find(part), std::string::npos) << error.what();
    }
  }
}

TEST(EnablesCheckpointsTest, LooksAtFlagsAndConfigFiles) {
  Marks folder;
  const std::string on = folder.folder() + "/on.toml";
  const std::string broken = folder.folder() + "/broken.toml";
  std::ofstream(on) << "[checkpoint]\nenable = true\n";
  std::ofstream(broken) << "[checkpoint\n";
  const struct {
    Strings args;
    bool expected;
  } cases[] = {
      {{"train"}, false},
      {{"train", "--checkpoint.enable"}, true},
      {{"train", "--checkpoint.enable", "--compile.enable", "false"}, true},
      {{"train", "--checkpoint.enable", "false"}, false},
      {{"train", "--checkpoint.enable", "False"}, false},
      {{"train", "--checkpoint.no-enable"}, false},
      {{"train", "--checkpoint.enable=true"}, true},
      {{"train", "--config", on}, true},
      {{"train", "--job.config_file=" + on}, true},
      {{"train", "--checkpoint.enable=false", "--config", on}, false},
      {{"train", "--config", broken}, false},
      {{"train", "--config", "/no/such/file"}, false},
      {{"train", "--config"}, false},
  };
  for (const auto& [args, expected] : cases) {
    EXPECT_EQ(EnablesCheckpoints(args), expected) << Join(args, " ");
  }
}

}  // namespace
}  // namespace gt::launcher_test
