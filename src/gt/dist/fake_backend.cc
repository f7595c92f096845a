// The backend fake: groups of ranks that are not there, which send nothing.
#include "gt/dist/backends.h"
#include "gt/dist/idle_backend.h"

namespace gt {
namespace {

const BackendRegistration kFakeBackend(CommBackend::kFake,
                                       [](const BackendRequest& request) -> BackendPtr {
                                         return c10::make_intrusive<IdleBackend>(
                                             static_cast<int>(request.group.index),
                                             static_cast<int>(request.group.size()));
                                       });

}  // namespace
}  // namespace gt
