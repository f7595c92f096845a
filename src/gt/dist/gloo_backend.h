// Gloo: collectives from host memory, over sockets. Tensors on a GPU go through host memory
// (dist/staged_backend.h).
#pragma once

#include <memory>
#include <string>

namespace gt {

// Sockets that gloo groups of one rank share. `address` is this machine's, as the other ranks see it;
// empty: that of its name.
std::shared_ptr<void> MakeGlooDevice(const std::string& address);

}  // namespace gt
