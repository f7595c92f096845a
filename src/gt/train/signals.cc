#include "gt/train/signals.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace gt {
namespace {

std::atomic<int> received_signal = 0;
std::atomic<int64_t> received_at = 0;  // nanoseconds
static_assert(std::atomic<int64_t>::is_always_lock_free, "set inside a signal handler");

constexpr std::array kWatched = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
std::mutex watches_mutex;
int watches = 0;  // one for each rank that is a thread of this process
std::array<struct sigaction, kWatched.size()> before;
struct sigaction before_pipe;

int64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void Note(int signal) {
  // Batch systems signal every process of a job, and launchers pass signals on: the same request
  // arrives twice.
  constexpr int64_t kSameRequest = 1'000'000'000;
  if (received_signal != 0 && Now() - received_at > kSameRequest) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  if (received_signal == 0) {
    received_at = Now();
    received_signal = signal;
  }
}

}  // namespace

SignalWatch::SignalWatch() {
  std::lock_guard lock(watches_mutex);
  if (watches++ > 0) return;
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = Note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i], nullptr, &before[i]);
    const bool outlives_terminal = kWatched[i] == SIGHUP && before[i].sa_handler == SIG_IGN;
    if (!outlives_terminal) sigaction(kWatched[i], &action, nullptr);
  }
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

bool IsStopSignal(int signal) {
  return std::find(kWatched.begin(), kWatched.end(), signal) != kWatched.end();
}

}  // namespace gt
