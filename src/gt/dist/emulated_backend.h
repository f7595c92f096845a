// Collectives of ranks that are not there. One real rank runs; every collective takes the time that
// the links of a described cluster would need, and its result is made of this rank's own data, of the
// right size. Each process group is a queue of its own: its collectives run one after another, beside
// those of other groups.
//
// With contention, collectives of different groups that are under way at the same time share the links
// (sim/shared_links.h), and on a GPU they occupy as many multiprocessors as the cluster says.
//
// On the CPU a queue is a thread that copies and then sleeps. On a GPU it is a stream that waits for a
// number in host memory, which a thread writes when the time has come. With contention it waits in a
// kernel that occupies multiprocessors (dist/multiprocessor_claim.h); without, no multiprocessor is
// occupied while a collective is under way. The time of a collective begins when the device has
// reached it. Not emulated: the memory bandwidth that the kernels of a collective use.
#pragma once

#include <memory>
#include <string>

#include "gt/dist/backends.h"
#include "gt/dist/link_clock.h"

namespace gt {

// What all groups of a job share: the links, and what they take from compute. `cluster` is a name in
// configs/clusters or a path; times, latencies as well as transfers, are multiplied by `scale`.
// Without `contention` every collective takes the time it takes alone, and nothing else.
std::shared_ptr<void> MakeEmulation(const std::string& cluster, double scale, bool contention);

// When the collectives of a job began and ended, for tests and benchmarks.
LinkClock& ClockOf(const std::shared_ptr<void>& emulation);

BackendPtr MakeEmulatedBackend(const std::shared_ptr<void>& emulation, const Group& group);

}  // namespace gt
