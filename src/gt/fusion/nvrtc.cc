#include "gt/fusion/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "gt/base/text.h"

namespace gt::fusion {

// As nvrtc.h declares them; results are 0 for success.
struct Nvrtc::Functions {
  int (*version)(int*, int*) = nullptr;
  int (*create)(void**, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*compile)(void*, int, const char* const*) = nullptr;
  int (*cubin_size)(void*, size_t*) = nullptr;
  int (*cubin)(void*, char*) = nullptr;
  int (*log_size)(void*, size_t*) = nullptr;
  int (*log)(void*, char*) = nullptr;
  int (*destroy)(void**) = nullptr;
};

namespace {

namespace fs = std::filesystem;

// Beside the CUDA libraries that are in the process already, which have the version that libtorch was
// built with, then wherever the system has one.
std::vector<std::string> Candidates() {
  std::vector<std::string> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& found = *static_cast<std::vector<std::string>*>(data);
        const fs::path path(info->dlpi_name);
        const std::string name = path.filename().string();
        if (name.starts_with("libcudart.so")) found.push_back(path.parent_path().string());
        if (name.starts_with("libc10.so")) {
          const fs::path packages = path.parent_path().parent_path().parent_path();
          found.push_back((packages / "nvidia/cu13/lib").string());
        }
        return 0;
      },
      &folders);
  std::vector<std::string> candidates;
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    for (const std::string& folder : folders) candidates.push_back(folder + "/" + name);
    candidates.emplace_back(name);
    candidates.push_back(std::string("/usr/local/cuda/lib64/") + name);
  }
  return candidates;
}

template <typename F>
bool Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct NvrtcLoader {
  Nvrtc nvrtc;
  Nvrtc::Functions functions;
  std::string why;

  NvrtcLoader() {
    // For tests of what happens without it.
    if (std::getenv("GT_NO_NVRTC") != nullptr) {
      why = "GT_NO_NVRTC is set";
      return;
    }
    void* library = nullptr;
    for (const std::string& path : Candidates()) {
      library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    if (library == nullptr) {
      why =
          "libnvrtc.so.13 is not on this machine (it is part of the CUDA toolkit and of the "
          "Python package nvidia-cuda-nvrtc)";
      return;
    }
    const bool complete = Find(library, "nvrtcVersion", functions.version) &&
                          Find(library, "nvrtcCreateProgram", functions.create) &&
                          Find(library, "nvrtcCompileProgram", functions.compile) &&
                          Find(library, "nvrtcGetCUBINSize", functions.cubin_size) &&
                          Find(library, "nvrtcGetCUBIN", functions.cubin) &&
                          Find(library, "nvrtcGetProgramLogSize", functions.log_size) &&
                          Find(library, "nvrtcGetProgramLog", functions.log) &&
                          Find(library, "nvrtcDestroyProgram", functions.destroy);
    if (!complete || functions.version(&nvrtc.major_, &nvrtc.minor_) != 0) {
      why = "the NVRTC library on this machine is too old";
      return;
    }
    nvrtc.functions_ = &functions;
  }

  static NvrtcLoader& Get() {
    static auto* loader = new NvrtcLoader();  // compilations may outlive statics
    return *loader;
  }
};

const Nvrtc* Nvrtc::Get() {
  const NvrtcLoader& loader = NvrtcLoader::Get();
  return loader.nvrtc.functions_ == nullptr ? nullptr : &loader.nvrtc;
}

const std::string& Nvrtc::WhyMissing() { return NvrtcLoader::Get().why; }

std::string Nvrtc::version() const { return fmt::format("{}.{}", major_, minor_); }

Nvrtc::Result Nvrtc::Compile(std::string_view source, std::string_view name,
                             int architecture) const {
  const std::string text(source), file = std::string(name) + ".cu";
  Result result;
  void* program = nullptr;
  if (functions_->create(&program, text.c_str(), file.c_str(), 0, nullptr, nullptr) != 0) {
    result.log = "NVRTC cannot be used";
    return result;
  }
  const std::string target = fmt::format("--gpu-architecture=sm_{}", architecture);
  const char* options[] = {target.c_str(), "--std=c++17"};
  const int status = functions_->compile(program, 2, options);
  size_t size = 0;
  if (functions_->log_size(program, &size) == 0 && size > 1) {
    result.log.resize(size);
    functions_->log(program, result.log.data());
    result.log = std::string(Trim(result.log.c_str()));
  }
  if (status == 0 && functions_->cubin_size(program, &size) == 0 && size > 0) {
    result.cubin.resize(size);
    if (functions_->cubin(program, result.cubin.data()) != 0) result.cubin.clear();
  } else if (result.log.empty()) {
    result.log = fmt::format("NVRTC failed with code {}", status);
  }
  functions_->destroy(&program);
  return result;
}

}  // namespace gt::fusion
