#include "gt/train/signals.h"

#include <atomic>
#include <csignal>

namespace gt {
namespace {

std::atomic<int> received_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "set inside a signal handler");

constexpr int kWatched[] = {SIGINT, SIGTERM};
struct sigaction before[2];

void Note(int signal) {
  received_signal = signal;
  // The next one is not caught.
  std::signal(signal, SIG_DFL);
}

}  // namespace

SignalWatch::SignalWatch() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = Note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 2; ++i) sigaction(kWatched[i], &action, &before[i]);
}

SignalWatch::~SignalWatch() {
  for (int i = 0; i < 2; ++i) sigaction(kWatched[i], &before[i], nullptr);
}

int SignalWatch::received() const { return received_signal; }

}  // namespace gt
