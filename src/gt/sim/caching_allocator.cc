#include "gt/sim/caching_allocator.h"

#include <algorithm>

#include "gt/ir/checked_math.h"

namespace gt {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;
constexpr int64_t kLeastBlock = 512;
constexpr int64_t kSmall = kMegabyte;               // the largest of the small blocks
constexpr int64_t kSmallSegment = 2 * kMegabyte;    // for several of them
constexpr int64_t kMiddleSegment = 20 * kMegabyte;  // for blocks below kLarge
constexpr int64_t kLarge = 10 * kMegabyte;  // blocks from here on get segments of their size
constexpr int64_t kSegmentRounding = 2 * kMegabyte;

int64_t RoundUp(int64_t bytes, int64_t multiple) {
  return CheckedAdd(bytes, multiple - 1) / multiple * multiple;
}

int64_t SegmentFor(int64_t bytes) {
  if (bytes <= kSmall) return kSmallSegment;
  return bytes < kLarge ? kMiddleSegment : RoundUp(bytes, kSegmentRounding);
}

}  // namespace

CachingAllocator::Handle CachingAllocator::Allocate(int64_t bytes) {
  bytes = RoundUp(std::max(bytes, kLeastBlock), kLeastBlock);
  const bool small = bytes <= kSmall;
  const FreeBlocks& free = free_[small ? 1 : 0];
  const auto found = free.lower_bound({bytes, 0, -1});
  Handle handle = -1;
  if (found == free.end()) {
    handle = TakeSegment(SegmentFor(bytes), small);
  } else {
    handle = std::get<Handle>(*found);
    MakeUsed(handle);
  }
  const int64_t rest = At(handle).bytes - bytes;
  if (small ? rest >= kLeastBlock : rest > kSmall) Split(handle, bytes);
  in_use_ = CheckedAdd(in_use_, At(handle).bytes);
  return handle;
}

void CachingAllocator::Free(Handle handle) {
  in_use_ -= At(handle).bytes;
  if (const Handle after = At(handle).after; after >= 0 && At(after).free) {
    MakeUsed(after);
    Join(handle, after);
  }
  if (const Handle before = At(handle).before; before >= 0 && At(before).free) {
    MakeUsed(before);
    Join(before, handle);
    handle = before;
  }
  MakeFree(handle);
}

CachingAllocator::Handle CachingAllocator::AddBlock(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<Handle>(blocks_.size() - 1);
  }
  const Handle handle = unused_.back();
  unused_.pop_back();
  At(handle) = block;
  return handle;
}

CachingAllocator::Handle CachingAllocator::TakeSegment(int64_t bytes, bool small) {
  const int64_t address = next_address_;
  next_address_ = CheckedAdd(next_address_, bytes);
  taken_ = CheckedAdd(taken_, bytes);
  return AddBlock({.address = address, .bytes = bytes, .small = small});
}

void CachingAllocator::MakeFree(Handle handle) {
  Block& block = At(handle);
  block.free = true;
  FreeLike(block).insert({block.bytes, block.address, handle});
}

void CachingAllocator::MakeUsed(Handle handle) {
  Block& block = At(handle);
  block.free = false;
  FreeLike(block).erase({block.bytes, block.address, handle});
}

void CachingAllocator::Split(Handle handle, int64_t bytes) {
  const Block whole = At(handle);
  const Handle rest = AddBlock({.address = whole.address + bytes,
                                .bytes = whole.bytes - bytes,
                                .before = handle,
                                .after = whole.after,
                                .small = whole.small});
  if (whole.after >= 0) At(whole.after).before = rest;
  At(handle).bytes = bytes;
  At(handle).after = rest;
  MakeFree(rest);
}

void CachingAllocator::Join(Handle handle, Handle after) {
  Block& block = At(handle);
  block.bytes += At(after).bytes;
  block.after = At(after).after;
  if (block.after >= 0) At(block.after).before = handle;
  unused_.push_back(after);
}

}  // namespace gt
