#include "gt/train/signals.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

namespace gt {
namespace {

std::atomic<int> received_signal = 0;
std::atomic<int64_t> received_at = 0;  // nanoseconds
std::atomic<int64_t> step_under_way = 0;
std::atomic<bool> answers_signals = false, is_answered = false;
// The value of step_under_way while ranks agree on whether the run ends.
constexpr int64_t kDeciding = -1;
static_assert(std::atomic<int64_t>::is_always_lock_free, "set inside a signal handler");

constexpr std::array kWatched = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
std::mutex watches_mutex;
int watches = 0;  // one for each rank that is a thread of this process
std::array<struct sigaction, kWatched.size()> before;
struct sigaction before_pipe;

// Who has sent a signal lately: processes, or 0 for the terminal.
std::array<std::atomic<pid_t>, 8> senders;
std::atomic<size_t> sender_count = 0;

int64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Text that is put together in a signal handler, where nothing may be allocated.
class HandlerText {
 public:
  HandlerText& operator<<(const char* text) {
    const size_t length = std::min(std::strlen(text), text_.size() - size_);
    std::memcpy(text_.data() + size_, text, length);
    size_ += length;
    return *this;
  }
  HandlerText& operator<<(int64_t number) {
    std::array<char, 21> digits = {};
    size_t at = digits.size() - 1;
    do digits[--at] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    return *this << digits.data() + at;
  }
  void Print() const {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text_.data(), size_);
  }

 private:
  std::array<char, 256> text_ = {};
  size_t size_ = 0;
};

// Once for a signal. While ranks decide, the answer is not known yet.
void Answer() {
  const int64_t step = step_under_way;
  const int signal = received_signal;
  if (!answers_signals || signal == 0 || step == kDeciding || is_answered.exchange(true)) return;
  HandlerText text;
  text << (isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "");  // over the progress bar
  if (step > 0) {
    text << "finishing step " << step << ", then saving; ";
  } else {
    text << "saving; ";
  }
  text << (signal == SIGINT ? "press again to stop now\n" : "a second signal stops now\n");
  text.Print();
}

// Batch systems signal every process of a job, and launchers pass signals on: the same request arrives
// twice within a moment, from different senders. From one sender it is a second request.
bool IsSecondRequest(pid_t sender) {
  constexpr int64_t kSameRequest = 1'000'000'000;
  if (Now() - received_at > kSameRequest) return true;
  const size_t count = std::min(sender_count.load(), senders.size());
  for (size_t i = 0; i < count; ++i) {
    if (senders[i] == sender) return true;
  }
  const size_t place = sender_count++;
  if (place < senders.size()) senders[place] = sender;
  return false;
}

void Note(int signal, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  const pid_t sender = info == nullptr || info->si_code == SI_KERNEL ? 0 : info->si_pid;
  if (received_signal == 0) {
    received_at = Now();
    senders[0] = sender;
    sender_count = 1;
    received_signal = signal;
    Answer();
  } else if (IsSecondRequest(sender)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  errno = saved_errno;
}

}  // namespace

SignalWatch::SignalWatch(bool answers) {
  std::lock_guard lock(watches_mutex);
  if (answers) answers_signals = true;
  if (watches++ > 0) return;
  answers_signals = answers;
  received_signal = 0;
  step_under_way = 0;
  is_answered = false;
  struct sigaction action = {};
  action.sa_sigaction = Note;
  sigemptyset(&action.sa_mask);
  for (const int signal : kWatched) sigaddset(&action.sa_mask, signal);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(kWatched[i], &action, nullptr);
  }
  action.sa_flags = SA_RESTART;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &before_pipe);
}

SignalWatch::~SignalWatch() {
  std::lock_guard lock(watches_mutex);
  if (--watches > 0) return;
  for (size_t i = 0; i < kWatched.size(); ++i) sigaction(kWatched[i], &before[i], nullptr);
  sigaction(SIGPIPE, &before_pipe, nullptr);
}

int SignalWatch::received() const { return received_signal; }

void SignalWatch::SetStep(int64_t step) {
  step_under_way = step;
  Answer();  // to a signal that came while ranks decided
}

void SignalWatch::Decide() { step_under_way = kDeciding; }

bool IsStopSignal(int signal) {
  return std::find(kWatched.begin(), kWatched.end(), signal) != kWatched.end();
}

}  // namespace gt
