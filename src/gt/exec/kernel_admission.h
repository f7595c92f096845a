// Whether a generated kernel may take the place of its operators.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <string_view>

#include "gt/exec/fused_kernels.h"

namespace gt {

struct Verdict {
  bool same_bits = false;
  std::string reason;  // why it is left to its operators; empty: admitted

  bool admitted() const { return reason.empty(); }
};

// Runs the kernel and its operators on the same inputs, at the sizes that `symbols` give: views that begin
// at odd places, numbers of all magnitudes, numbers whose sums cancel, then arbitrary bits, infinities, NaN,
// zeros of both signs and subnormal numbers; small tensors several times over. Admits it if all results have
// equal bits and it takes no longer.
Verdict Admit(const FusedKernel& kernel, const Graph& body, SymbolValues symbols,
              c10::Device device);

// As it is kept on disk.
std::string Stored(const Verdict& verdict);
std::optional<Verdict> VerdictFrom(std::string_view stored);

}  // namespace gt
