#include "gt/fusion/kernel_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/base/user_cache.h"
#include "gt/storage/checksum.h"
#include "gt/storage/file_writer.h"

namespace gt::fusion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "gt kernel 1 ";
constexpr size_t kDigits = 16;

std::string HeadOf(std::string_view content) {
  return fmt::format("{}{}\n", kMagic, ChecksumText(Xxh64Of(content)));
}

}  // namespace

KernelStore::KernelStore(fs::path folder, int64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {}

std::optional<std::string> KernelStore::Find(const std::string& name) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path path = folder_ / name;
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    std::string file = ReadWholeFile(path);
    const size_t head = kMagic.size() + kDigits + 1;
    if (file.size() >= head &&
        file.substr(0, head) == HeadOf(std::string_view(file).substr(head))) {
      return file.substr(head);
    }
    WarnOnce(fmt::format("{} is damaged and is made again", path.string()));
    fs::remove(path, error);
  } catch (const UnreadableFile& why) {
    WarnOnce(fmt::format("{} cannot be read: {}", path.string(), why.what()));
  }
  return std::nullopt;
}

void KernelStore::Put(const std::string& name, std::string_view content) {
  if (folder_.empty()) return;
  try {
    CreateFolders(folder_);
    FileWriter file(folder_ / name);
    file.Write(HeadOf(content));
    file.Write(content);
    file.Finish();
    DropOldest();
  } catch (const Error& error) {
    WarnOnce(fmt::format("generated kernels are not kept for the next run: {}", error.message()));
  }
}

void KernelStore::Remove(const std::string& name) {
  std::error_code error;
  if (!folder_.empty()) fs::remove(folder_ / name, error);
}

void KernelStore::WarnOnce(const std::string& what) const {
  if (!warned_.exchange(true)) log::Warn("kernel cache: {}", what);
}

void KernelStore::DropOldest() {
  struct Entry {
    fs::file_time_type time;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, error)) {
    const auto bytes = static_cast<int64_t>(file.file_size(error));
    if (error) continue;  // another process has just removed it
    entries.push_back({file.last_write_time(error), bytes, file.path()});
    total += bytes;
  }
  if (total <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.time < b.time; });
  for (const Entry& entry : entries) {
    if (total <= most_bytes_ / 4 * 3) break;
    fs::remove(entry.path, error);
    total -= entry.bytes;
  }
}

fs::path DefaultKernelFolder() {
  const fs::path cache = UserCacheFolder();
  return cache.empty() ? cache : cache / "kernels";
}

}  // namespace gt::fusion
