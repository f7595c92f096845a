// Whether a generated kernel may take the place of its operators.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "gt/exec/fused_kernels.h"

namespace gt {

// Runs the kernel and its operators on the same inputs, at the sizes that `symbols` give: numbers of all
// magnitudes, then arbitrary bits, infinities, NaN, zeros of both signs and subnormal numbers, then views
// that begin at odd places. Returns nothing if all results have equal bits and the kernel takes no longer,
// else what is wrong.
std::string ReasonToReject(const FusedKernel& kernel, const Graph& body, SymbolValues symbols,
                           c10::Device device);

}  // namespace gt
