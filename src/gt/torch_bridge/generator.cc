#include "gt/torch_bridge/generator.h"

#include <ATen/Context.h>
#include <torch/library.h>

#include <mutex>

namespace gt {
namespace {

std::optional<at::Generator>& OfThisThread() {
  thread_local std::optional<at::Generator> generator;
  return generator;
}

at::Generator For(c10::Device device) {
  std::optional<at::Generator>& own = OfThisThread();
  if (own && own->device().type() == device.type()) return *own;
  return at::globalContext().defaultGenerator(device);
}

at::Tensor GeneratorState(c10::Device device) {
  at::Generator generator = For(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

at::Tensor SetGeneratorState(const at::Tensor& state, c10::Device device) {
  at::Generator generator = For(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_state(state);
  return before;
}

}  // namespace

std::optional<at::Generator> CurrentGenerator() { return OfThisThread(); }

bool IsCurrentGenerator(const at::Generator& generator) {
  return OfThisThread() && generator == *OfThisThread();
}

// A clone, since the class of a GPU's generators is known to libtorch's CUDA library alone.
GeneratorScope::GeneratorScope(c10::Device device) : outer_(OfThisThread()) {
  at::Generator of_process = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(of_process.mutex());
  OfThisThread() = of_process.clone();
  OfThisThread()->set_current_seed(c10::default_rng_seed_val);
}

GeneratorScope::~GeneratorScope() { OfThisThread() = outer_; }

void SeedGenerator(c10::Device device, uint64_t seed) {
  at::Generator generator = For(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace gt

// Not every node has a tensor among its operands that would lead the dispatcher to a device.
TORCH_LIBRARY_FRAGMENT(gt, library) {
  library.def("generator_state(Device device) -> Tensor");
  library.def("set_generator_state(Tensor state, Device device) -> Tensor");
}

TORCH_LIBRARY_IMPL(gt, CompositeExplicitAutograd, library) {
  library.impl("generator_state", gt::GeneratorState);
  library.impl("set_generator_state", gt::SetGeneratorState);
}
