// Memory for many small objects that die together or are replaced by others of the same size: the
// nodes of a graph. Allocating is moving a pointer, neighbours in time are neighbours in memory,
// and everything is freed together. Runs no destructors; not thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace gt {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned for any object.
  void* Allocate(size_t bytes);
  // `bytes` as allocated. The next allocation of that size reuses the memory.
  void Free(void* memory, size_t bytes);

 private:
  static constexpr size_t kUnit = alignof(std::max_align_t);
  static constexpr size_t kLargest = 2048;  // larger ones are allocated one by one
  struct Freed {
    Freed* next;
  };
  void AddBlock();

  std::array<Freed*, kLargest / kUnit + 1> freed_{};  // by size in units
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace gt
