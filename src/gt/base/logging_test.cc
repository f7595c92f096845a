#include "gt/base/logging.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gt::logging_test {
namespace {

class LoggingTest : public ::testing::Test {
 protected:
  ~LoggingTest() override { log::SetLevel(before_); }
  log::Level before_ = log::CurrentLevel();
};

using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

TEST_F(LoggingTest, WritesLevelAndMessageToStderrOnly) {
  log::SetLevel(log::Level::kInfo);
  CaptureStderr();
  CaptureStdout();
  log::Info("{} of {} with braces {{}}", 1, 2);
  EXPECT_EQ(GetCapturedStdout(), "");
  const std::string line = GetCapturedStderr();
  EXPECT_NE(line.find("info: 1 of 2 with braces {}\n"), std::string::npos) << line;
}

// A message is text by the time it reaches the back end; braces in it must not be formatted twice.
TEST_F(LoggingTest, ArgumentsAreNeverTakenForFormats) {
  CaptureStderr();
  log::Error("{}", "{} {0} %v");
  EXPECT_NE(GetCapturedStderr().find("{} {0} %v"), std::string::npos);
}

TEST_F(LoggingTest, LowerLevelsAreSilent) {
  log::SetLevel(log::Level::kWarn);
  CaptureStderr();
  log::Debug("a");
  log::Info("b");
  log::Warn("c");
  log::Error("d");
  const std::string lines = GetCapturedStderr();
  EXPECT_EQ(lines.find(": a"), std::string::npos);
  EXPECT_EQ(lines.find(": b"), std::string::npos);
  EXPECT_NE(lines.find(": c"), std::string::npos);
  EXPECT_NE(lines.find(": d"), std::string::npos);
}

// The logger reads the environment once, so these run it in a process of its own.
class LoggingDeathTest : public ::testing::Test {
 protected:
  LoggingDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  ~LoggingDeathTest() override { unsetenv("GT_LOG"); }
};

TEST_F(LoggingDeathTest, TheEnvironmentSetsTheLevel) {
  setenv("GT_LOG", "error", 1);
  EXPECT_EXIT(std::exit(log::CurrentLevel() == log::Level::kError ? 0 : 1),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(LoggingDeathTest, AMistypedEnvironmentVariableIsSaidAndIgnored) {
  setenv("GT_LOG", "wran", 1);
  EXPECT_EXIT(std::exit(log::CurrentLevel() == log::Level::kInfo ? 0 : 1),
              ::testing::ExitedWithCode(0),
              "GT_LOG=.wran. is ignored: expected one of debug, info, warn, error; did you mean "
              "warn");
}

}  // namespace
}  // namespace gt::logging_test
