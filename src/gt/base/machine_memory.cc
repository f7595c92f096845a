#include "gt/base/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace gt {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A number in a file of its own; "max", or a file that is not there, is no limit.
int64_t NumberIn(const char* path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnlimited;
}

int64_t ControlGroupLimit() {
  return std::min(NumberIn("/sys/fs/cgroup/memory.max"),
                  NumberIn("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
}

int64_t ControlGroupUse() {
  int64_t use = std::min(NumberIn("/sys/fs/cgroup/memory.current"),
                         NumberIn("/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  return use == kUnlimited ? 0 : use;
}

// "MemAvailable:   23456 kB" of /proc/meminfo.
int64_t MemInfo(const std::string& wanted) {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kilobytes = 0;
  while (file >> key >> kilobytes && std::getline(file, unit)) {
    if (key == wanted) return kilobytes * 1024;
  }
  return kUnlimited;
}

}  // namespace

int64_t TotalMemory() {
  int64_t installed = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return std::min(installed, ControlGroupLimit());
}

int64_t AvailableMemory() {
  int64_t available = MemInfo("MemAvailable:");
  if (available == kUnlimited) available = TotalMemory();
  int64_t limit = ControlGroupLimit();
  // What the group uses includes caches of files, which would be given up: this is on the safe side.
  return limit == kUnlimited ? available : std::min(available, limit - ControlGroupUse());
}

int64_t PeakResidentMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

}  // namespace gt
