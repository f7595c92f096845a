// Stands in for a GPU that is not there, so that a step for one can be captured on any machine.
//
// libtorch asks about the device while a step is captured, although nothing runs on it: autograd
// wants the accelerator, its current stream and events, and the dispatcher prefers a composite
// implementation where a backend has no kernel of its own. The stand-ins answer as a machine with
// one GPU would, so that the graph is the one that such a machine gives, hash for hash.
#pragma once

#include "gt/ir/type.h"

namespace gt {

// For the thread that captures, while it lives. Does nothing where a GPU can be used, or where the
// step is for another device.
class AbsentGpu {
 public:
  explicit AbsentGpu(Device device);
  ~AbsentGpu();
  AbsentGpu(const AbsentGpu&) = delete;
  AbsentGpu& operator=(const AbsentGpu&) = delete;

 private:
  bool before_;
};

}  // namespace gt
