#include "gt/fusion/kernel_compiler.h"

#include <fmt/format.h>

#include "gt/base/workers.h"
#include "gt/fusion/nvrtc.h"
#include "gt/storage/checksum.h"

namespace gt::fusion {

std::string LongHash(std::string_view text) {
  const std::string again = fmt::format("{}\n{}", text.size(), text);
  return ChecksumText(Xxh64Of(text)) + ChecksumText(Xxh64Of(again));
}

std::string KernelKey(const KernelSource& source, int architecture) {
  const Nvrtc* nvrtc = Nvrtc::Get();
  return LongHash(fmt::format("sm_{} nvrtc {}\n{}", architecture,
                              nvrtc == nullptr ? "none" : nvrtc->version(), source.text));
}

std::vector<CompiledKernel> CompileKernels(std::span<const KernelSource* const> sources,
                                           int architecture, KernelStore& store) {
  std::vector<CompiledKernel> kernels(sources.size());
  RunWorkers(static_cast<int64_t>(sources.size()), [&](WorkItems& items) {
    while (const auto item = items.Next()) {
      const KernelSource& source = *sources[static_cast<size_t>(*item)];
      CompiledKernel& kernel = kernels[static_cast<size_t>(*item)];
      kernel.key = KernelKey(source, architecture);
      const std::string file = kernel.key + ".cubin";
      if (auto stored = store.Find(file)) {
        kernel.cubin = std::move(*stored);
        kernel.stored = true;
        continue;
      }
      if (Nvrtc::Get() == nullptr) {
        kernel.error = Nvrtc::WhyMissing();
        continue;
      }
      Nvrtc::Result result = Nvrtc::Get()->Compile(source.text, source.name, architecture);
      kernel.cubin = std::move(result.cubin);
      kernel.error = std::move(result.log);
      if (!kernel.cubin.empty()) store.Put(file, kernel.cubin);
    }
  });
  return kernels;
}

}  // namespace gt::fusion
