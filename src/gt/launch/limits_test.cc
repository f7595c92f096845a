#include "gt/launch/limits.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/launch/host_name.h"

namespace gt::limits_test {
namespace {

TEST(Limits, MoreRanksThanCanBeConnectedAreRefused) {
  EXPECT_NO_THROW(RequireRoomForThreads(4));
  try {
    RequireRoomForThreads(1 << 20);
    FAIL() << "a million ranks would need a trillion open files";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadLaunch);
    EXPECT_NE(error.message().find("ulimit -n"), std::string::npos) << error.message();
  }
}

TEST(Limits, MessagesAboutOpenFilesAreRecognized) {
  EXPECT_TRUE(SaysTooManyFiles("[enforce fail at socket.cc:31] socket: Too many open files"));
  EXPECT_FALSE(SaysTooManyFiles("op.preamble.length <= op.nbytes. 64 vs 32"));
}

TEST(HostName, AKnownHostIsNotWaitedFor) {
  EXPECT_NO_THROW(AwaitHost("127.0.0.1", std::chrono::milliseconds(0)));
}

TEST(HostName, AnUnknownHostIsNamed) {
  try {
    AwaitHost("no-such-host.invalid", std::chrono::milliseconds(0));
    FAIL() << "names that end in .invalid never exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCannotConnect);
    EXPECT_NE(error.message().find("no-such-host.invalid"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("MASTER_ADDR"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace gt::limits_test
