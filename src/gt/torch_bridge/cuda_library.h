// The library of what needs CUDA's symbols at link time (src/gt/cuda), loaded when it is first asked
// for.
#pragma once

namespace gt {

// Null where the library or the symbol is missing; the reason is logged once.
void* FindInCudaLibrary(const char* symbol);

}  // namespace gt
