// How much of a GPU's memory libtorch's caching allocator takes for what is allocated and freed in an order.
// It takes segments and splits them into blocks: freed blocks join their free neighbors and are handed out
// again, the smallest that is large enough first, and a segment stays taken. So what is taken is more than
// what is ever in use: blocks of other sizes leave gaps, and segments are larger than what they are taken for.
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings, for one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace gt {

class CachingAllocator {
 public:
  // A number for what was allocated, until it is freed.
  using Handle = int32_t;

  Handle Allocate(int64_t bytes);
  void Free(Handle handle);

  int64_t in_use() const { return in_use_; }
  // All segments.
  int64_t taken() const { return taken_; }

 private:
  struct Block {
    int64_t address = 0, bytes = 0;
    Handle before = -1, after = -1;  // neighbors in the segment
    bool small = false;              // of the segments for small blocks
    bool free = false;
  };
  // Those that are free: by size, then by address.
  using FreeBlocks = std::set<std::tuple<int64_t, int64_t, Handle>>;

  Block& At(Handle handle) { return blocks_[static_cast<size_t>(handle)]; }
  FreeBlocks& FreeLike(const Block& block) { return free_[block.small ? 1 : 0]; }
  Handle AddBlock(const Block& block);
  Handle TakeSegment(int64_t bytes, bool small);
  void MakeFree(Handle handle);
  void MakeUsed(Handle handle);
  // The rest of the block becomes one of its own.
  void Split(Handle handle, int64_t bytes);
  // `after` becomes part of `handle`.
  void Join(Handle handle, Handle after);

  std::vector<Block> blocks_;
  std::vector<Handle> unused_;  // numbers of blocks that have become part of others
  FreeBlocks free_[2];
  int64_t next_address_ = 0, in_use_ = 0, taken_ = 0;
};

}  // namespace gt
