#include "gt/launch/limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "gt/base/error.h"

namespace gt {
namespace {

// Every pair of ranks has a connection, both ends of which are open here.
constexpr int64_t FilesOfOneGroup(int64_t ranks) { return ranks * (ranks - 1); }

// Of the program itself, with room for data and checkpoints.
constexpr int64_t kOtherFiles = 64;

// Raised to what the system allows at the most.
int64_t OpenFilesLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kOtherFiles;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  constexpr rlim_t kMost = INT64_MAX;  // RLIM_INFINITY is beyond it
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMost));
}

}  // namespace

void RequireRoomForThreads(int64_t ranks) {
  const int64_t limit = OpenFilesLimit(), needed = FilesOfOneGroup(ranks) + kOtherFiles;
  if (needed <= limit) return;
  Fail(
      ErrorCode::kBadLaunch,
      "--ranks {}: as threads of one process they need at least {} open files for their "
      "connections, and the limit is {} (ulimit -n); use fewer ranks, or one process for each with "
      "gt launch; --comm.backend fake and emulated pretend any number",
      ranks, needed, limit);
}

bool SaysTooManyFiles(std::string_view message) {
  return message.find(std::generic_category().message(EMFILE)) != std::string_view::npos;
}

}  // namespace gt
