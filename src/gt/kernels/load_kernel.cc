#include "gt/kernels/load_kernel.h"

#include <fmt/format.h>

#include <mutex>
#include <set>

#include "gt/base/logging.h"
#include "gt/fusion/nvrtc.h"

namespace gt {

void* LoadKernel(const CudaDriver& driver, const fusion::KernelSource& source, int architecture,
                 fusion::KernelStore& store, fusion::CompiledKernel& kernel, std::string& why) {
  if (void* function = driver.Load(kernel.cubin, source.name, why)) return function;
  if (!kernel.stored || fusion::Nvrtc::Get() == nullptr) return nullptr;
  const std::string kept = kernel.cubin;
  store.Remove(kernel.key + ".cubin");
  const fusion::KernelSource* const one[] = {&source};
  kernel = fusion::CompileKernels(one, architecture, store)[0];
  if (kernel.cubin.empty()) {
    why = kernel.error;
    return nullptr;
  }
  if (kernel.cubin == kept) return nullptr;  // it was not damaged
  log::Warn("kernel cache: the driver refuses {}.cubin, which is made again", kernel.key);
  return driver.Load(kernel.cubin, source.name, why);
}

std::string OldDriver(const std::string& why) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  return fmt::format("{}; the driver must be as new as the compiler of kernels (NVRTC {})", why,
                     nvrtc == nullptr ? "none" : nvrtc->version());
}

void WarnWithoutKernels(const std::string& why) {
  static auto* mutex = new std::mutex();
  static auto* said = new std::set<std::string>();
  const std::lock_guard lock(*mutex);
  if (!said->insert(why).second) return;
  log::Warn("no kernels of gt's own, libtorch's operators run one by one: {}", why);
}

}  // namespace gt
