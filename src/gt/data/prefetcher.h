// Makes things ahead in a background thread, in order, a bounded number of them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace gt {

template <typename T>
class Prefetcher {
 public:
  // `make` is only called by the background thread, and not again once it has thrown.
  Prefetcher(std::function<T()> make, std::size_t depth)
      : make_(std::move(make)), depth_(depth), thread_([this] { Work(); }) {}

  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the call of `make` that is running, if any, and for no more.
  ~Prefetcher() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    thread_.join();
  }

  // What `make` threw comes after everything it returned before, and then every time.
  T Next() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !queue_.empty() || error_; });
    if (queue_.empty()) std::rethrow_exception(error_);
    T next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    room_.notify_one();
    return next;
  }

 private:
  void Work() {
    while (WaitForRoom()) {
      try {
        T made = make_();
        std::lock_guard lock(mutex_);
        queue_.push_back(std::move(made));
      } catch (...) {
        std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      ready_.notify_one();
    }
  }

  // False when there is nothing more to do.
  bool WaitForRoom() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return stopping_ || error_ || queue_.size() < depth_; });
    return !stopping_ && !error_;
  }

  std::function<T()> make_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  std::deque<T> queue_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace gt
