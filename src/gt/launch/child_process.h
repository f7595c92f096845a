// One process that was started by this one, with its output in pipes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gt {

// Closes a file descriptor when it goes away.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

// Both ends are closed on exec. LaunchFailed if the process has too many files open.
Pipe MakePipe();

// A program with its arguments and what its environment has beyond, or instead of, this process's.
struct Command {
  std::string program;                 // a path; PATH is not searched
  std::vector<std::string> arguments;  // with argv[0]
  std::vector<std::pair<std::string, std::string>> environment;
};

struct ProcessEnd {
  int exit_status = 0;
  int signal = 0;  // that killed it, or 0

  bool clean() const { return exit_status == 0 && signal == 0; }
  // As a shell has it: the status, or 128 + signal.
  int ShellStatus() const { return signal != 0 ? 128 + signal : exit_status; }
};

// "ended with exit status 3", "was killed by SIGSEGV".
std::string Describe(const ProcessEnd& end);
// "SIGTERM", or "signal 99" for one without a name.
std::string SignalName(int signal);

class ChildProcess {
 public:
  // Starts the command as leader of a process group of its own. The kernel kills it when the thread
  // that called this dies. LaunchFailed if it cannot be started.
  explicit ChildProcess(const Command& command);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills what still runs.
  ~ChildProcess();

  bool running() const { return pid_ > 0; }
  // To the process and everything in its group. Nothing happens once it has ended.
  void Signal(int signal) const;
  // How it ended, if it has; told once. What is left of its group is then killed.
  std::optional<ProcessEnd> TakeEnd();

  // Read ends; reading never blocks.
  FileDescriptor stdout_pipe;
  FileDescriptor stderr_pipe;

 private:
  std::optional<ProcessEnd> Reap(int wait_options);

  pid_t pid_ = -1;
};

}  // namespace gt
