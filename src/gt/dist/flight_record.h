// The last collectives of a rank: what was begun, for which module, and whether it is done. It is
// what a rank tells when it, or another one, stops.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gt/base/name.h"

namespace gt {

struct CollectiveRecord {
  int64_t number = 0;  // 1 for the rank's first
  Name kind;           // "all_gather"
  Name group;
  Name module;
  int64_t bytes = 0;
  std::chrono::steady_clock::time_point begun;
  std::optional<std::chrono::steady_clock::time_point> done = {};

  // "collective 57 (all_gather on 'fsdp', layers.3.attention.wqkv)"
  std::string Describe() const;
};

// For several threads.
class FlightRecord {
 public:
  explicit FlightRecord(int64_t capacity);

  int64_t Begin(Name kind, Name group, Name module, int64_t bytes);
  void End(int64_t number);
  // For collectives that complete on a device: `is_done` is asked now and then until it says so.
  void EndWhen(int64_t number, std::function<bool()> is_done);
  void Poll();

  // The last that was begun; number 0 before the first.
  CollectiveRecord Last() const;
  // Nothing when it has been overwritten.
  std::optional<CollectiveRecord> Find(int64_t number) const;
  // Everything from this number on that has not been overwritten.
  std::vector<CollectiveRecord> Since(int64_t number) const;
  // Of those being polled, the one that was begun first.
  std::optional<CollectiveRecord> OldestPolled() const;
  // Oldest first, one object a line.
  void Write(const std::string& path) const;

 private:
  CollectiveRecord& At(int64_t number) {
    return records_[static_cast<size_t>(number) % records_.size()];
  }

  mutable std::mutex mutex_;
  int64_t last_ = 0;
  std::vector<CollectiveRecord> records_;
  std::vector<std::pair<int64_t, std::function<bool()>>> polled_;  // in order of number
};

}  // namespace gt
