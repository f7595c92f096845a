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

// The number after a key, at the beginning of a line: "MemAvailable:   23456 kB".
int64_t NumberAfter(const std::string& wanted, const char* path) {
  std::ifstream file(path);
  std::string key, unit;
  int64_t number = 0;
  while (file >> key >> number && std::getline(file, unit)) {
    if (key == wanted) return number;
  }
  return kUnlimited;
}

// Without copies of files that have not been used for a while: the kernel gives them up when a
// process needs the memory.
int64_t ControlGroupUse() {
  const int64_t use = std::min(NumberIn("/sys/fs/cgroup/memory.current"),
                               NumberIn("/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  if (use == kUnlimited) return 0;
  const int64_t files =
      std::min(NumberAfter("inactive_file", "/sys/fs/cgroup/memory.stat"),
               NumberAfter("total_inactive_file", "/sys/fs/cgroup/memory/memory.stat"));
  return files == kUnlimited ? use : std::max<int64_t>(use - files, 0);
}

}  // namespace

int64_t TotalMemory() {
  int64_t installed = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return std::min(installed, ControlGroupLimit());
}

int64_t AvailableMemory() {
  const int64_t kilobytes = NumberAfter("MemAvailable:", "/proc/meminfo");
  const int64_t available = kilobytes == kUnlimited ? TotalMemory() : kilobytes * 1024;
  const int64_t limit = ControlGroupLimit();
  return limit == kUnlimited ? available : std::min(available, limit - ControlGroupUse());
}

int64_t UsableMemory(int64_t available) {
  // Processes were measured to grow by 1 to 7 % more than their tensors.
  constexpr int64_t kLeast = int64_t{512} << 20, kPercent = 8;
  return std::max<int64_t>(0, available - std::max(available / 100 * kPercent, kLeast));
}

int64_t PeakResidentMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

}  // namespace gt
