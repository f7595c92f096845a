#include "gt/torch_bridge/cuda_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "gt/base/logging.h"

namespace gt {
namespace {

// Next to the program, or in the lib folder of an installation.
void* Load() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {"libgt_cuda.so", "../libgt_cuda.so", "../lib/libgt_cuda.so"}) {
    fs::path path = program / place;
    if (!fs::exists(path, error)) continue;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      log::Warn("{} cannot be loaded, so there are no CUDA graphs and no nccl: {}", path.string(),
                dlerror());
    }
    return library;
  }
  log::Warn("libgt_cuda.so is not there, so there are no CUDA graphs and no nccl");
  return nullptr;
}

}  // namespace

void* FindInCudaLibrary(const char* symbol) {
  static void* const library = Load();
  return library == nullptr ? nullptr : dlsym(library, symbol);
}

}  // namespace gt
