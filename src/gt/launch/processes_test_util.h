// What the tests of this folder need to watch processes: collected output, marks in a folder that
// say how far a shell has come, and waiting without a hang.
#pragma once

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/launch/child_process.h"
#include "gt/testing/temp_folder.h"

namespace gt {

// A file in memory.
class CollectedOutput {
 public:
  int fd() const { return fd_.get(); }
  std::string Text() const {
    std::ifstream file(fmt::format("/proc/self/fd/{}", fd()));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  FileDescriptor fd_{memfd_create("output", MFD_CLOEXEC)};
};

// A folder where processes leave marks; removed at the end.
class Marks {
 public:
  std::string folder() const { return folder_.string(); }
  bool Has(const std::string& mark) const { return std::filesystem::exists(folder_ / mark); }
  std::string Read(const std::string& mark) const {
    std::ifstream file(folder_ / mark);
    std::string text;
    std::getline(file, text);
    return text;
  }

 private:
  testing::TempFolder folder_;
};

// False if it does not come true in ten seconds, which only a broken program or machine needs.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// A dead process that nobody has waited for does not live.
inline bool Lives(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const std::size_t state = text.rfind(')') + 2;
  return text.at(state) != 'Z' && text.at(state) != 'X';
}

inline std::set<int> OpenFiles() {
  std::set<int> open;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(folder)) open.insert(fd);
  }
  closedir(folder);
  return open;
}

// The warnings that the tests provoke are no news.
class QuietLog {
 public:
  QuietLog() { log::SetLevel(log::Level::kError); }
  ~QuietLog() { log::SetLevel(before_); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  log::Level before_ = log::CurrentLevel();
};

}  // namespace gt
