#include "gt/storage/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>

namespace gt {
namespace {

[[noreturn]] void FailWithErrno(ErrorCode code, const std::filesystem::path& path,
                                std::string_view what) {
  const std::string reason = std::generic_category().message(errno);
  Fail(code, "{}: {}: {}", path.string(), what, reason);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, ErrorCode on_failure) {
  // Without O_NONBLOCK, opening a named pipe would wait for somebody to write into it.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) FailWithErrno(on_failure, path, "cannot be opened");
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) FailWithErrno(on_failure, path, "cannot be examined");
  if (S_ISDIR(info.st_mode)) Fail(on_failure, "{}: is a folder, not a file", path.string());
  if (!S_ISREG(info.st_mode)) Fail(on_failure, "{}: is not a regular file", path.string());
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return;  // mmap refuses empty ranges
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) FailWithErrno(on_failure, path, "cannot be mapped into memory");
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::WillNeed(std::span<const std::byte> range) const { Advise(range, MADV_WILLNEED); }

void MappedFile::DontNeed(std::span<const std::byte> range) const { Advise(range, MADV_DONTNEED); }

void MappedFile::Advise(std::span<const std::byte> range, int advice) const {
  // Memory of somebody else must not be touched: DONTNEED would replace it by zeros.
  const std::less_equal<const std::byte*> before;
  if (range.empty() || !before(bytes_.data(), range.data()) ||
      !before(range.data() + range.size(), bytes_.data() + bytes_.size())) {
    return;
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<size_t>(range.data() - bytes_.data());
  const size_t begin_of_page = begin - begin % page;
  madvise(const_cast<std::byte*>(bytes_.data()) + begin_of_page,
          begin - begin_of_page + range.size(), advice);
}

}  // namespace gt
