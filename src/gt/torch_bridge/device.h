// The machine: which device to run on, and what must be set up before the first kernel.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string_view>

#include "gt/job/sections/device_choice.h"

namespace gt {

// Call once, first thing in main: before libtorch reads its environment.
void PrepareCpu();

// Sets what libtorch is to find in its environment, before a job starts its threads: they may be
// reading variables at any time, which setting one would disturb.
void PrepareEnvironment(bool deterministic);

// The device to run on. `auto` takes a GPU when a driver and libtorch's CUDA library are available.
// The CUDA library is loaded here, so that the same program starts on machines that have neither.
// With several ranks on a machine, each takes the GPU of its own number, `local_rank`.
c10::Device ChooseDevice(DeviceChoice choice, int64_t local_rank = 0);

// Whether this machine has a GPU that libtorch can use. Loads the CUDA library if so.
bool CudaUsable();

// Intra-op threads; 0 keeps libtorch's default. The number changes the order of some sums, and so
// bits.
void SetThreads(int64_t threads);

// Only kernels that give the same bits in every run; an operator without such a kernel is an error. For the
// whole process, and before its threads start: it prepares the environment as well.
void SetDeterministic(bool on, bool fill_memory = false);

// What matrix products of float32 numbers are computed in on a GPU: "float32", or "TF32", which
// rounds their operands to 10 bits (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 asks for it).
std::string_view Float32Products();

// Waits until everything queued on the device has run.
void Synchronize(c10::Device device);

// Published dense bf16 peak of the device in FLOP/s; 0 when it is not known (CPUs, other GPUs).
double PeakFlops(c10::Device device);

struct MemoryUse {
  int64_t current = 0;
  int64_t peak = 0;
};
// Bytes that tensors of this rank occupy: on the CPU those of the thread's meter
// (torch_bridge/cpu_memory.h).
MemoryUse MemoryOf(c10::Device device);
// The peak counts from now on.
void ResetPeakMemory(c10::Device device);
// Calls what takes memory of a GPU and gives it back at once; the peak is what it would be without it.
void OutsidePeak(c10::Device gpu, const std::function<void()>& body);
// Bytes that a GPU has, in use or not.
int64_t TotalMemoryOf(c10::Device gpu);
// Bytes that are free on the device: not in use by this process or any other.
int64_t AvailableMemoryOf(c10::Device device);
// Allocations of this rank that go beyond fail with libtorch's OutOfMemoryError.
void LimitMemory(c10::Device device, int64_t bytes);

}  // namespace gt
