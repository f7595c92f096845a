#include "gt/storage/async_saver.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <exception>

#include "gt/base/logging.h"

namespace gt {
namespace {

// Signals ask the program to save and leave; its main thread answers them. Faults stay where they
// happen.
void LeaveSignalsToOtherThreads() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, fault);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

AsyncSaver::AsyncSaver(CheckpointStore store) : store_(std::move(store)) {}

AsyncSaver::~AsyncSaver() {
  try {
    Wait();
  } catch (const std::exception& error) {
    log::Error("{}", error.what());
  }
}

double AsyncSaver::Start(int64_t step, std::vector<TensorSource> tensors, nlohmann::json state,
                         const Retention& retention) {
  return Start([store = store_, step, sources = std::move(tensors), state = std::move(state),
                retention] { store.Save(step, sources, state, retention); });
}

double AsyncSaver::Start(std::function<void()> save) {
  const auto begin = std::chrono::steady_clock::now();
  Wait();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  under_way_ = std::async(std::launch::async, [save = std::move(save)]() mutable {
    LeaveSignalsToOtherThreads();
    // The future keeps this function until somebody waits; the tensors must not live that long.
    const std::function<void()> mine = std::move(save);
    mine();
  });
  return waited.count();
}

void AsyncSaver::Wait() {
  if (under_way_.valid()) under_way_.get();
}

bool AsyncSaver::busy() const {
  return under_way_.valid() &&
         under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

}  // namespace gt
