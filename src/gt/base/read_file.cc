#include "gt/base/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <system_error>

#include "gt/base/byte_text.h"

namespace gt {
namespace {

// For whoever writes into a pipe to begin, or to go on.
constexpr int kPipePatienceMilliseconds = 10'000;

[[noreturn]] void FailWithErrno() { throw UnreadableFile(std::generic_category().message(errno)); }

class OpenedFile {
 public:
  // Not blocking: opening a pipe would otherwise wait for somebody to open its other end.
  explicit OpenedFile(const std::filesystem::path& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    if (descriptor_ < 0) FailWithErrno();
  }
  ~OpenedFile() { close(descriptor_); }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;

  void CheckKind() const {
    struct stat status = {};
    if (fstat(descriptor_, &status) != 0) FailWithErrno();
    if (S_ISDIR(status.st_mode)) throw UnreadableFile("it is a folder");
  }

  // Bytes read into `buffer`; 0 at the end.
  std::size_t Read(std::span<char> buffer) const {
    while (true) {
      const ssize_t count = read(descriptor_, buffer.data(), buffer.size());
      if (count >= 0 && (count > 0 || !IsPipeWithoutWriter())) {
        return static_cast<std::size_t>(count);
      }
      if (count < 0 && errno != EAGAIN && errno != EINTR) FailWithErrno();
      Await();
    }
  }

 private:
  // A pipe whose other end nobody has opened yet reads as if it were at its end; once a writer has
  // come and gone, it has hung up.
  bool IsPipeWithoutWriter() const {
    struct stat status = {};
    if (fstat(descriptor_, &status) != 0 || !S_ISFIFO(status.st_mode)) return false;
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, 0) == 0;
  }

  void Await() const {
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPipePatienceMilliseconds) == 0) {
      throw UnreadableFile(
          fmt::format("nothing has come out of it for {} s", kPipePatienceMilliseconds / 1000));
    }
  }

  int descriptor_;
};

}  // namespace

std::string ReadWholeFile(const std::filesystem::path& path, std::size_t limit) {
  const OpenedFile file(path);
  file.CheckKind();
  std::string text;
  std::array<char, 65536> buffer;
  while (const std::size_t count = file.Read(buffer)) {
    text.append(buffer.data(), count);
    if (text.size() > limit) {
      throw UnreadableFile(
          fmt::format("it is larger than {}", ByteText(static_cast<std::int64_t>(limit))));
    }
  }
  return text;
}

}  // namespace gt
