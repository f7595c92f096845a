#include "gt/storage/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/text.h"

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
    case EISDIR:
      return "; name a file in it, or remove it";
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

bool StatOf(const std::filesystem::path& path, struct stat* info) {
  return Uninterrupted([&] { return stat(path.c_str(), info); }) == 0;
}

// What the path names with all links followed, also one to a file that does not exist yet.
std::filesystem::path BehindLinks(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) FailWriting(path, "cannot be followed", error.value());
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

// Names no other writer of any process uses. A long name is cut: the whole must still be a name.
std::filesystem::path TemporaryBeside(const std::filesystem::path& target) {
  static std::atomic<int> count = 0;
  constexpr size_t kMostOfName = 200;
  return target.parent_path() / fmt::format(".{}.tmp-{}-{}",
                                            target.filename().string().substr(0, kMostOfName),
                                            getpid(), ++count);
}

// The descriptor of this process's standard output or error, if that is the file; else -1. The shell
// has it open: what is written must follow what was printed, and a new file would not be seen.
int StandardStream(const struct stat& info) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own = {};
    if (fstat(fd, &own) == 0 && own.st_dev == info.st_dev && own.st_ino == info.st_ino) return fd;
  }
  return -1;
}

// The new file gets what a program that wrote into the old one would have left as it is. Not being
// allowed to give a file away is no failure.
void KeepOwnerAndMode(int fd, const struct stat& before) {
  [[maybe_unused]] const int owned = fchown(fd, before.st_uid, before.st_gid);
  fchmod(fd, before.st_mode & 07777);
}

}  // namespace

// ".TARGET.tmp-PROCESS-NUMBER", as TemporaryBeside makes it.
bool IsTemporaryOf(std::string_view name, std::string_view target) {
  const std::string start = fmt::format(".{}.tmp-", target);
  if (!name.starts_with(start)) return false;
  const std::string_view numbers = name.substr(start.size());
  const size_t dash = numbers.find('-');
  return dash != std::string_view::npos && dash > 0 && dash + 1 < numbers.size() &&
         numbers.find_first_not_of("0123456789-") == std::string_view::npos &&
         numbers.find('-', dash + 1) == std::string_view::npos;
}

void FailWriting(const std::filesystem::path& path, std::string_view what, int error) {
  Fail(ErrorCode::kCannotWrite, "{}: {}: {}{}", path.string(), what,
       std::generic_category().message(error), Advice(error));
}

void FailWriting(const std::filesystem::path& path, std::string_view what) {
  FailWriting(path, what, errno);
}

FileWriter::FileWriter(std::filesystem::path path)
    : path_(std::move(path)), target_(BehindLinks(path_)) {
  Open();
  buffer_.reserve(kBufferBytes);
}

void FileWriter::Open() {
  constexpr mode_t kMode = 0666;  // what the umask allows
  struct stat before = {};
  const bool replaces = StatOf(path_, &before);
  if (!replaces && errno != ENOENT) FailWriting(path_, "cannot be created");
  if (replaces && S_ISDIR(before.st_mode)) FailWriting(path_, "cannot be written", EISDIR);
  const int stream = replaces ? StandardStream(before) : -1;
  if (stream >= 0) {
    std::fflush(stream == STDOUT_FILENO ? stdout : stderr);
    fd_ = fcntl(stream, F_DUPFD_CLOEXEC, 0);
  } else if (replaces && !S_ISREG(before.st_mode)) {
    fd_ = Uninterrupted([this] { return open(path_.c_str(), O_WRONLY | O_CLOEXEC); });
  } else {
    // A folder in which files can be replaced must not make a file writable that is not.
    if (replaces && faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) {
      FailWriting(path_, "cannot be written");
    }
    do {  // until the name is free: a process that died may have had this one's number
      temporary_ = TemporaryBeside(target_);
      fd_ = Uninterrupted(
          [&] { return open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode); });
    } while (fd_ < 0 && errno == EEXIST);
    if (fd_ >= 0 && replaces) KeepOwnerAndMode(fd_, before);
  }
  if (fd_ < 0) FailWriting(path_, "cannot be created");
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void FileWriter::Reserve(int64_t bytes) {
  if (bytes <= 0) return;
  if (Uninterrupted([&] { return fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes); }) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
    const int error = errno;
    FailWriting(path_, fmt::format("there is no room for {}", ExactByteText(bytes)), error);
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

void FileWriter::Complete() {
  Flush();
  // Pipes and terminals have no disk behind them.
  if (Uninterrupted([this] { return fsync(fd_); }) != 0 && errno != EINVAL && errno != EROFS) {
    FailWriting(path_, "cannot be brought to the disk");
  }
  // On Linux the descriptor is gone whatever close says; network file systems report late errors
  // here.
  const int closed = close(std::exchange(fd_, -1));
  if (closed != 0 && errno != EINTR) FailWriting(path_, "cannot be closed");
  buffer_ = {};  // many complete files may wait to be published
}

void FileWriter::Publish() {
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), target_.c_str()) != 0) FailWriting(path_, "cannot be replaced");
  temporary_.clear();
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
      FailWriting(path_, fmt::format("cannot be written after {}", ExactByteText(written_)));
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

void WriteFile(const std::filesystem::path& path, std::string_view text) {
  FileWriter writer(path);
  writer.Write(text);
  writer.Finish();
}

void RequireWritable(const std::filesystem::path& path) {
  struct stat info = {};
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty() && !StatOf(folder, &info) && errno == ENOENT) {
    RequireWritable(folder);  // whether it can be made
  } else if (StatOf(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    // Opening a pipe would wait for its reader.
    if (faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) {
      FailWriting(path, "cannot be written");
    }
  } else {
    FileWriter probe(path);
  }
}

int64_t FreeSpace(const std::filesystem::path& folder) {
  struct statvfs info = {};
  if (Uninterrupted([&] { return statvfs(folder.c_str(), &info); }) != 0) {
    FailWriting(folder, "cannot be examined");
  }
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  uint64_t available = 0;
  if (__builtin_mul_overflow(uint64_t{info.f_bavail}, uint64_t{info.f_frsize}, &available)) {
    available = kMost;
  }
  return static_cast<int64_t>(std::min(available, kMost));
}

void RequireSpace(const std::filesystem::path& folder, int64_t bytes) {
  const SpaceNeed need = {.folder = folder, .bytes = bytes, .what = ""};
  RequireSpace({&need, 1});
}

void RequireSpace(std::span<const SpaceNeed> needs) {
  struct Disk {
    std::filesystem::path folder;
    int64_t bytes = 0;
    std::vector<std::string> what;
  };
  std::map<dev_t, Disk> disks;
  for (const SpaceNeed& need : needs) {
    struct stat info = {};
    if (!StatOf(need.folder, &info)) FailWriting(need.folder, "cannot be examined");
    Disk& disk = disks[info.st_dev];
    if (disk.folder.empty()) disk.folder = need.folder;
    if (__builtin_add_overflow(disk.bytes, need.bytes, &disk.bytes)) {
      disk.bytes = std::numeric_limits<int64_t>::max();
    }
    if (!need.what.empty() && need.bytes > 0) disk.what.push_back(need.what);
  }
  for (const auto& [device, disk] : disks) {
    const int64_t free_bytes = FreeSpace(disk.folder);
    if (free_bytes >= disk.bytes) continue;
    Fail(ErrorCode::kCannotWrite, "{}: {} are needed{}, but only {} are free{}",
         disk.folder.string(), ExactByteText(disk.bytes),
         disk.what.empty() ? "" : fmt::format(" for {}", Join(disk.what, " and ")),
         ExactByteText(free_bytes), Advice(ENOSPC));
  }
}

}  // namespace gt
