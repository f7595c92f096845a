#include "gt/storage/file_writer.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "gt/base/error.h"

namespace gt {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int64_t kWriteBackBytes = int64_t{32} << 20;

// What to do about it, where the reason alone does not say so.
std::string_view Advice(int error) {
  switch (error) {
    case ENOSPC:
      return "; free some space on that disk, or write to another one";
    case EDQUOT:
      return "; the quota on that disk is used up: remove files, or write to another disk";
    case EFBIG:
      return "; the process or the file system does not allow files that large (ulimit -f)";
    case EROFS:
    case EACCES:
    case EPERM:
      return "; choose a folder that can be written to";
    case ENOTDIR:
      return "; a part of the path is a file";
    default:
      return "";
  }
}

// Repeats a system call while signals interrupt it.
template <typename Call>
auto Uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

void FailWriting(const std::filesystem::path& path, std::string_view what, int error) {
  Fail(ErrorCode::kCannotWrite, "{}: {}: {}{}", path.string(), what,
       std::generic_category().message(error), Advice(error));
}

void FailWriting(const std::filesystem::path& path, std::string_view what) {
  FailWriting(path, what, errno);
}

FileWriter::FileWriter(std::filesystem::path path) : path_(std::move(path)) {
  constexpr mode_t kMode = 0666;  // what the umask allows
  fd_ = Uninterrupted(
      [this] { return open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode); });
  if (fd_ < 0) FailWriting(path_, "cannot be created");
  buffer_.reserve(kBufferBytes);
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

void FileWriter::Reserve(int64_t bytes) {
  if (bytes <= 0) return;
  if (Uninterrupted([&] { return fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes); }) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
    const int error = errno;
    FailWriting(path_, fmt::format("there is no room for {}", BytesText(bytes)), error);
  }
}

void FileWriter::Write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) Flush();
  if (bytes.size() >= kBufferBytes) {
    WriteThrough(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void FileWriter::Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }

void FileWriter::Finish() {
  Flush();
  if (Uninterrupted([this] { return fsync(fd_); }) != 0) {
    FailWriting(path_, "cannot be brought to the disk");
  }
  // On Linux the descriptor is gone whatever close says; network file systems report late errors
  // here.
  const int closed = close(std::exchange(fd_, -1));
  if (closed != 0 && errno != EINTR) {
    const int error = errno;
    unlink(path_.c_str());
    FailWriting(path_, "cannot be closed", error);
  }
}

void FileWriter::Flush() {
  WriteThrough(buffer_);
  buffer_.clear();
}

void FileWriter::WriteThrough(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = Uninterrupted(
        [&] { return write(fd_, bytes.data(), std::min<size_t>(bytes.size(), 16u << 20)); });
    if (count < 0)
      FailWriting(path_, fmt::format("cannot be written after {}", BytesText(written_)));
    bytes = bytes.subspan(static_cast<size_t>(count));
    written_ += count;
    StartWriteBack();
  }
}

// The disk works while the rest is still being written; without this, fsync would find gigabytes to
// do at the end.
void FileWriter::StartWriteBack() {
  const int64_t waiting = written_ - write_back_;
  if (waiting < kWriteBackBytes) return;
  // Only a hint: what it cannot do, fsync will do and report.
  sync_file_range(fd_, write_back_, waiting, SYNC_FILE_RANGE_WRITE);
  write_back_ = written_;
}

void SyncFolder(const std::filesystem::path& folder) {
  const int fd =
      Uninterrupted([&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) FailWriting(folder, "cannot be opened");
  const int result = Uninterrupted([fd] { return fsync(fd); });
  const int error = errno;
  close(fd);
  // Some network file systems have nothing to do for a folder and say EINVAL.
  if (result != 0 && error != EINVAL) FailWriting(folder, "cannot be brought to the disk", error);
}

void Rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    FailWriting(from, fmt::format("cannot be renamed to {}", to.string()), error);
  }
}

void CreateFolders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) FailWriting(folder, "cannot be created", error.value());
}

void RequireSpace(const std::filesystem::path& folder, int64_t bytes) {
  struct statvfs info = {};
  if (Uninterrupted([&] { return statvfs(folder.c_str(), &info); }) != 0) {
    FailWriting(folder, "cannot be examined");
  }
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  uint64_t available = 0;
  if (__builtin_mul_overflow(uint64_t{info.f_bavail}, uint64_t{info.f_frsize}, &available)) {
    available = kMost;
  }
  const auto free_bytes = static_cast<int64_t>(std::min(available, kMost));
  if (free_bytes >= bytes) return;
  Fail(ErrorCode::kCannotWrite, "{}: {} are needed, but only {} are free{}", folder.string(),
       BytesText(bytes), BytesText(free_bytes), Advice(ENOSPC));
}

std::string BytesText(int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  constexpr double kStep = 1024;
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / kStep;
  size_t unit = 0;
  for (; value >= kStep && unit + 1 < kUnits.size(); ++unit) value /= kStep;
  return fmt::format("{:.1f} {} ({} bytes)", value, kUnits[unit], bytes);
}

}  // namespace gt
