#include "gt/trace/absent_gpu.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <memory>
#include <mutex>

#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

// libtorch keeps the first hooks that it was given, for the whole process. These are therefore
// registered before anybody asks, say "no GPU" on every thread that does not capture for one, and
// give way to the real ones when libtorch's CUDA library is loaded.
thread_local bool standing_in = false;

struct StandInHooks : at::CUDAHooksInterface {
  explicit StandInHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return standing_in; }
  bool isBuilt() const override { return standing_in; }
  bool isAvailable() const override { return standing_in; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return standing_in; }
  at::DeviceIndex deviceCount() const override { return standing_in ? 1 : 0; }
  at::DeviceIndex getCurrentDevice() const override { return standing_in ? 0 : -1; }
};

[[maybe_unused]] const bool kHooksRegistered = [] {
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks",
      [](at::CUDAHooksArgs args) -> std::unique_ptr<at::CUDAHooksInterface> {
        return std::make_unique<StandInHooks>(args);
      },
      c10::REGISTRY_FALLBACK);
  return true;
}();

// One device with one stream, on which everything is done immediately. Autograd keeps arrays by
// device index, so the index must be a real one.
struct StandInGuard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  static c10::Device First() { return {c10::kCUDA, 0}; }
  static c10::Stream Only() { return c10::Stream(c10::Stream::DEFAULT, First()); }

  c10::Device exchangeDevice(c10::Device) const override { return First(); }
  c10::Device getDevice() const override { return First(); }
  c10::Stream getStream(c10::Device) const noexcept override { return Only(); }
  c10::Stream getNewStream(c10::Device, int) const override { return Only(); }
  c10::Stream getDefaultStream(c10::Device) const override { return Only(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return Only(); }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = const_cast<StandInGuard*>(this);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
};

void RefuseToRun(const c10::OperatorHandle& called, torch::jit::Stack*) {
  TORCH_CHECK(false, called.schema().name(), " needs a GPU");
}

// Operators that libtorch composes of others where a device has no kernel (silu_backward). Which of
// them have a CUDA kernel is known to libtorch's CUDA library alone, which cannot be loaded here; those
// that have one for the CPU have one for CUDA too. It is never called: a capture runs no kernel.
void RegisterKernels() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != std::optional<std::string_view>("aten")) continue;
    auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
      continue;
    }
    std::string qualified = name.name.substr(name.name.find("::") + 2);
    if (!name.overload_name.empty()) qualified += "." + name.overload_name;
    library->impl(qualified.c_str(), torch::CppFunction::makeFromBoxedFunction<&RefuseToRun>());
  }
}

void Prepare() {
  static std::once_flag once;
  std::call_once(once, [] {
    static StandInGuard guard;
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(&guard);
    RegisterKernels();
  });
}

}  // namespace

AbsentGpu::AbsentGpu(Device device) : before_(standing_in) {
  if (device.kind != DeviceKind::kCuda || CudaUsable()) return;
  Prepare();
  standing_in = true;
}

AbsentGpu::~AbsentGpu() { standing_in = before_; }

}  // namespace gt
