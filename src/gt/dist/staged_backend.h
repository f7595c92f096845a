// Lets a backend that communicates from host memory serve tensors on a GPU: operands are copied to
// host memory, the inner backend communicates there, and results are copied back. So gloo works on
// GPUs, also where several ranks share one, which nccl refuses (--debug.share_gpu). The bits are those
// of the inner backend on the CPU.
//
// To its caller it behaves like nccl. A collective begins after everything that the issuing thread's
// current stream has been given so far, and wait() makes the current stream wait for the results.
// Copies run on two streams of the group's own, one for each direction. In one respect it differs:
// wait() also blocks the host until the ranks have communicated. (A stream could instead wait for a
// number that a host thread writes, but streams share hardware queues: where all ranks are on one GPU,
// the waiting streams of one rank can keep those of another from running, for ever.)
//
// A thread of the group's own runs its collectives one after another, in the order they were issued.
// Those that have not begun when the group is destroyed fail.
//
// Tensors in host memory take the same way, without streams.
#pragma once

#include "gt/dist/backends.h"

namespace gt {

BackendPtr MakeStagedBackend(BackendPtr inner, const Group& group);

}  // namespace gt
