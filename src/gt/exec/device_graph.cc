#include "gt/exec/device_graph.h"

#include <dlfcn.h>

#include <filesystem>

#include "gt/base/logging.h"

namespace gt {
namespace {

using Maker = DeviceGraph* (*)();

// Next to the program, or in the lib folder of an installation.
Maker FindMaker() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {"libgt_cuda.so", "../libgt_cuda.so", "../lib/libgt_cuda.so"}) {
    fs::path path = program / place;
    if (!fs::exists(path, error)) continue;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      log::Warn("{} cannot be loaded, so steps run without CUDA graphs: {}", path.string(),
                dlerror());
      return nullptr;
    }
    return reinterpret_cast<Maker>(dlsym(library, "gt_make_device_graph"));
  }
  log::Warn("libgt_cuda.so is not there, so steps run without CUDA graphs");
  return nullptr;
}

}  // namespace

std::unique_ptr<DeviceGraph> MakeDeviceGraph() {
  static const Maker maker = FindMaker();
  return std::unique_ptr<DeviceGraph>(maker == nullptr ? nullptr : maker());
}

}  // namespace gt
