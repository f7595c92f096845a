#include "gt/launch/environment.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

constexpr int64_t kMaxPort = 65535;
constexpr int64_t kSlurmPortBase = 20000;
constexpr int64_t kSlurmPorts = 10000;
// SLURM numbers its own steps from the top of 32 bits down: the shell of salloc is 0xfffffffa, the
// script of sbatch 0xfffffffb.
constexpr int64_t kFirstOwnSlurmStep = 0xfffffff0;

constexpr const char* kRank = "RANK";
constexpr const char* kWorldSize = "WORLD_SIZE";
constexpr const char* kLocalRank = "LOCAL_RANK";
constexpr const char* kMasterAddress = "MASTER_ADDR";
constexpr const char* kMasterPort = "MASTER_PORT";

// What one launcher calls the three numbers that every launcher sets.
struct Names {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;  // may be missing
};
constexpr Names kTorchrun = {"torchrun", kRank, kWorldSize, kLocalRank, "LOCAL_WORLD_SIZE"};
constexpr Names kSlurm = {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                          "SLURM_NTASKS_PER_NODE"};
constexpr Names kOpenMpi = {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

std::optional<std::string> OfThisProcess(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

class Variables {
 public:
  explicit Variables(const GetVariable& get) : get_(get ? get : OfThisProcess) {}

  std::optional<std::string> Find(const char* name) const {
    std::optional<std::string> value = get_(name);
    if (value && Trim(*value).empty()) return std::nullopt;
    return value;
  }

  bool Has(const char* name) const { return Find(name).has_value(); }

  std::optional<int64_t> FindNumber(const char* name, int64_t min, int64_t max) const {
    const std::optional<std::string> value = Find(name);
    if (!value) return std::nullopt;
    const std::string_view text = Trim(*value);
    int64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end != text.data() + text.size() || number < min ||
        number > max) {
      Fail(ErrorCode::kBadLaunch, "the environment variable {}={} must be an integer from {} to {}",
           name, Quoted(*value), min, max);
    }
    return number;
  }

  // `names` are all needed once one of them shows that the launcher is at work.
  void Require(const char* launcher, std::initializer_list<const char*> names) const {
    std::vector<std::string> set;
    std::vector<std::string> missing;
    for (const char* name : names) {
      const std::optional<std::string> value = Find(name);
      if (value) {
        set.push_back(fmt::format("{}={}", name, Quoted(*value)));
      } else {
        missing.emplace_back(name);
      }
    }
    if (missing.empty()) return;
    Fail(ErrorCode::kBadLaunch,
         "the environment has {}, as {} sets them, but not {}; start every rank with gt launch, "
         "torchrun, srun or mpirun, or unset them to run as one process",
         Join(set, ", "), launcher, Join(missing, ", "));
  }

 private:
  GetVariable get_;
};

constexpr int64_t kMaxRanks = int64_t{1} << 31;

RankEnvironment ReadNumbers(const Variables& variables, const Names& names) {
  variables.Require(names.launcher, {names.rank, names.world_size, names.local_rank});
  RankEnvironment found;
  found.launcher = names.launcher;
  found.rank = *variables.FindNumber(names.rank, 0, kMaxRanks);
  found.world_size = *variables.FindNumber(names.world_size, 1, kMaxRanks);
  found.local_rank = *variables.FindNumber(names.local_rank, 0, kMaxRanks);
  found.local_size = variables.FindNumber(names.local_size, 1, kMaxRanks).value_or(0);
  if (found.rank >= found.world_size) {
    Fail(ErrorCode::kBadLaunch, "{}={} is not below {}={}: ranks count from 0", names.rank,
         found.rank, names.world_size, found.world_size);
  }
  if (found.local_rank >= found.world_size) {
    Fail(ErrorCode::kBadLaunch,
         "{}={} is not below {}={}: a machine cannot have more ranks than the job",
         names.local_rank, found.local_rank, names.world_size, found.world_size);
  }
  return found;
}

// Scripts for SLURM and OpenMPI often export WORLD_SIZE for other programs. It does no harm as long
// as it says the same.
void CheckWorldSizeAgrees(const Variables& variables, const Names& names,
                          const RankEnvironment& found) {
  const std::optional<int64_t> other = variables.FindNumber(kWorldSize, 1, kMaxRanks);
  if (other && *other != found.world_size) {
    Fail(ErrorCode::kBadLaunch,
         "{}={} and {}={} contradict each other; unset {} or start that many ranks", kWorldSize,
         *other, names.world_size, found.world_size, kWorldSize);
  }
}

bool StartedByTorchrun(const Variables& variables) {
  if (variables.Has(kRank) || variables.Has(kLocalRank)) return true;
  return variables.Has(kWorldSize) && !variables.Has(kSlurm.rank) && !variables.Has(kOpenMpi.rank);
}

RankEnvironment ReadTorchrun(const Variables& variables) {
  variables.Require(kTorchrun.launcher,
                    {kRank, kWorldSize, kLocalRank, kMasterAddress, kMasterPort});
  RankEnvironment found = ReadNumbers(variables, kTorchrun);
  if (variables.Has("GT_RESTART_COUNT")) found.launcher = "gt launch";
  found.master_address = *variables.Find(kMasterAddress);
  found.master_port = *variables.FindNumber(kMasterPort, 1, kMaxPort);
  return found;
}

// The shells that salloc and sbatch give their users look like task 0 of as many tasks as were
// allocated. Taken for a rank, gt would wait there for ranks that nobody starts.
bool IsShellOfSlurm(const Variables& variables) {
  const std::optional<int64_t> step =
      variables.FindNumber("SLURM_STEP_ID", 0, std::numeric_limits<int64_t>::max());
  if (step) return *step >= kFirstOwnSlurmStep;
  return variables.Find("ENVIRONMENT") == "BATCH";
}

std::string SlurmMaster(const Variables& variables) {
  if (const auto address = variables.Find(kMasterAddress)) return *address;
  // Rank 0 runs on the first node of the step, which need not be the first of the job.
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const std::optional<std::string> list = variables.Find(name);
    if (!list) continue;
    const std::optional<std::string> host = FirstSlurmHost(*list);
    if (host) return *host;
    Fail(ErrorCode::kBadLaunch,
         "{}={} is no list of hosts such as node[01-03,07],other5; set MASTER_ADDR to the host of "
         "rank 0",
         name, Quoted(*list));
  }
  Fail(ErrorCode::kBadLaunch,
       "{} is set, but neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST says where rank 0 runs; "
       "set MASTER_ADDR to its host",
       kSlurm.rank);
}

int64_t SlurmPort(const Variables& variables) {
  if (const auto port = variables.FindNumber(kMasterPort, 1, kMaxPort)) return *port;
  const std::optional<int64_t> job =
      variables.FindNumber("SLURM_JOB_ID", 0, std::numeric_limits<int64_t>::max());
  if (!job) {
    Fail(ErrorCode::kBadLaunch,
         "{} is set, but neither MASTER_PORT nor SLURM_JOB_ID, from which the port would follow; "
         "set MASTER_PORT to the same free port for all ranks",
         kSlurm.rank);
  }
  return kSlurmPortBase + *job % kSlurmPorts;
}

std::optional<RankEnvironment> ReadSlurm(const Variables& variables) {
  if (IsShellOfSlurm(variables)) return std::nullopt;
  RankEnvironment found = ReadNumbers(variables, kSlurm);
  if (found.world_size == 1) return std::nullopt;
  CheckWorldSizeAgrees(variables, kSlurm, found);
  found.master_address = SlurmMaster(variables);
  found.master_port = SlurmPort(variables);
  return found;
}

std::optional<RankEnvironment> ReadOpenMpi(const Variables& variables) {
  RankEnvironment found = ReadNumbers(variables, kOpenMpi);
  if (found.world_size == 1) return std::nullopt;
  CheckWorldSizeAgrees(variables, kOpenMpi, found);
  const std::optional<std::string> address = variables.Find(kMasterAddress);
  const std::optional<int64_t> port = variables.FindNumber(kMasterPort, 1, kMaxPort);
  const bool one_machine = found.local_size == found.world_size;
  if ((!address && !one_machine) || !port) {
    Fail(ErrorCode::kBadLaunch,
         "mpirun set {}={} and {}={}, but nothing says where the ranks meet; pass the host of rank "
         "0 and a free port to all: mpirun -x MASTER_ADDR={} -x MASTER_PORT={} ...",
         kOpenMpi.rank, found.rank, kOpenMpi.world_size, found.world_size,
         address.value_or(one_machine ? "127.0.0.1" : "HOST"), port.value_or(29500));
  }
  found.master_address = address.value_or("127.0.0.1");
  found.master_port = *port;
  return found;
}

}  // namespace

std::optional<std::string> FirstSlurmHost(std::string_view node_list) {
  std::string host;
  std::string_view rest = Trim(node_list);
  while (!rest.empty() && rest.front() != ',') {
    if (rest.front() == ']') return std::nullopt;
    if (rest.front() != '[') {
      host += rest.front();
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view numbers = rest.substr(1, end - 1);
    const std::string_view first = numbers.substr(0, numbers.find_first_of(",-"));
    if (first.empty() || first.find_first_not_of("0123456789") != std::string_view::npos) {
      return std::nullopt;
    }
    host += first;
    rest.remove_prefix(end + 1);
  }
  if (host.empty()) return std::nullopt;
  return host;
}

std::optional<RankEnvironment> ReadRankEnvironment(const GetVariable& get) {
  const Variables variables(get);
  if (StartedByTorchrun(variables)) return ReadTorchrun(variables);
  if (variables.Has(kSlurm.rank)) return ReadSlurm(variables);
  if (variables.Has(kOpenMpi.rank)) return ReadOpenMpi(variables);
  return std::nullopt;
}

}  // namespace gt
