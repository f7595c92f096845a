#include "gt/dist/last_resort.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace gt {

LastResort::LastResort(std::chrono::milliseconds grace,
                       std::function<void(const Error&)> last_words)
    : grace_(grace), last_words_(std::move(last_words)) {}

LastResort::~LastResort() { Disarm(); }

void LastResort::Arm(const Error& reason) {
  std::lock_guard lock(mutex_);
  reason_ = reason;
  if (!thread_.joinable() && !disarmed_) thread_ = std::thread([this] { Run(); });
}

void LastResort::Disarm() {
  {
    std::lock_guard lock(mutex_);
    disarmed_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LastResort::Run() {
  std::unique_lock lock(mutex_);
  if (wake_.wait_for(lock, grace_, [this] { return disarmed_; })) return;
  last_words_(*reason_);
  EndProcess(*reason_);
}

void EndProcess(const Error& reason) {
  std::fputs(fmt::format("gt: {}\n", reason.what()).c_str(), stderr);
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(reason.code() == ErrorCode::kInternal ? 70 : 1);
}

}  // namespace gt
