// Faults on purpose: --debug.fault kind:rank:step makes one rank fail at the beginning of a step, so
// that what the other ranks do can be tried.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace gt {

struct Fault {
  enum class Kind { kKill, kSleep, kThrow, kMemory };
  Kind kind = Kind::kKill;
  int64_t rank = 0;
  int64_t step = 0;

  // Fails, if it is this rank's turn. kMemory leaves the device no memory beyond what is in use, so that
  // the step runs out of it.
  void Strike(int64_t at_rank, int64_t at_step, c10::Device device) const;
};

// Nothing for an empty text; BadOptionValue for one that is no fault.
std::optional<Fault> ParseFault(const std::string& text);

}  // namespace gt
