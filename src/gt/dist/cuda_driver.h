// Functions of the CUDA driver, found at run time: the program starts on machines without one.
#pragma once

#include <cstdint>

namespace gt {

// Null where there is no driver, or none that has the function.
void* FindInDriver(const char* name);
// Fails with NoBackend instead.
void* RequireInDriver(const char* name);

// Fails with CollectiveFailed unless the status is CUDA_SUCCESS.
void RequireDriverSuccess(int status, const char* function);

// Memory of the host that the device reads and writes under the same address; zeros. It is never
// freed: the device may look at it as long as the process lives.
std::uint32_t* AllocateSharedNumbers(std::size_t count);

}  // namespace gt
