// From a compiled kernel to a function of the driver, and what is said where there is none.
#pragma once

#include <string>

#include "gt/fusion/kernel_compiler.h"
#include "gt/kernels/cuda_driver.h"

namespace gt {

// For the device that is current. What was kept may be of no use, although it is what was written: then it is
// made again, once. Null, with the reason, where the driver refuses.
void* LoadKernel(const CudaDriver& driver, const fusion::KernelSource& source, int architecture,
                 fusion::KernelStore& store, fusion::CompiledKernel& kernel, std::string& why);

// The reason, with what to do about it, where a driver refuses what has just been compiled.
std::string OldDriver(const std::string& why);

// One line in a process for each reason, however many kernels there are none of.
void WarnWithoutKernels(const std::string& why);

}  // namespace gt
