// Where the elements of a Hugging Face tensor are in one of ours, dimension by dimension: so a rank
// that has a part of a parameter finds the part of the file that belongs to it, and nothing else is
// read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gt/models/model.h"
#include "gt/storage/tensor_box.h"

namespace gt {

// The checkpoint's tensor, seen with one dimension for each of ours, has element (i, j, ...) at
// (coordinates[0][i], coordinates[1][j], ...) of ours.
class HfMapping {
 public:
  // `whole`: sizes of our tensor.
  HfMapping(const HfTensor& entry, const std::vector<int64_t>& whole);

  // The smallest box of ours that holds all of the checkpoint's tensor.
  TensorBox Bounds() const;

  // Copies into `part`, which is `box` of ours, what the checkpoint's tensor has of it.
  void Fill(const at::Tensor& stored, const at::Tensor& part, const TensorBox& box) const;
  // The checkpoint's tensor from `region`, which is Bounds() of ours; shaped like the checkpoint's.
  at::Tensor Extract(const at::Tensor& region, at::ScalarType dtype) const;

 private:
  std::vector<int64_t> sizes_;       // of the checkpoint's tensor
  std::vector<int64_t> view_sizes_;  // of the same as a view of ours
  std::vector<int64_t> grouped_;     // the view's dimensions, those along our first one first
  std::vector<int64_t> whole_;
  std::vector<std::vector<int64_t>> coordinates_;
};

}  // namespace gt
