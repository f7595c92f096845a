#include "gt/base/workers.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace gt {
namespace {

std::atomic<int64_t> worker_limit = 0;
std::atomic<int64_t> helpers_running = 0;

int64_t Cores() { return std::max<int64_t>(std::thread::hardware_concurrency(), 1); }

// Helper threads of one call. Hundreds of ranks that are threads need none: they fill the cores
// themselves.
class Helpers {
 public:
  explicit Helpers(int64_t items) {
    const int64_t limit = worker_limit, cores = Cores();
    const int64_t wanted = std::min(items, limit > 0 ? limit : cores) - 1;
    const int64_t most = 8 * std::max(cores, limit);
    const int64_t before = helpers_running.fetch_add(std::max<int64_t>(wanted, 0));
    count_ = std::max<int64_t>(wanted, 0);
    const int64_t granted = std::clamp<int64_t>(most - before, 0, count_);
    helpers_running -= count_ - granted;
    count_ = granted;
  }
  ~Helpers() { helpers_running -= count_; }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
};

}  // namespace

std::optional<int64_t> WorkItems::Next() {
  const int64_t item = next_++;
  if (item >= count_) return std::nullopt;
  return item;
}

void RunWorkers(int64_t items, const std::function<void(WorkItems& items)>& worker) {
  if (items <= 0) return;
  WorkItems work(items);
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      worker(work);
    } catch (...) {
      work.Stop();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    const Helpers helpers(items);
    std::vector<std::jthread> threads;
    for (int64_t i = 0; i < helpers.count(); ++i) threads.emplace_back(run);
    run();
    threads.clear();  // waits for them
  }
  if (failure) std::rethrow_exception(failure);
}

void LimitWorkers(int64_t threads) { worker_limit = threads; }

}  // namespace gt
