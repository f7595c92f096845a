// Sizes that are only known when the step runs: how many tokens each expert got. One helper for
// eager and captured code.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <optional>
#include <vector>

namespace gt {

struct ReadIntsFacts {
  // The numbers sum to this (the splits of an exchange sum to the rows there are). Later
  // comparisons of sizes use it.
  std::optional<c10::SymInt> sum = {};
  // What they sum to when all goes evenly. Nothing relies on it; memory and time are estimated by it.
  std::optional<c10::SymInt> expected_sum = {};
};

// The entries of a one-dimensional integer tensor. Eager: waits for the device and returns plain
// numbers. Captured: a node that binds one data symbol for each entry, and the facts become facts
// of the graph. The tensor's length must be a plain number.
std::vector<c10::SymInt> ReadInts(const at::Tensor& tensor, const ReadIntsFacts& facts = {});

}  // namespace gt
