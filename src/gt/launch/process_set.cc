#include "gt/launch/process_set.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/launch/line_merger.h"
#include "gt/launch/signal_relay.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// How long lines of other ranks wait for rank 0 to end the one it began.
constexpr auto kLineWait = std::chrono::milliseconds(100);
// Signals that come this soon after the first are the same one: a terminal, a container and a
// wrapper may each have passed it on, and nobody presses Ctrl-C twice that fast.
constexpr auto kSameSignal = std::chrono::milliseconds(100);

Time After(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// For poll and epoll_wait. Rounded up, so that the time has come when they return.
int MillisecondsUntil(std::optional<Time> time) {
  if (!time) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*time - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

void KeepEarlier(std::optional<Time>& earliest, std::optional<Time> other) {
  if (other && (!earliest || *other < *earliest)) earliest = other;
}

bool Passed(std::optional<Time> time) { return time && *time <= Clock::now(); }

enum StreamIndex : std::size_t { kStdout, kStderr, kStreams };

// One of the two places that the output goes to.
struct Stream {
  int fd;
  LineMerger merger;
  std::optional<Time> break_at = std::nullopt;  // rank 0 has until then to end its line
  bool gone = false;                            // nobody reads it any more
};

// How far the job has come on its way down.
enum class Stage { kRunning, kGrace, kTerminating, kKilled };

// Every wait of this class, for output and for room to write it, also attends to signals, to
// processes that ended, and to the time that is up. Only Turn writes.
class Job {
 public:
  Job(const std::vector<Command>& commands, const ProcessSetOptions& options);
  ProcessSetReport Run();

 private:
  void Start(const Command& command);
  void Watch(int fd, uint64_t key) const;
  void Turn();

  // Everything but output.
  void Attend();
  void OnStopSignal(int signal);
  void CollectEnded();
  void OnEnd(std::size_t rank, const ProcessEnd& end);
  void OnTimeUp();
  void SignalAll(int signal) const;
  bool EndedAsAsked(const ProcessEnd& end) const;

  FileDescriptor& PipeOf(std::size_t rank, std::size_t stream);
  // Reads once, at most `limit` bytes. False at the end of the output.
  bool Read(std::size_t rank, std::size_t stream, std::size_t limit);
  void Close(std::size_t rank, std::size_t stream);
  void FinishEnded();
  void BreakLines(bool all);
  void Write(Stream& stream, std::string_view text);
  bool AwaitRoom(const Stream& stream);
  void TellNews();

  const ProcessSetOptions& options_;
  SignalRelay signals_;
  FileDescriptor epoll_;
  std::vector<ChildProcess> children_;
  std::vector<Stream> streams_;
  std::vector<char> buffer_;

  ProcessSetReport report_;
  std::size_t running_ = 0;
  std::vector<std::size_t> ended_;  // ranks whose last output has not been read yet
  std::vector<std::string> news_;   // to be said once that output has been passed on
  Stage stage_ = Stage::kRunning;
  std::optional<Time> stage_ends_;
  std::optional<Time> first_signal_;
  bool user_killed_ = false;
};

constexpr uint64_t kSignalKey = ~uint64_t{0};
constexpr std::size_t kReadSize = std::size_t{1} << 16;

Job::Job(const std::vector<Command>& commands, const ProcessSetOptions& options)
    : options_(options), epoll_(epoll_create1(EPOLL_CLOEXEC)), buffer_(kReadSize) {
  if (!epoll_.open()) {
    Fail(ErrorCode::kLaunchFailed, "cannot watch the output of processes: {}; see 'ulimit -n'",
         std::generic_category().message(errno));
  }
  streams_.push_back({options.stdout_fd, LineMerger(commands.size())});
  streams_.push_back({options.stderr_fd, LineMerger(commands.size())});
  report_.ends.resize(commands.size());
  Watch(signals_.fd(), kSignalKey);
  children_.reserve(commands.size());
  for (const Command& command : commands) Start(command);
}

void Job::Start(const Command& command) {
  const std::size_t rank = children_.size();
  children_.emplace_back(command);
  ++running_;
  for (std::size_t stream = 0; stream < kStreams; ++stream) {
    Watch(PipeOf(rank, stream).get(), rank * kStreams + stream);
  }
}

void Job::Watch(int fd, uint64_t key) const {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    Fail(ErrorCode::kLaunchFailed, "cannot watch the output of a process: {}",
         std::generic_category().message(errno));
  }
}

ProcessSetReport Job::Run() {
  while (running_ > 0) Turn();
  FinishEnded();
  BreakLines(/*all=*/true);
  signals_.Stop();
  Attend();  // a signal that came after the last process had ended still says: no restart
  TellNews();
  return std::move(report_);
}

void Job::Turn() {
  std::optional<Time> wake = stage_ends_;
  for (const Stream& stream : streams_) KeepEarlier(wake, stream.break_at);
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, std::size(events), MillisecondsUntil(wake));
  Attend();
  for (int i = 0; i < count; ++i) {
    const uint64_t key = events[i].data.u64;
    if (key == kSignalKey) continue;
    const std::size_t rank = key / kStreams;
    const std::size_t stream = key % kStreams;
    if (!Read(rank, stream, kReadSize)) Close(rank, stream);
  }
  FinishEnded();
  BreakLines(/*all=*/false);
  TellNews();
}

void Job::Attend() {
  bool some_ended = false;
  for (const int signal : signals_.Take()) {
    if (signal == SIGCHLD) {
      some_ended = true;
    } else {
      OnStopSignal(signal);
    }
  }
  if (some_ended) CollectEnded();
  if (Passed(stage_ends_)) OnTimeUp();
}

void Job::OnStopSignal(int signal) {
  if (!first_signal_) {
    first_signal_ = Clock::now();
    report_.forwarded_signal = signal;
    SignalAll(signal);
    if (running_ > 0) {
      news_.push_back(
          fmt::format("{} was passed on to all ranks; another one kills them", SignalName(signal)));
    }
  } else if (Clock::now() - *first_signal_ > kSameSignal) {
    user_killed_ = true;
    stage_ = Stage::kKilled;
    stage_ends_.reset();
    SignalAll(SIGKILL);
  }
}

// Signals of one kind are merged while they wait, so that one SIGCHLD may stand for many: all that
// still run are asked. There are as many as one machine has GPUs or cores.
void Job::CollectEnded() {
  std::optional<std::size_t> first;
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    const std::optional<ProcessEnd> end = children_[rank].TakeEnd();
    if (!end) continue;
    OnEnd(rank, *end);
    const bool crash_beside_exits = first && end->signal != 0 && report_.ends[*first].signal == 0;
    if (!end->clean() && (!first || crash_beside_exits)) first = rank;
  }
  if (!report_.first_failure) report_.first_failure = first;
}

void Job::OnEnd(std::size_t rank, const ProcessEnd& end) {
  --running_;
  report_.ends[rank] = end;
  ended_.push_back(rank);
  if (end.clean() || EndedAsAsked(end) || stage_ != Stage::kRunning || running_ == 0) return;
  stage_ = Stage::kGrace;
  stage_ends_ = After(options_.grace_seconds);
  news_.push_back(fmt::format("rank {} {}; the others have {} s to end by themselves", rank,
                              Describe(end), options_.grace_seconds));
}

// A rank that stops because it was told to may well be done before another has saved its part.
bool Job::EndedAsAsked(const ProcessEnd& end) const {
  const int asked = report_.forwarded_signal;
  return asked != 0 && end.ShellStatus() == 128 + asked;
}

void Job::OnTimeUp() {
  if (stage_ == Stage::kGrace) {
    stage_ = Stage::kTerminating;
    stage_ends_ = After(options_.kill_seconds);
    news_.push_back(fmt::format("{} ranks still run; they get SIGTERM", running_));
    SignalAll(SIGTERM);
  } else if (stage_ == Stage::kTerminating) {
    stage_ = Stage::kKilled;
    stage_ends_.reset();
    news_.push_back(fmt::format("{} ranks do not heed SIGTERM; they are killed", running_));
    SignalAll(SIGKILL);
  }
}

void Job::SignalAll(int signal) const {
  for (const ChildProcess& child : children_) child.Signal(signal);
}

FileDescriptor& Job::PipeOf(std::size_t rank, std::size_t stream) {
  return stream == kStdout ? children_[rank].stdout_pipe : children_[rank].stderr_pipe;
}

bool Job::Read(std::size_t rank, std::size_t stream, std::size_t limit) {
  FileDescriptor& pipe = PipeOf(rank, stream);
  if (!pipe.open()) return true;
  const ssize_t got = read(pipe.get(), buffer_.data(), std::min(limit, buffer_.size()));
  if (got < 0) return true;  // nothing there yet
  const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(got));
  Write(streams_[stream], streams_[stream].merger.Add(rank, bytes));
  return got > 0;
}

void Job::Close(std::size_t rank, std::size_t stream) {
  if (!PipeOf(rank, stream).open()) return;
  PipeOf(rank, stream).Close();  // epoll forgets it by that
  Write(streams_[stream], streams_[stream].merger.Finish(rank));
}

// What a process printed before it ended is in its pipes. Their end is not waited for: a process
// that was started by it and left its group may hold them open for ever.
void Job::FinishEnded() {
  // By index: writing may find that more have ended.
  for (std::size_t i = 0; i < ended_.size(); ++i) {
    const std::size_t rank = ended_[i];
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      int left = 0;
      if (PipeOf(rank, stream).open()) ioctl(PipeOf(rank, stream).get(), FIONREAD, &left);
      for (; left > 0; left -= static_cast<int>(kReadSize)) {
        Read(rank, stream, static_cast<std::size_t>(left));
      }
      Close(rank, stream);
    }
  }
  ended_.clear();
}

void Job::BreakLines(bool all) {
  for (Stream& stream : streams_) {
    if (all || Passed(stream.break_at)) Write(stream, stream.merger.Break());
    if (!stream.merger.waiting()) {
      stream.break_at.reset();
    } else if (!stream.break_at) {
      stream.break_at = Clock::now() + kLineWait;
    }
  }
}

void Job::Write(Stream& stream, std::string_view text) {
  while (!text.empty() && !stream.gone && AwaitRoom(stream)) {
    // A pipe with room takes this much in one write; more could block.
    const std::size_t size = std::min<std::size_t>(text.size(), PIPE_BUF);
    const ssize_t written = write(stream.fd, text.data(), size);
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      stream.gone = true;
      news_.push_back(
          fmt::format("the output of the ranks cannot be written any more: {}; the job "
                      "goes on without",
                      std::generic_category().message(errno)));
    }
  }
}

// False once the job was killed: whoever does that does not want to wait for a stuck reader.
bool Job::AwaitRoom(const Stream& stream) {
  while (!user_killed_) {
    pollfd fds[] = {{stream.fd, POLLOUT, 0}, {signals_.fd(), POLLIN, 0}};
    poll(fds, std::size(fds), MillisecondsUntil(stage_ends_));
    Attend();
    if (fds[0].revents != 0) return !user_killed_;
  }
  return false;
}

void Job::TellNews() {
  for (const std::string& line : std::exchange(news_, {})) log::Warn("{}", line);
}

}  // namespace

int ProcessSetReport::ExitStatus() const {
  return first_failure ? ends[*first_failure].ShellStatus() : 0;
}

ProcessSetReport RunProcessSet(const std::vector<Command>& commands,
                               const ProcessSetOptions& options) {
  return Job(commands, options).Run();
}

}  // namespace gt
