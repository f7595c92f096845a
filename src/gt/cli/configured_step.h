// The step that the flags of a command configure, for commands that look at steps and run none.
#pragma once

#include <c10/core/Device.h>

#include "gt/compile/compile.h"
#include "gt/dist/world.h"

namespace gt {

struct Config;

namespace cli {

// A step for a GPU can be looked at on a machine without one.
c10::Device DeviceOf(const Config& config);

// Of this rank, without memory for its model.
CompiledStep CompileConfigured(const Config& config, World& world);

}  // namespace cli
}  // namespace gt
