// Frees gathered parameters after a module's forward, and re-gathers them when its backward
// begins. For eager runs; in a captured step the pass reshard_after_forward does the same on the
// graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <functional>
#include <memory>
#include <vector>

#include "gt/nn/module.h"

namespace gt {

class ReshardUnit {
 public:
  using GatherAgain = std::function<at::Tensor()>;

  // Everything gathered while `module` runs is one unit.
  static void Attach(nn::Module& module);

  // Called for every gathered parameter of an eager run; belongs to the unit that runs on this thread,
  // if one does.
  static void Gathered(const at::Tensor& block, GatherAgain again);

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // gone when no backward needs it
    GatherAgain again;
  };
  using Entries = std::vector<Entry>;
  static at::Tensor Leave(const at::Tensor& out);
  static thread_local std::shared_ptr<Entries> current_;
};

}  // namespace gt
