// Who this process is among the ranks of a job, as its launcher says through environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gt {

struct RankEnvironment {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;  // among the ranks of this machine: which GPU to take
  int64_t local_size = 0;  // ranks of this machine; 0: not known
  std::string master_address;
  int64_t master_port = 0;
  std::string launcher;  // "gt launch", "torchrun", "slurm", "openmpi": for messages
};

// How variables are looked up; the process's own environment unless a test gives another. A
// variable that is set to nothing counts as one that is not set.
using GetVariable = std::function<std::optional<std::string>(const std::string& name)>;

// Nothing when no launcher started this process. Variables of torchrun (and gt launch) count before
// those of SLURM, those before OpenMPI's. Incomplete or contradicting ones are BadLaunch errors
// that name the variables.
//
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, all of them.
//   slurm      SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID. The master is MASTER_ADDR, or the
//              first host of the step's node list; its port is MASTER_PORT, or 20000 plus the last
//              four digits of SLURM_JOB_ID, which no outgoing connection is given by Linux. One
//              task, and a shell that SLURM runs inside an allocation, are no launch.
//   openmpi    OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_RANK, with MASTER_ADDR and MASTER_PORT:
//              mpirun tells nobody where rank 0 runs. Only when all ranks run on this machine may
//              MASTER_ADDR be missing. One rank is no launch.
std::optional<RankEnvironment> ReadRankEnvironment(const GetVariable& get = {});

// The first name of a node list as SLURM writes them: "node[01-03,07],other5" gives "node01".
// Nothing if the text is no such list.
std::optional<std::string> FirstSlurmHost(std::string_view node_list);

}  // namespace gt
