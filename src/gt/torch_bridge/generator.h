// Where random numbers of a step come from: libtorch's generator of the device. A device has one for
// the whole process, from which ranks that are threads of it would draw in any order; so each such
// rank brings its own.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace gt {

// What to hand to operators that take a generator: that of this thread's GeneratorScope, or none,
// which to libtorch means the device's own.
std::optional<at::Generator> CurrentGenerator();
bool IsCurrentGenerator(const at::Generator& generator);

// While it lives, this thread's random numbers for a device come from a generator of its own:
// one that is new, and seeded alike draws what the device's would.
class GeneratorScope {
 public:
  explicit GeneratorScope(c10::Device device = c10::kCPU);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  std::optional<at::Generator> outer_;
};

// What this thread draws next is as if the generator was new. Cheap: once a step.
void SeedGenerator(c10::Device device, uint64_t seed);

}  // namespace gt
