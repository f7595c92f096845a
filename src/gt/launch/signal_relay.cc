#include "gt/launch/signal_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "gt/base/error.h"

namespace gt {
namespace {

std::atomic<int> relay_fd = -1;
static_assert(std::atomic<int>::is_always_lock_free, "read inside a signal handler");

void Report(int signal) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // A full pipe loses nothing that matters: it says "look", and thousands of signals are in it.
  [[maybe_unused]] const ssize_t written = write(relay_fd, &byte, 1);
  errno = error;
}

bool Ignored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalRelay::SignalRelay() : pipe_(MakePipe()) {
  GT_CHECK(relay_fd == -1, "signals are relayed to one place at a time");
  fcntl(pipe_.read.get(), F_SETFL, O_NONBLOCK);
  fcntl(pipe_.write.get(), F_SETFL, O_NONBLOCK);
  relay_fd = pipe_.write.get();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE}) {
    if ((signal == SIGINT || signal == SIGHUP) && Ignored(signal)) continue;
    struct sigaction action = {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = signal == SIGPIPE ? SIG_IGN : Report;
    action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
    Before before = {signal, {}};
    sigaction(signal, &action, &before.action);
    before_.push_back(before);
  }
}

SignalRelay::~SignalRelay() {
  Stop();
  relay_fd = -1;
}

void SignalRelay::Stop() {
  for (const Before& before : before_) sigaction(before.signal, &before.action, nullptr);
  before_.clear();
}

std::vector<int> SignalRelay::Take() {
  std::vector<int> signals;
  unsigned char bytes[256];
  ssize_t got;
  while ((got = read(fd(), bytes, sizeof(bytes))) > 0)
    signals.insert(signals.end(), bytes, bytes + got);
  return signals;
}

}  // namespace gt
