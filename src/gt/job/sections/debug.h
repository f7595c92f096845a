// [debug]: for measurements and tests.
#pragma once

#include <string>

#include "gt/config/option_struct.h"

namespace gt {

struct DebugSection {
  GT_OPTION(bool, moe_force_load_balance, false, Any(),
            "send tokens to experts in turn instead of where the router says, so that every expert "
            "gets equally many; the same as moe_load balanced");
  GT_OPTION(std::string, moe_load, "router", NotEmpty(),
            "where tokens go: router, to the experts it chooses; balanced, to all in turn; zipf:S, "
            "to the r-th most popular expert with weight r^-S; or a .json file with the weight of "
            "every expert");
  GT_OPTION(bool, collectives_of_one, false, Any(),
            "run collectives also in groups of one rank, where they change nothing");
  GT_OPTION(bool, share_gpu, false, Any(),
            "let all ranks of a machine, threads or processes, run on its first GPU and "
            "communicate through host memory (gloo): tries on one GPU what many would do");
  GT_OPTION(bool, free_collectives, false, Any(),
            "with comm.backend emulated: run collectives in no time, in a step that is planned as "
            "if they took theirs; shows what its compute alone takes");
  GT_OPTION(bool, fill_memory, false, Any(),
            "with training.deterministic: fill memory with NaN before it is used, so that a kernel "
            "that reads what nothing has written changes the state hash");
  GT_OPTION(double, host_memory_gb, 0.0, Within(0, 1048576),
            "GiB of host memory that offloaded activations find on this machine, to try what "
            "happens when it is full; 0: what there is");
  GT_OPTION(std::string, fault, "", Any(),
            "kind:rank:step, to try what happens when a rank fails: kill, sleep, throw or memory "
            "(there is no more of it)");
  GT_END_OPTIONS(DebugSection);
};

}  // namespace gt
