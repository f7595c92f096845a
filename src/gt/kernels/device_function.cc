#include "gt/kernels/device_function.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <array>

#include "gt/base/logging.h"
#include "gt/fusion/element_code.h"
#include "gt/fusion/kernel_compiler.h"
#include "gt/fusion/nvrtc.h"
#include "gt/kernels/cuda_driver.h"
#include "gt/kernels/load_kernel.h"

namespace gt {
namespace {

struct KernelFolder {
  std::mutex mutex;
  std::filesystem::path path = fusion::DefaultKernelFolder();

  static KernelFolder& Get() {
    static auto* folder = new KernelFolder();
    return *folder;
  }
};

fusion::KernelSource SourceOf(std::string name, std::string_view text) {
  fusion::KernelSource source;
  source.name = std::move(name);
  source.text = fmt::format("#define COMPLEX_FORM 0\n{}{}", fusion::KernelPrelude(), text);
  return source;
}

}  // namespace

void UseKernelFolder(std::filesystem::path folder) {
  KernelFolder& known = KernelFolder::Get();
  const std::lock_guard lock(known.mutex);
  known.path = std::move(folder);
}

DeviceFunction::DeviceFunction(std::string name, std::string_view text)
    : source_(SourceOf(std::move(name), text)) {}

bool DeviceFunction::IsAvailable(c10::Device gpu) { return Function(gpu) != nullptr; }

void* DeviceFunction::Function(c10::Device gpu) {
  const int number = gpu.has_index() ? gpu.index() : 0;
  const std::lock_guard lock(mutex_);
  auto [found, fresh] = functions_.try_emplace(number, nullptr);
  if (!fresh) return found->second;
  const CudaDriver* driver = CudaDriver::Get();
  if (driver == nullptr) {
    WarnWithoutKernels("there is no driver");
    return nullptr;
  }
  KernelFolder& folder = KernelFolder::Get();
  std::filesystem::path path;
  {
    const std::lock_guard folder_lock(folder.mutex);
    path = folder.path;
  }
  fusion::KernelStore store(path);
  const int architecture = driver->Architecture(number);
  const std::array<const fusion::KernelSource*, 1> sources = {&source_};
  fusion::CompiledKernel compiled = fusion::CompileKernels(sources, architecture, store)[0];
  if (compiled.cubin.empty()) {
    if (fusion::Nvrtc::Get() == nullptr) {
      WarnWithoutKernels(compiled.error);
    } else {
      log::Warn("the kernel {} is not available, libtorch's operators run instead: {}",
                source_.name, compiled.error);
    }
    return nullptr;
  }
  const c10::DeviceGuard guard(c10::Device(gpu.type(), static_cast<c10::DeviceIndex>(number)));
  at::zeros({1}, gpu);  // makes libtorch's context, should this be the first use
  std::string why;
  found->second = LoadKernel(*driver, source_, architecture, store, compiled, why);
  if (found->second == nullptr) WarnWithoutKernels(OldDriver(why));
  return found->second;
}

void DeviceFunction::Launch(c10::Device gpu, int64_t blocks, int threads, void** arguments) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(gpu.type()).getStream(gpu);
  CudaDriver::Get()->Launch(Function(gpu), static_cast<uint64_t>(blocks),
                            static_cast<unsigned>(threads), stream.native_handle(), arguments);
}

}  // namespace gt
