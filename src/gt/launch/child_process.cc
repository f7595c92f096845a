#include "gt/launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string_view>
#include <system_error>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

std::string Reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void FailForLackOfFiles(int error) {
  Fail(ErrorCode::kLaunchFailed,
       "cannot make a pipe: {}; every process needs two of them, 'ulimit -n' says how many files "
       "may be open",
       Reason(error));
}

// A process without stdin, stdout or stderr gives their numbers to the next files it opens. In the
// child these would be closed on exec, or overwritten before their turn.
FileDescriptor AboveStandardOnes(int fd) {
  FileDescriptor given(fd);
  if (fd > STDERR_FILENO) return given;
  FileDescriptor moved(fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!moved.open()) FailForLackOfFiles(errno);
  return moved;
}

Pipe MakePipeWithoutWaitingReader() {
  Pipe pipe = MakePipe();
  fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

// Texts as exec takes them. All of it is made before the fork: between fork and exec, memory must
// not be allocated, since another thread may have held the lock of the allocator.
class NullTerminated {
 public:
  explicit NullTerminated(std::vector<std::string> texts) : texts_(std::move(texts)) {
    for (std::string& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  NullTerminated(const NullTerminated&) = delete;
  NullTerminated& operator=(const NullTerminated&) = delete;

  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

std::vector<std::string> EnvironmentFor(const Command& command) {
  const std::map<std::string_view, std::string_view> own(command.environment.begin(),
                                                         command.environment.end());
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!own.contains(text.substr(0, text.find('=')))) all.emplace_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

// Blocks every signal while it lives: a handler of this process must not run in the child, where it
// would report the signal to this process.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

struct ChildSide {
  const char* program;
  char** arguments;
  char** environment;
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;
  int error_fd;  // gets errno if the program does not start; closed on exec otherwise
  pid_t parent;
  const sigset_t* signals;
};

// Only calls that are safe in a signal handler from here to exec.

void ForgetHandlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0) continue;
    // What is ignored stays so over exec, as nohup wants it. SIGPIPE is ignored by this process for
    // its own sake (see SignalRelay).
    if (action.sa_handler == SIG_IGN && signal != SIGPIPE) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
}

[[noreturn]] void BecomeProgram(const ChildSide& side) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the parent died before the line above, its death will not be told any more.
  if (getppid() != side.parent) _exit(1);
  ForgetHandlers();
  const bool connected = dup2(side.stdin_fd, STDIN_FILENO) >= 0 &&
                         dup2(side.stdout_fd, STDOUT_FILENO) >= 0 &&
                         dup2(side.stderr_fd, STDERR_FILENO) >= 0;
  if (connected) {
    sigprocmask(SIG_SETMASK, side.signals, nullptr);
    execve(side.program, side.arguments, side.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(side.error_fd, &error, sizeof(error));
  _exit(127);
}

// What exec failed with, or 0.
int ReadStartError(const FileDescriptor& from) {
  int error = 0;
  ssize_t got;
  do {
    got = read(from.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : 0;
}

pid_t Fork(ChildSide& side) {
  const WithoutSignals quiet;
  side.parent = getpid();
  side.signals = &quiet.before();
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(side);
  return pid;
}

}  // namespace

void FileDescriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Pipe MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) FailForLackOfFiles(errno);
  Pipe pipe;
  pipe.write = FileDescriptor(fds[1]);
  pipe.read = AboveStandardOnes(fds[0]);
  pipe.write = AboveStandardOnes(pipe.write.Release());
  return pipe;
}

std::string SignalName(int signal) {
  switch (signal) {
#define GT_SIGNAL(name) \
  case name:            \
    return #name
    GT_SIGNAL(SIGHUP);
    GT_SIGNAL(SIGINT);
    GT_SIGNAL(SIGQUIT);
    GT_SIGNAL(SIGILL);
    GT_SIGNAL(SIGTRAP);
    GT_SIGNAL(SIGABRT);
    GT_SIGNAL(SIGBUS);
    GT_SIGNAL(SIGFPE);
    GT_SIGNAL(SIGKILL);
    GT_SIGNAL(SIGUSR1);
    GT_SIGNAL(SIGSEGV);
    GT_SIGNAL(SIGUSR2);
    GT_SIGNAL(SIGPIPE);
    GT_SIGNAL(SIGALRM);
    GT_SIGNAL(SIGTERM);
    GT_SIGNAL(SIGXCPU);
    GT_SIGNAL(SIGXFSZ);
    GT_SIGNAL(SIGSYS);
#undef GT_SIGNAL
  }
  return fmt::format("signal {}", signal);
}

std::string Describe(const ProcessEnd& end) {
  if (end.signal == 0) return fmt::format("ended with exit status {}", end.exit_status);
  return fmt::format("was killed by {}{}", SignalName(end.signal),
                     end.signal == SIGKILL ? ", perhaps because memory ran out" : "");
}

ChildProcess::ChildProcess(const Command& command) {
  NullTerminated arguments(command.arguments);
  NullTerminated environment(EnvironmentFor(command));
  Pipe out = MakePipeWithoutWaitingReader();
  Pipe err = MakePipeWithoutWaitingReader();
  Pipe start_error = MakePipe();
  const FileDescriptor nothing = AboveStandardOnes(open("/dev/null", O_RDONLY | O_CLOEXEC));

  ChildSide side = {};
  side.program = command.program.c_str();
  side.arguments = arguments.get();
  side.environment = environment.get();
  side.stdin_fd = nothing.get();
  side.stdout_fd = out.write.get();
  side.stderr_fd = err.write.get();
  side.error_fd = start_error.write.get();
  pid_ = Fork(side);
  if (pid_ < 0) {
    Fail(ErrorCode::kLaunchFailed,
         "cannot start another process: {}; 'ulimit -u' says how many there may be", Reason(errno));
  }
  start_error.write.Close();
  // The child does the same; whoever comes first, the group exists when this returns.
  setpgid(pid_, pid_);
  if (const int error = ReadStartError(start_error.read); error != 0) {
    Reap(0);
    Fail(ErrorCode::kLaunchFailed, "cannot run {}: {}", Quoted(command.program), Reason(error));
  }
  stdout_pipe = std::move(out.read);
  stderr_pipe = std::move(err.read);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : stdout_pipe(std::move(other.stdout_pipe)),
      stderr_pipe(std::move(other.stderr_pipe)),
      pid_(std::exchange(other.pid_, -1)) {}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  Signal(SIGKILL);
  Reap(0);
}

void ChildProcess::Signal(int signal) const {
  if (running()) kill(-pid_, signal);
}

std::optional<ProcessEnd> ChildProcess::TakeEnd() {
  if (!running()) return std::nullopt;
  return Reap(WNOHANG);
}

std::optional<ProcessEnd> ChildProcess::Reap(int wait_options) {
  siginfo_t info = {};
  int got;
  do {
    got = waitid(P_PID, pid_, &info, WEXITED | WNOWAIT | wait_options);
  } while (got != 0 && errno == EINTR);
  if (got != 0) {
    // Somebody else has waited for it: how it ended is lost, its number may be another's by now.
    pid_ = -1;
    return ProcessEnd{.exit_status = 255};
  }
  if (info.si_pid == 0) return std::nullopt;
  // As long as the process has not been waited for, nobody else can have its number.
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  ProcessEnd end;
  (info.si_code == CLD_EXITED ? end.exit_status : end.signal) = info.si_status;
  return end;
}

}  // namespace gt
