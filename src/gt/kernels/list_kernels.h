// Kernels over lists of tensors on a GPU: the update of AdamW, and the norm of gradients. libtorch's own take the
// list as an argument of the kernel, which has room for few tensors and blocks, so that a step needs many launches
// and each of them reaches half of the memory's bandwidth. These read the list from the device's memory: one launch
// for all tensors. The update gives the bits of libtorch's (_fused_adamw_) but leaves gradients as they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "gt/fusion/kernel_source.h"

namespace gt {

struct AdamWRates {
  double learning_rate = 0, beta1 = 0, beta2 = 0, eps = 0;
  double gradient_divisor = 1;  // gradients count divided by it
};

// What one tensor's update reads and writes. Tensors of a row have the same dtype, sizes and strides; `step` is a
// float32 number on the same GPU, the count of updates with this one.
struct AdamWRow {
  at::Tensor parameter, gradient, mean, mean_square, step;
  double weight_decay = 0;
};

// Launches of one job, in which the same tensors come again and again: what is known of them stays on the device.
class ListKernels {
 public:
  ListKernels();
  ~ListKernels();
  ListKernels(const ListKernels&) = delete;
  ListKernels& operator=(const ListKernels&) = delete;

  // False, and nothing is done, if some tensor is not on a GPU, has another dtype than float32 and bfloat16 or gaps
  // between its elements, or if the kernels cannot be compiled here.
  bool UpdateAdamW(std::span<const AdamWRow> rows, const AdamWRates& rates);

  // The sum of the squares of all elements, in float64 on the GPU; undefined where UpdateAdamW would return false.
  // Its bits depend on the elements and their order alone.
  at::Tensor SumOfSquares(std::span<const at::Tensor> tensors);

  // All of them, for every dtype.
  static std::vector<fusion::KernelSource> Sources();

 private:
  struct List;
  using ListsByDtype = std::map<at::ScalarType, std::unique_ptr<List>>;
  static List& Find(ListsByDtype& lists, at::ScalarType dtype);

  ListsByDtype updated_, squared_;
};

}  // namespace gt
