// Arithmetic on sizes that fails with SizeOverflow instead of going round.
#pragma once

#include <cstdint>

#include "gt/base/error.h"

namespace gt {

inline int64_t CheckedAdd(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) {
    Fail(ErrorCode::kSizeOverflow, "the sum {} + {} does not fit into 64 bits", a, b);
  }
  return result;
}

inline int64_t CheckedMultiply(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) {
    Fail(ErrorCode::kSizeOverflow, "the product {} * {} does not fit into 64 bits", a, b);
  }
  return result;
}

}  // namespace gt
