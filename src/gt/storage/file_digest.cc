#include "gt/storage/file_digest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "gt/storage/checksum.h"

namespace gt {
namespace {

constexpr int64_t kBlock = 16 << 10, kReadAtOnce = 1 << 20;
// Of one file. More blocks of a large file find no more accidents.
constexpr int64_t kMostOfOneFile = 4 << 20;

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}  // a pipe would wait
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // -1: it is no regular file.
  int64_t Size() const {
    struct stat status = {};
    if (fd_ < 0 || fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) return -1;
    return status.st_size;
  }

  // False if the file ends before, or cannot be read.
  bool Read(int64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t read = pread(fd_, bytes.data(), bytes.size(), offset);
      if (read < 0 && errno == EINTR) continue;
      if (read <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(read));
      offset += read;
    }
    return true;
  }

 private:
  const int fd_;
};

class Digester {
 public:
  Digester(DigestOf what, int64_t share) : what_(what), share_(share) {}

  FileDigest Digest(const std::filesystem::path& path) {
    const OpenFile file(path);
    FileDigest digest{.size = file.Size()};
    if (digest.size < 0) return digest;
    hash_ = Xxh64();
    const bool is_whole = what_ == DigestOf::kWhole || digest.size <= share_;
    if (!(is_whole ? AddRange(file, 0, digest.size) : AddSamples(file, digest.size))) return {};
    digest.hash = hash_.Digest();
    return digest;
  }

 private:
  bool AddRange(const OpenFile& file, int64_t from, int64_t to) {
    for (; from < to; from += kReadAtOnce) {
      buffer_.resize(static_cast<size_t>(std::min(kReadAtOnce, to - from)));
      if (!file.Read(from, buffer_)) return false;
      hash_.Update(buffer_);
    }
    return true;
  }

  // The first block, the last one, and others at equal distances.
  bool AddSamples(const OpenFile& file, int64_t size) {
    const int64_t block = std::min(kBlock, share_ / 2), blocks = share_ / block;
    for (int64_t i = 0; i < blocks; ++i) {
      // A file of 2^63 bytes would overflow a product of sizes.
      const auto at =
          static_cast<int64_t>(static_cast<double>(size - block) * static_cast<double>(i) /
                               static_cast<double>(blocks - 1));
      const int64_t offset = i + 1 == blocks ? size - block : std::min(at, size - block);
      if (!AddRange(file, offset, offset + block)) return false;
    }
    return true;
  }

  const DigestOf what_;
  const int64_t share_;  // bytes to read of a file
  Xxh64 hash_;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::vector<FileDigest> DigestFiles(std::span<const std::filesystem::path> paths, DigestOf what) {
  constexpr int64_t kLeastOfOneFile = 8 << 10;
  constexpr size_t kThreads = 8, kFilesPerThread = 16;
  const int64_t share = std::clamp(kSampledBytes / std::max<int64_t>(1, std::ssize(paths)),
                                   kLeastOfOneFile, kMostOfOneFile);
  std::vector<FileDigest> digests(paths.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    Digester digester(what, share);
    for (size_t i = next++; i < paths.size(); i = next++) digests[i] = digester.Digest(paths[i]);
  };
  const size_t helpers = std::min(kThreads - 1, paths.size() / kFilesPerThread);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < helpers; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return digests;
}

}  // namespace gt
