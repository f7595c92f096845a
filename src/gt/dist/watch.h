// Keeps an eye on the ranks of a job. Each rank publishes a sign of life with the last collective it
// began; when a collective fails, the signs of all ranks say who is to blame. One rank's error is
// every rank's: the first to fail writes it down for the others to find.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gt/base/error.h"
#include "gt/dist/flight_record.h"
#include "gt/dist/last_resort.h"

namespace gt {

struct WatchOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::chrono::milliseconds timeout{100'000};  // of a collective on a device
  // A process of its own may be ended from here when its main thread hangs; a thread may not.
  bool owns_process = false;
  std::function<void(const Error&)> last_words = [](const Error&) {};  // before such an end
};

// How an error travels to other ranks.
std::string AbortText(int64_t rank, const Error& error);
// What it is for `rank`.
Error ErrorFromAbort(const std::string& text, int64_t rank);

class Watch {
 public:
  // `store` must not be used by others while they block in it: each operation waits for the one
  // before.
  Watch(c10::intrusive_ptr<c10d::Store> store, FlightRecord& record, const WatchOptions& options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Writes down why the job ends, unless another rank was first.
  void Abort(const Error& error);
  // What the first rank to fail wrote, if one did.
  std::optional<Error> Aborted();
  // A collective of this rank failed: finds out why, tells the others and throws.
  [[noreturn]] void FailCollective(const CollectiveRecord& failed, const std::string& what);
  // Signs of life that a rank has given so far.
  int64_t BeatsOf(int64_t rank);
  // The last act of a process that gives up. The store ends with the first rank: that rank
  // stays until the others know why the job ends.
  void Leave();

 private:
  struct Sign {
    int64_t beats = 0;
    int64_t number = 0;
    std::string last;  // CollectiveRecord::Describe
    bool done = false;
    bool knows = false;  // that the job has ended, and why
  };
  void Run();
  void Stop();
  void LookAround();
  void EndSoon(const Error& reason);
  void AwaitOthers();
  void Publish();
  void LookAtDevice();
  std::optional<Sign> Read(int64_t rank);
  std::vector<std::optional<Sign>> ReadAll();
  Error Explain(const CollectiveRecord& failed, const std::string& what);

  c10::intrusive_ptr<c10d::Store> store_;
  FlightRecord& record_;
  WatchOptions options_;
  std::chrono::milliseconds interval_;
  int64_t beats_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::optional<Error> aborted_;  // guarded by mutex_
  LastResort last_resort_;
  std::thread thread_;
};

}  // namespace gt
