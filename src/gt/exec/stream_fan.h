// Work that is independent, side by side: on a GPU each part runs on a stream of its own, because one
// launch of libtorch's list kernels leaves much of the memory's bandwidth unused; elsewhere the parts
// run one after another.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>

namespace gt {

// How many parts are worth while on a device.
size_t StreamFanWidth(c10::Device device);

// Calls body(0) ... body(parts - 1). What was queued before runs before all of them, what is
// queued after runs after all of them.
void RunSideBySide(c10::Device device, size_t parts, const std::function<void(size_t)>& body);

}  // namespace gt
