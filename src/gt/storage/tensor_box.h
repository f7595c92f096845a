// A part of a tensor: a range in each dimension. However a parameter is sharded over
// ranks, a rank holds a box of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gt {

struct TensorBox {
  std::vector<int64_t> whole;   // sizes of the tensor
  std::vector<int64_t> offset;  // where the part begins
  std::vector<int64_t> sizes;   // of the part; any of them may be 0

  static TensorBox All(std::vector<int64_t> sizes);
  bool IsWhole() const { return sizes == whole; }
  int64_t elements() const;
  // Whether there is a range for each dimension and none reaches beyond the tensor. Sizes from
  // outside the program are checked with this before anything is computed from them.
  bool IsInside() const;
  // What both have of the tensor; its sizes are 0 where they have nothing in common.
  TensorBox Intersect(const TensorBox& other) const;
  // What is left of this box when the other one is taken out of it: boxes that do not overlap, at
  // most two per dimension.
  std::vector<TensorBox> Without(const TensorBox& other) const;
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// A box as rows of elements that are adjacent in the whole tensor. The box must outlive
// it.
class BoxRows {
 public:
  explicit BoxRows(const TensorBox& box);
  int64_t count() const { return count_; }
  int64_t length() const { return length_; }
  // Where the first element of a row is in the whole tensor.
  int64_t First(int64_t row) const;

 private:
  const TensorBox& box_;
  int64_t count_ = 1;
  int64_t length_ = 1;
};

// The box in pieces of at most `most` elements, in the order of their memory. Each piece is one run of
// elements in the memory of the box.
std::vector<TensorBox> SplitBox(const TensorBox& box, int64_t most);

// "[16:32, 0:8]"; "[]" for a scalar.
std::string BoxText(const TensorBox& box);

// Copies what both boxes have of the tensor. `from` and `to` are the bytes of the boxes, row-major
// and without gaps, and do not overlap; `item_bytes` is the size of one element. Bytes of `from`
// that are outside the common part are not touched.
void CopyBox(const TensorBox& from_box, std::span<const std::byte> from, const TensorBox& to_box,
             std::span<std::byte> to, size_t item_bytes);

}  // namespace gt
