// What kernels that are written by hand (row_kernels.h, router_kernels.h) are made of.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "gt/ir/type.h"

namespace gt::fusion {

// `text` defines `name` with what KernelPrelude (element_code.h) defines.
struct RowKernel {
  std::string name, text;
};

// The text with the value in place of every $NAME, after the functions that such kernels share: conversions
// (Float, To), and sums over a warp and a block that are always added up in the same order.
RowKernel FilledKernel(std::string name, std::string text,
                       std::initializer_list<std::pair<const char*, std::string>> values);

// Values.
std::string TypeText(DType dtype);
std::string NumberText(int64_t number);
std::string BoolText(bool value);

}  // namespace gt::fusion
