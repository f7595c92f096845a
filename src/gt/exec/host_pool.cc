#include "gt/exec/host_pool.h"

#include <sys/mman.h>

#include <algorithm>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/machine_memory.h"
#include "gt/torch_bridge/cuda_library.h"

namespace gt {
namespace {

// Large pieces are whole huge pages, which are mapped faster.
constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;
// A free buffer is used for something that is up to a quarter smaller.
constexpr size_t kLargestWaste = 4;
// What the rest of the machine needs to go on working.
constexpr int64_t kReserve = int64_t{512} << 20;

using AllocatePinned = void* (*)(size_t bytes);
using FreePinned = void (*)(void* data);

size_t Rounded(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);  // also what is empty has an address
  const size_t unit = bytes < kHugePage ? kPage : kHugePage;
  return (bytes + unit - 1) / unit * unit;
}

std::byte* Map(size_t bytes) {
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

std::byte* PageLocked(size_t bytes) {
  static auto allocate =
      reinterpret_cast<AllocatePinned>(FindInCudaLibrary("gt_allocate_page_locked"));
  return allocate == nullptr ? nullptr : static_cast<std::byte*>(allocate(bytes));
}

}  // namespace

HostBuffer::~HostBuffer() {
  if (data == nullptr) return;
  if (!page_locked) {
    munmap(data, bytes);
    return;
  }
  static auto free = reinterpret_cast<FreePinned>(FindInCudaLibrary("gt_free_page_locked"));
  free(data);
}

HostPool& HostPool::Instance() {
  // Never destroyed: when the process ends, the driver may be gone before it.
  static HostPool& pool = *new HostPool();
  return pool;
}

std::unique_ptr<HostBuffer> HostPool::Take(size_t bytes, bool page_locked) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<HostBuffer> buffer = FindFree(bytes, page_locked);
  if (buffer == nullptr) buffer = Allocate(bytes, page_locked);
  use_.in_use += static_cast<int64_t>(buffer->bytes);
  use_.peak = std::max(use_.peak, use_.in_use);
  return buffer;
}

void HostPool::Give(std::unique_ptr<HostBuffer> buffer) {
  std::lock_guard lock(mutex_);
  use_.in_use -= static_cast<int64_t>(buffer->bytes);
  size_t bytes = buffer->bytes;
  free_.emplace(bytes, std::move(buffer));
}

void HostPool::Limit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

HostPoolUse HostPool::use() const {
  std::lock_guard lock(mutex_);
  return use_;
}

void HostPool::Trim() {
  std::lock_guard lock(mutex_);
  ReleaseFree();
}

void HostPool::ReleaseFree() {
  for (const auto& [bytes, buffer] : free_) use_.kept -= static_cast<int64_t>(bytes);
  free_.clear();
}

std::unique_ptr<HostBuffer> HostPool::FindFree(size_t bytes, bool page_locked) {
  const size_t largest = Rounded(bytes + bytes / kLargestWaste);
  for (auto found = free_.lower_bound(bytes); found != free_.end() && found->first <= largest;
       ++found) {
    if (found->second->page_locked != page_locked) continue;
    std::unique_ptr<HostBuffer> buffer = std::move(found->second);
    free_.erase(found);
    return buffer;
  }
  return nullptr;
}

std::unique_ptr<HostBuffer> HostPool::Allocate(size_t bytes, bool page_locked) {
  const size_t rounded = Rounded(bytes);
  // Memory of sizes that no longer occur is the first to go.
  if (static_cast<int64_t>(rounded) > Left()) ReleaseFree();
  if (static_cast<int64_t>(rounded) > Left()) FailExhausted(bytes);
  auto buffer = std::make_unique<HostBuffer>();
  buffer->page_locked = page_locked;
  buffer->bytes = rounded;
  buffer->data = page_locked ? PageLocked(rounded) : Map(rounded);
  if (buffer->data == nullptr) FailExhausted(bytes);
  use_.kept += static_cast<int64_t>(rounded);
  return buffer;
}

// Asking the machine first: it would rather kill a process than refuse memory.
int64_t HostPool::Left() const {
  return limit_ > 0 ? limit_ - use_.kept : AvailableMemory() - kReserve;
}

void HostPool::FailExhausted(size_t bytes) const {
  Fail(ErrorCode::kHostMemoryExhausted,
       "{} more were to be moved to the host, where {} of activations are already, but {} is left "
       "for them; lower --compile.cpu_offload_budget_gb below {:.1f}, or use "
       "--compile.memory_policy full",
       ByteText(static_cast<int64_t>(bytes)), ByteText(use_.in_use),
       ByteText(std::max<int64_t>(Left(), 0)),
       static_cast<double>(use_.in_use) / static_cast<double>(int64_t{1} << 30));
}

}  // namespace gt
