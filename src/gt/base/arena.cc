#include "gt/base/arena.h"

#include <new>

// What is freed stays mapped: without this the address sanitizer could not see a use after free.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace gt {

void Arena::AddBlock() {
  // Small graphs (a mask function) take little, large ones few blocks.
  constexpr size_t kFirst = 4096, kLast = size_t{1} << 18;
  const size_t bytes = blocks_.size() < 6 ? kFirst << blocks_.size() : kLast;
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  next_ = blocks_.back().get();
  left_ = bytes;
}

void* Arena::Allocate(size_t bytes) {
  const size_t units = (bytes + kUnit - 1) / kUnit;
  bytes = units * kUnit;
  if (bytes > kLargest) return ::operator new(bytes);
  if (Freed* freed = freed_[units]) {
    ASAN_UNPOISON_MEMORY_REGION(freed, bytes);
    freed_[units] = freed->next;
    return freed;
  }
  if (left_ < bytes) AddBlock();
  void* memory = next_;
  next_ += bytes;
  left_ -= bytes;
  return memory;
}

void Arena::Free(void* memory, size_t bytes) {
  const size_t units = (bytes + kUnit - 1) / kUnit;
  if (units * kUnit > kLargest) {
    ::operator delete(memory);
    return;
  }
  freed_[units] = new (memory) Freed{freed_[units]};
  ASAN_POISON_MEMORY_REGION(memory, units * kUnit);
}

}  // namespace gt
