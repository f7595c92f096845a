// The kernels of a router of tokens to experts, forward and backward: a warp for each token, whose scores stay
// in registers until its experts are chosen. Text that the driver's compiler takes; kernels/router.cc launches it.
#pragma once

#include <cstdint>
#include <tuple>

#include "gt/fusion/kernel_template.h"

namespace gt::fusion {

// What a kernel's text depends on.
struct RouterForm {
  bool sigmoid = false;     // or softmax
  bool biased = false;      // a correction is added for choosing
  bool grouped = false;     // only the best groups may be chosen from
  bool normalized = false;  // chosen scores are divided by their sum
  int vectors = 1;          // experts of a lane: one of every 32

  auto Key() const { return std::tuple(sigmoid, biased, grouped, normalized, vectors); }
};

inline constexpr int kRouterThreads = 128;
inline constexpr int64_t kMostRoutedExperts = 512;
inline constexpr int64_t kMostRouterChoices =
    32;  // experts of a token, and groups: a lane for each
// What a sum of chosen scores is increased by before it divides them.
inline constexpr double kRouterEpsilon = 1e-20;

// Experts in the order of their scores, of equal ones the first before the others, and their weights.
//   (logits, bias, weights, experts, rows, stride of logits, experts, chosen, groups, kept groups, scale)
RowKernel RouterSource(const RouterForm& form);

// The gradient of the logits; `form` without bias and groups.
//   (grad, logits, experts, result, rows, stride of logits, experts, chosen, scale)
RowKernel RouterBackwardSource(const RouterForm& form);

}  // namespace gt::fusion
