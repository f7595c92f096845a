// What a type with symbols amounts to once the symbols have values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gt/ir/checked_math.h"
#include "gt/ir/dim.h"
#include "gt/ir/type.h"

namespace gt {

// A negative size can only come from values that do not belong together.
inline int64_t SizeAt(const Dim& size, SymbolValues values) {
  return std::max<int64_t>(0, size.Evaluate(values));
}

inline int64_t ElementsOf(const TensorType& type, SymbolValues values) {
  int64_t elements = 1;
  for (const Dim& size : type.sizes) elements = CheckedMultiply(elements, SizeAt(size, values));
  return elements;
}

// Bytes of a tensor's storage, not rounded: from its first element to its last.
inline int64_t StorageBytes(const TensorType& type, SymbolValues values) {
  if (!type.defined()) return 0;
  int64_t elements = 1;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    const int64_t size = SizeAt(type.sizes[i], values);
    if (size == 0) return 0;
    elements = CheckedAdd(elements, CheckedMultiply(size - 1, SizeAt(type.strides[i], values)));
  }
  return CheckedMultiply(elements, ItemSize(type.dtype));
}

inline bool IsRowMajor(const TensorType& type, SymbolValues values) {
  int64_t expected = 1;
  for (size_t i = type.sizes.size(); i-- > 0;) {
    int64_t size = SizeAt(type.sizes[i], values);
    if (size != 1 && type.strides[i].Evaluate(values) != expected) return false;
    expected = CheckedMultiply(expected, std::max<int64_t>(size, 1));
  }
  return true;
}

}  // namespace gt
