// What operators compute for one element, as CUDA C++ that gives ATen's bits: the operand converted to
// the dtype that ATen's kernel computes in, arithmetic in the kernel's order, the result rounded to its
// dtype. Sums and products of different operators never contract into one rounding (__fadd_rn,
// __fmul_rn, Keep); inside one operator the compiler contracts as it does in ATen's kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gt/ir/graph.h"

namespace gt::fusion {

enum class CodeKind : uint8_t {
  kNone,           // no code can be generated for it
  kElement,        // computes each element from those at its place
  kView,           // shows its argument's elements at other places
  kCat,            // the element of one of its operands
  kIndexSelect,    // an element at a place that another tensor says
  kSum,            // adds up a few elements, in ATen's order
  kOneHot,         // the gradient of a choice among classes: zero but for the one that was right
  kOneHotSoftmax,  // backward of log_softmax, given such a gradient: what it sums up is one number
};

// Depends on the operator, its arguments and the dtypes of its operands.
CodeKind CodeKindOf(const Node& node);

// Whether computing it several times costs next to nothing: no function of the mathematical library,
// no division, no sum.
bool IsCheap(const Node& node);

// The element of a node of kind kElement. `operands` are expressions of the operands' elements, in the
// type that CodeType says. Nothing where there is no code for it.
std::optional<std::string> ElementCode(const Node& node, std::span<const std::string> operands);

// The C++ type in which an element is held between operators, and in memory.
std::string_view CodeType(DType dtype);
std::string_view StorageType(DType dtype);
bool HasCodeType(DType dtype);
// From what is in memory to CodeType, and back.
std::string Loaded(DType dtype, const std::string& stored);
std::string Stored(DType dtype, const std::string& value);

// Helper types and functions that every kernel begins with.
std::string_view KernelPrelude();

}  // namespace gt::fusion
