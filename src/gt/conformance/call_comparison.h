// Compares what an operator's rule says about one call with what libtorch does.
#pragma once

#include <cstdint>
#include <string>

#include "gt/conformance/harness.h"

namespace gt::conformance {

struct Comparison {
  enum class Outcome : uint8_t { kAgrees, kBothReject, kNoKernel, kDiffers };
  Outcome outcome = Outcome::kAgrees;
  std::string problem = {};  // what differs, and in which call
  bool elsewhere = false;    // it was repeated at other extents, and agreed
};

// Arguments that the case does not have yet get their defaults. Operands are filled from libtorch's
// generator.
Comparison Compare(Case& c);

}  // namespace gt::conformance
