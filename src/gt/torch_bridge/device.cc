#include "gt/torch_bridge/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cpuid.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/machine_memory.h"
#include "gt/torch_bridge/cpu_memory.h"
#include "gt/torch_bridge/cuda_library.h"

namespace gt {
namespace {

// Some virtual machines show the AMX tile unit in CPUID but do not let programs use it, or do not say how
// large its tiles are. oneDNN believes the first, and the first bf16 product dies with an illegal instruction.
bool AmxShownButRefused() {
  constexpr unsigned kFeatures = 7, kTiles = 0x1d;
  constexpr unsigned kAmxTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) == 0 || (d & kAmxTile) == 0) return false;
  const bool has_palettes = __get_cpuid_count(kTiles, 0, &a, &b, &c, &d) != 0 && a > 0;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return !has_palettes || syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0;
}

struct CudaLoad {
  bool usable = false;
  std::string problem;
};

// Asked of the driver: once libtorch's CUDA library is loaded, nothing can stand in for a GPU that
// does not exist (trace/absent_gpu.h).
bool DriverHasGpu(void* driver) {
  using Init = int (*)(unsigned);
  using GetCount = int (*)(int*);
  auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  auto get_count = reinterpret_cast<GetCount>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  return init != nullptr && get_count != nullptr && init(0) == 0 && get_count(&count) == 0 &&
         count > 0;
}

CudaLoad LoadCuda() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) {
    return {false, "no NVIDIA driver was found (libcuda.so.1 cannot be loaded)"};
  }
  if (!DriverHasGpu(driver)) return {false, "the driver reports no usable GPU"};
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return {false, std::string("libtorch's CUDA library cannot be loaded: ") + dlerror()};
  }
  if (!at::globalContext().hasCUDA()) return {false, "the driver reports no usable GPU"};
  return {true, ""};
}

const CudaLoad& Cuda() {
  static const CudaLoad cuda = LoadCuda();
  return cuda;
}

// Asked of the driver itself, since libtorch's own answer needs its CUDA headers.
std::string GpuName(int index) {
  using GetName = int (*)(char*, int, int);
  auto get_name = reinterpret_cast<GetName>(dlsym(RTLD_DEFAULT, "cuDeviceGetName"));
  char name[256] = "";
  if (get_name == nullptr || get_name(name, sizeof name, index) != 0) return "";
  return name;
}

}  // namespace

double PeakFlops(c10::Device device) {
  if (!device.is_cuda()) return 0.0;
  static constexpr std::pair<std::string_view, double> kPeaks[] = {
      {"B200", 2250e12}, {"H200", 989.4e12}, {"H100", 989.4e12}, {"A100", 312e12}};
  std::string name = GpuName(std::max<int>(device.index(), 0));
  for (const auto& [model, flops] : kPeaks) {
    if (name.find(model) != std::string::npos) return flops;
  }
  return 0.0;
}

void PrepareCpu() {
  // Streams share the queues of the device, of which there are 8 unless one asks for more. A kernel then
  // waits for a collective that has nothing to do with it, only because its stream has the same queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const char* variable = "ONEDNN_MAX_CPU_ISA";
  if (getenv(variable) == nullptr && AmxShownButRefused()) {
    setenv(variable, "AVX512_CORE_BF16", 1);
    log::Debug("AMX is shown by this processor but cannot be used; {}=AVX512_CORE_BF16 is set",
               variable);
  }
}

namespace {

void SetVariable(const char* name, const char* value) {
  if (getenv(name) == nullptr) setenv(name, value, /*overwrite=*/0);
}

}  // namespace

void PrepareEnvironment(bool deterministic) {
  // libtorch's own flight record is one map for the whole process, changed without a lock: ranks that
  // are threads would tear it apart. Read by libtorch at its first collective.
  SetVariable("TORCH_FR_BUFFER_SIZE", "0");
  // Functionalization would check its own views with meta kernels, which know nothing of our symbolic
  // sizes.
  SetVariable("TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE", "1");
  if (deterministic) SetVariable("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
}

bool CudaUsable() { return Cuda().usable; }

c10::Device ChooseDevice(DeviceChoice choice, int64_t local_rank) {
  if (choice == DeviceChoice::kCpu) return c10::kCPU;
  const CudaLoad& cuda = Cuda();
  if (cuda.usable) {
    c10::impl::VirtualGuardImpl gpus(c10::kCUDA);
    if (local_rank >= gpus.deviceCount()) {
      Fail(ErrorCode::kNoGpu,
           "this rank is number {} on its machine, which has {} GPU{}; start fewer ranks there, or "
           "use --device cpu",
           local_rank, static_cast<int>(gpus.deviceCount()), gpus.deviceCount() == 1 ? "" : "s");
    }
    c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
    gpus.setDevice(device);
    return device;
  }
  if (choice == DeviceChoice::kCuda) {
    Fail(ErrorCode::kNoGpu, "--device cuda was asked for, but {}", cuda.problem);
  }
  log::Debug("running on the CPU: {}", cuda.problem);
  return c10::kCPU;
}

void SetThreads(int64_t threads) {
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

void SetDeterministic(bool on, bool fill_memory) {
  PrepareEnvironment(on);
  at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(fill_memory);
}

std::string_view Float32Products() {
  return at::globalContext().allowTF32CuBLAS() ? "TF32" : "float32";
}

void Synchronize(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(device.index());
}

namespace {

// By GPU: the peak before what OutsidePeak called, which libtorch's own count forgets.
class EarlierPeaks {
 public:
  static int64_t Of(c10::Device gpu) {
    const std::lock_guard lock(Instance().mutex_);
    return Instance().peaks_[gpu.index()];
  }
  static void Set(c10::Device gpu, int64_t peak) {
    const std::lock_guard lock(Instance().mutex_);
    Instance().peaks_[gpu.index()] = peak;
  }

 private:
  static EarlierPeaks& Instance() {
    static auto* peaks = new EarlierPeaks();
    return *peaks;
  }

  std::mutex mutex_;
  std::map<c10::DeviceIndex, int64_t> peaks_;
};

}  // namespace

MemoryUse MemoryOf(c10::Device device) {
  if (device.is_cuda()) {  // of all ranks that are threads of this process: they share an allocator
    auto stats = at::getDeviceAllocator(c10::kCUDA)->getDeviceStats(device.index());
    const auto& bytes =
        stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    return {bytes.current, std::max(bytes.peak, EarlierPeaks::Of(device))};
  }
  const MemoryMeter& meter = CurrentMeter();
  return {meter.current(), meter.peak()};
}

void ResetPeakMemory(c10::Device device) {
  if (device.is_cuda()) {
    EarlierPeaks::Set(device, 0);
    at::getDeviceAllocator(c10::kCUDA)->resetPeakStats(device.index());
  } else {
    CurrentMeter().ResetPeak();
  }
}

void OutsidePeak(c10::Device gpu, const std::function<void()>& body) {
  const int64_t before = MemoryOf(gpu).peak;
  body();
  EarlierPeaks::Set(gpu, before);
  at::getDeviceAllocator(c10::kCUDA)->resetPeakStats(gpu.index());
}

int64_t TotalMemoryOf(c10::Device gpu) {
  at::globalContext().lazyInitDevice(c10::kCUDA);
  return static_cast<int64_t>(
      at::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(gpu.index()).second);
}

int64_t AvailableMemoryOf(c10::Device device) {
  if (!device.is_cuda()) return AvailableMemory();
  return static_cast<int64_t>(
      at::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(device.index()).first);
}

void LimitMemory(c10::Device device, int64_t bytes) {
  if (!device.is_cuda()) {
    CurrentMeter().Limit(bytes);
    return;
  }
  using Limit = void (*)(double fraction, int device);
  static auto limit = reinterpret_cast<Limit>(FindInCudaLibrary("gt_limit_device_memory"));
  if (limit == nullptr) {
    Fail(ErrorCode::kNoGpu, "the memory of a GPU can be limited only with libgt_cuda.so");
  }
  at::globalContext().lazyInitDevice(c10::kCUDA);  // before it, there is no allocator to be told
  auto whole = at::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(device.index()).second;
  limit(std::min(static_cast<double>(bytes) / static_cast<double>(whole), 1.0), device.index());
}

}  // namespace gt
