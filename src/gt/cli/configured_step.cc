#include "gt/cli/configured_step.h"

#include "gt/compile/configured_model.h"
#include "gt/dist/mesh.h"
#include "gt/job/config.h"

namespace gt::cli {

c10::Device DeviceOf(const Config& config) {
  return config.device == DeviceChoice::kCuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

CompiledStep CompileConfigured(const Config& config, World& world) {
  const Mesh mesh(config.parallelism, world.size(), world.rank());
  const ModelPtr model = BuildConfiguredModel(config, world, mesh);
  return Compile({.model = *model,
                  .config = config,
                  .device = DeviceOf(config),
                  .mesh = mesh,
                  .world = &world});
}

}  // namespace gt::cli
