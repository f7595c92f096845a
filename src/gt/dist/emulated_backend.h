// Collectives of ranks that are not there. One real rank runs; every collective takes the time that
// the links of a described cluster would need, and its result is made of this rank's own data, of the
// right size. Each process group is a queue of its own: its collectives run one after another, beside
// those of other groups.
//
// On the CPU a queue is a thread that copies and then sleeps. On a GPU it is a stream that waits for a
// number in host memory, which a timer thread writes when the time has come: no multiprocessor is
// occupied while a collective is under way.
#pragma once

#include <memory>
#include <string>

#include "gt/dist/backends.h"

namespace gt {

// What all groups of a job share: the links, and the timer. `cluster` is a name in configs/clusters or
// a path; times are multiplied by `scale`.
std::shared_ptr<void> MakeEmulation(const std::string& cluster, double scale);

BackendPtr MakeEmulatedBackend(const std::shared_ptr<void>& emulation, const Group& group);

}  // namespace gt
