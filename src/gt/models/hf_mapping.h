// Where the elements of a Hugging Face tensor are in one of ours, dimension by dimension: so a rank
// that has a part of a parameter finds the part of the file that belongs to it, and nothing else is
// read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "gt/models/model.h"
#include "gt/storage/tensor_box.h"

namespace gt {

// The smallest box of our tensor, whose sizes are `whole`, that holds all of the checkpoint's.
TensorBox BoundsInOurs(const HfTensor& entry, const std::vector<int64_t>& whole);

// The checkpoint's tensor, seen with one dimension for each of ours, has element (i, j, ...) at
// (coordinates[0][i], coordinates[1][j], ...) of ours.
class HfMapping {
 public:
  // `whole`: sizes of our tensor.
  HfMapping(const HfTensor& entry, const std::vector<int64_t>& whole);

  const TensorBox& bounds() const { return bounds_; }

  // The checkpoint's tensor with one dimension for each of ours. A view where strides allow it.
  at::Tensor Arrange(const at::Tensor& stored) const;

  // Called with elements that are about to be read, where those are next to each other.
  using ReadAhead = std::function<void(const at::Tensor& elements)>;
  // Copies into `part`, which is `box` of ours, what the checkpoint's tensor, arranged, has of it.
  void Fill(const at::Tensor& arranged, const at::Tensor& part, const TensorBox& box,
            const ReadAhead& read_ahead) const;
  // The checkpoint's tensor from `region`, which is bounds() of ours; shaped like the checkpoint's.
  at::Tensor Extract(const at::Tensor& region, at::ScalarType dtype) const;

 private:
  std::vector<int64_t> sizes_;       // of the checkpoint's tensor
  std::vector<int64_t> view_sizes_;  // of the same as a view of ours
  std::vector<int64_t> grouped_;     // the view's dimensions, those along our first one first
  TensorBox bounds_;
  std::vector<std::vector<int64_t>> coordinates_;
  std::vector<bool> ascending_;  // whether coordinates_[d] are
};

}  // namespace gt
