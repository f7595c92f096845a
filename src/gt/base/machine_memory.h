// The memory of this machine, as far as this process may use it.
#pragma once

#include <cstdint>

namespace gt {

// Bytes that processes may fill in all: what is installed, or less where a control group says so.
int64_t TotalMemory();
// Bytes that can still be filled without anything being killed or swapped out.
int64_t AvailableMemory();
// What of `available` bytes tensors may fill: the kernel kills a process that takes the last of them,
// without a word. The rest is for what a program holds besides tensors (threads, batches, holes
// between them) and for the rest of the machine.
int64_t UsableMemory(int64_t available);

inline int64_t Gibibytes(double count) {
  return static_cast<int64_t>(count * static_cast<double>(int64_t{1} << 30));
}

// Most bytes that this process has had in memory at a time.
int64_t PeakResidentMemory();

}  // namespace gt
