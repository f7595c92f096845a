// Saves checkpoints in the background while training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <vector>

#include "gt/storage/checkpoint_store.h"

namespace gt {

// One save at a time. All calls come from one thread.
class AsyncSaver {
 public:
  explicit AsyncSaver(CheckpointStore store);
  // Waits. An error that nobody asked for is logged.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Waits for a save still under way, then starts this one and returns the seconds it waited. What
  // the sources read must not change until the save is done; the sources are destroyed then, so
  // they may own it. Throws the error of the save before, in which case this one is not started.
  double Start(int64_t step, std::vector<TensorSource> tensors, nlohmann::json state,
               const Retention& retention);

  // The same for a save of another form, such as one rank's part of a save by many: `save` runs in
  // the background, and is destroyed when it has.
  double Start(std::function<void()> save);

  // Returns when nothing is under way. Throws the error of the last save, once.
  void Wait();

  bool busy() const;

 private:
  CheckpointStore store_;
  std::future<void> under_way_;
};

}  // namespace gt
