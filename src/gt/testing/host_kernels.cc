#include "gt/testing/host_kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "gt/fusion/element_code.h"
#include "gt/storage/file_writer.h"

namespace gt::testing {
namespace {

constexpr const char* kHost = R"(
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __restrict__ __restrict
struct Place { unsigned x; };
static Place blockIdx, threadIdx, gridDim, blockDim;
inline float __uint_as_float(unsigned x) { float f; memcpy(&f, &x, 4); return f; }
inline unsigned __float_as_uint(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
inline float __int_as_float(int x) { return __uint_as_float(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned short HostBf16(float x) {
  unsigned u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}

// Fibers.
struct Meeting { int arrived = 0; long long number = 0; };
struct HostWarp { Meeting meeting; unsigned long long slots[2][32]; };
struct HostThread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  int turn = 0;  // which slots the next exchange of its warp writes
};
static ucontext_t host_scheduler;
static std::vector<HostThread> host_threads;
static std::vector<HostWarp> host_warps;
static Meeting host_block;
static std::function<void()> host_body;
static bool host_progress;

inline void Meet(Meeting& meeting, int count) {
  const long long number = meeting.number;
  host_progress = true;
  if (++meeting.arrived == count) {
    meeting.arrived = 0;
    ++meeting.number;
  }
  const unsigned self = threadIdx.x;
  while (meeting.number == number) swapcontext(&host_threads[self].context, &host_scheduler);
}
inline HostWarp& OwnWarp() { return host_warps[threadIdx.x / 32]; }
inline void __syncwarp() { Meet(OwnWarp().meeting, 32); }
inline void __syncthreads() { Meet(host_block, (int)host_threads.size()); }
// What every lane of the warp has.
template <typename T>
const unsigned long long* Exchanged(T value) {
  HostWarp& warp = OwnWarp();
  unsigned long long* slots = warp.slots[host_threads[threadIdx.x].turn ^= 1];
  slots[threadIdx.x % 32] = 0;
  memcpy(&slots[threadIdx.x % 32], &value, sizeof(T));
  Meet(warp.meeting, 32);
  return slots;
}
template <typename T>
T Slot(const unsigned long long* slots, int lane) { T x; memcpy(&x, slots + lane, sizeof(T)); return x; }
template <typename T>
T __shfl_xor_sync(unsigned, T x, int d) { return Slot<T>(Exchanged(x), threadIdx.x % 32 ^ d); }
template <typename T>
T __shfl_sync(unsigned, T x, int from) { return Slot<T>(Exchanged(x), from % 32); }
inline unsigned __reduce_max_sync(unsigned, unsigned x) {
  const auto* slots = Exchanged(x);
  for (int i = 0; i < 32; ++i) if (slots[i] > x) x = (unsigned)slots[i];
  return x;
}
inline unsigned __reduce_min_sync(unsigned, unsigned x) {
  const auto* slots = Exchanged(x);
  for (int i = 0; i < 32; ++i) if (slots[i] < x) x = (unsigned)slots[i];
  return x;
}
template <typename T>
unsigned __match_any_sync(unsigned, T x) {
  const auto* slots = Exchanged(x);
  unsigned same = 0;
  for (int i = 0; i < 32; ++i) same |= (unsigned)(Slot<T>(slots, i) == x) << i;
  return same;
}
template <typename T>
T atomicAdd(T* to, T more) { T old = *to; *to += more; return old; }

static void RunHostThread() {
  host_body();
  const unsigned self = threadIdx.x;
  host_threads[self].done = true;
  swapcontext(&host_threads[self].context, &host_scheduler);
}
static void RunHostBlock(int threads) {
  constexpr size_t kStack = 64 << 10;
  host_threads = std::vector<HostThread>(threads);
  host_warps = std::vector<HostWarp>((threads + 31) / 32);
  host_block = {};
  for (HostThread& thread : host_threads) {
    thread.stack.reset(new char[kStack]);
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStack;
    makecontext(&thread.context, RunHostThread, 0);
  }
  for (int done = 0; done < threads;) {
    done = 0;
    host_progress = false;
    for (int i = 0; i < threads; ++i) {
      if (!host_threads[i].done) {
        threadIdx.x = i;
        swapcontext(&host_scheduler, &host_threads[i].context);
        host_progress |= host_threads[i].done;
      }
      done += host_threads[i].done;
    }
    if (!host_progress && done < threads) {
      fprintf(stderr, "threads of a block wait for each other at different places\n");
      abort();
    }
  }
}
template <typename... A, size_t... I>
void RunOnHost(void (*kernel)(A...), long long blocks, int threads, void** arguments,
               std::index_sequence<I...>) {
  gridDim.x = (unsigned)blocks;
  blockDim.x = (unsigned)threads;
  host_body = [=] { kernel(*(std::remove_const_t<A>*)arguments[I]...); };
  for (long long block = 0; block < blocks; ++block) {
    blockIdx.x = (unsigned)block;
    RunHostBlock(threads);
  }
}
template <typename... A>
void RunOnHost(void (*kernel)(A...), long long blocks, int threads, void** arguments) {
  RunOnHost(kernel, blocks, threads, arguments, std::index_sequence_for<A...>());
}
)";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string TextOf(const std::vector<fusion::RowKernel>& kernels) {
  std::string text = HostKernelPrelude();
  for (size_t i = 0; i < kernels.size(); ++i) {
    text += fmt::format("namespace kernel_{} {{\n{}\n}}\n", i,
                        Replaced(kernels[i].text, "extern \"C\"", "static"));
    text += fmt::format(
        "extern \"C\" void run_{0}(long long blocks, int threads, void** arguments) {{\n"
        "  RunOnHost(kernel_{0}::{1}, blocks, threads, arguments);\n}}\n",
        i, kernels[i].name);
  }
  return text;
}

}  // namespace

bool HasHostCompiler() { return std::system("c++ --version > /dev/null 2>&1") == 0; }

std::string HostKernelPrelude() {
  std::string text(fusion::KernelPrelude());
  text = Replaced(text, R"(asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));)",
                  "r.bits = HostBf16(x);");
  text = Replaced(text, R"(asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));)", "r = 0;");
  text = Replaced(text, R"(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));)", "r.bits = 0;");
  text = Replaced(text, R"(asm("" : "+f"(x));)", "");
  return std::string(kHost) + "#define COMPLEX_FORM 0\n" + text + "typedef unsigned Size;\n";
}

HostLibrary::HostLibrary(const std::string& text) {
  const std::string source = (folder_ / "kernels.cc").string();
  const std::string library = (folder_ / "kernels.so").string();
  WriteFile(source, text);
  const std::string command = fmt::format(
      "c++ -std=c++17 -O0 -w -ffp-contract=off -shared -fPIC -o {} {} 2>&1", library, source);
  if (std::system(command.c_str()) != 0) {
    error_ = "the text of kernels does not compile for the host";
    return;
  }
  handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) error_ = dlerror();
}

HostLibrary::~HostLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

void* HostLibrary::Find(const std::string& name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name.c_str());
}

HostKernels::HostKernels(const std::vector<fusion::RowKernel>& kernels)
    : library_(TextOf(kernels)) {
  for (size_t i = 0; i < kernels.size(); ++i) {
    functions_.push_back(reinterpret_cast<void (*)(long long, int, void**)>(
        library_.Find(fmt::format("run_{}", i))));
  }
}

}  // namespace gt::testing
