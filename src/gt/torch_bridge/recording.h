// A recording of kernels under way on this thread (exec/device_graph.h), for those who do something on the
// host whenever they launch: they do it at each replay instead.
#pragma once

#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <vector>

namespace gt {

class Recording {
 public:
  // Called on each replay, after it was launched, with an event that completes with it.
  using Replayed = std::function<void(const std::shared_ptr<c10::Event>& done)>;

  // Active on this thread until it is destroyed; one at a time.
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  // Null: kernels that are launched now run.
  static Recording* Active();

  void AtEachReplay(Replayed call) { calls_.push_back(std::move(call)); }
  std::vector<Replayed> TakeCalls() { return std::move(calls_); }

 private:
  std::vector<Replayed> calls_;
};

}  // namespace gt
