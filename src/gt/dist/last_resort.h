// Ends the process when it does not end by itself. On its way out of a job that failed, a rank may
// hang once more: in a store that does not answer, in a save that waits for a rank that is gone, in a
// main thread that never comes back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "gt/base/error.h"

namespace gt {

// For several threads.
class LastResort {
 public:
  // `last_words` is called before the end, on a thread of its own.
  LastResort(std::chrono::milliseconds grace, std::function<void(const Error&)> last_words);
  ~LastResort();
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

  // The grace begins with the first call; later ones only change what will be said.
  void Arm(const Error& reason);
  void Disarm();

 private:
  void Run();

  std::chrono::milliseconds grace_;
  std::function<void(const Error&)> last_words_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool disarmed_ = false;
  std::optional<Error> reason_;
  std::thread thread_;
};

// Says what main says of an error, and ends the process without waiting for anything in it.
[[noreturn]] void EndProcess(const Error& reason);

}  // namespace gt
