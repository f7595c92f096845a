#include "gt/launch/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "gt/base/error.h"

namespace gt::environment_test {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<RankEnvironment> Read(const Variables& variables) {
  return ReadRankEnvironment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables With(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables Torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"MASTER_ADDR", "node3"},
          {"MASTER_PORT", "29500"}};
}

Variables Slurm() {
  return {{"SLURM_PROCID", "3"},       {"SLURM_NTASKS", "4"},
          {"SLURM_LOCALID", "1"},      {"SLURM_STEP_ID", "0"},
          {"SLURM_JOB_ID", "1234567"}, {"SLURM_JOB_NODELIST", "node[07-09],other5"}};
}

Variables OpenMpi() {
  return {{"OMPI_COMM_WORLD_RANK", "2"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
}

std::string Text(const std::optional<RankEnvironment>& found) {
  if (!found) return "none";
  return fmt::format("{}: {} of {}, local {}, {}:{}", found->launcher, found->rank,
                     found->world_size, found->local_rank, found->master_address,
                     found->master_port);
}

TEST(RankEnvironmentTest, ReadsEveryLauncher) {
  const struct {
    Variables variables;
    std::string expected;
  } cases[] = {
      {{}, "none"},
      {{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, "none"},
      {{{"RANK", ""}, {"WORLD_SIZE", " "}}, "none"},
      {Torchrun(), "torchrun: 5 of 8, local 1, node3:29500"},
      {With(Torchrun(), {{"GT_RESTART_COUNT", "0"}}), "gt launch: 5 of 8, local 1, node3:29500"},
      {With(Torchrun(), {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}),
       "torchrun: 0 of 1, local 0, node3:29500"},
      // torchrun inside a SLURM or OpenMPI job is the one that counts.
      {With(Slurm(), Torchrun()), "torchrun: 5 of 8, local 1, node3:29500"},
      {With(OpenMpi(), Torchrun()), "torchrun: 5 of 8, local 1, node3:29500"},
      {Slurm(), "slurm: 3 of 4, local 1, node07:24567"},
      {With(Slurm(), {{"WORLD_SIZE", "4"}}), "slurm: 3 of 4, local 1, node07:24567"},
      {With(Slurm(), {{"SLURM_STEP_NODELIST", "node09"}}), "slurm: 3 of 4, local 1, node09:24567"},
      {With(Slurm(), {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "77"}, {"SLURM_JOB_ID", ""}}),
       "slurm: 3 of 4, local 1, head:77"},
      // One task, an allocation without a step, the shell of salloc, the script of sbatch.
      {With(Slurm(), {{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}),
       "none"},
      {With(Slurm(), {{"SLURM_PROCID", ""}}), "none"},
      {With(Slurm(), {{"SLURM_STEP_ID", "4294967290"}}), "none"},
      {With(Slurm(), {{"SLURM_STEP_ID", ""}, {"ENVIRONMENT", "BATCH"}}), "none"},
      {With(Slurm(), {{"ENVIRONMENT", "BATCH"}}), "slurm: 3 of 4, local 1, node07:24567"},
      {With(OpenMpi(), {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "77"}}),
       "openmpi: 2 of 4, local 0, head:77"},
      {With(OpenMpi(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"MASTER_PORT", "77"}}),
       "openmpi: 2 of 4, local 0, 127.0.0.1:77"},
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "1"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
       "none"},
  };
  for (const auto& [variables, expected] : cases) EXPECT_EQ(Text(Read(variables)), expected);
}

// Each error names the variables that are to blame, and their values.
TEST(RankEnvironmentTest, RefusesWhatIsIncompleteOrContradictory) {
  const struct {
    Variables variables;
    std::vector<std::string> named;
  } cases[] = {
      {With(Torchrun(), {{"RANK", "8"}}), {"RANK=8", "WORLD_SIZE=8"}},
      {With(Torchrun(), {{"RANK", "-1"}}), {"RANK=\"-1\"", "integer from 0"}},
      {With(Torchrun(), {{"RANK", "five"}}), {"RANK=\"five\""}},
      {With(Torchrun(), {{"RANK", "5x"}}), {"RANK=\"5x\""}},
      {With(Torchrun(), {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=\"0\""}},
      {With(Torchrun(), {{"WORLD_SIZE", "99999999999999999999"}}), {"WORLD_SIZE=\"9999"}},
      {With(Torchrun(), {{"LOCAL_RANK", "9"}}), {"LOCAL_RANK=9", "WORLD_SIZE=8"}},
      {With(Torchrun(), {{"MASTER_PORT", "70000"}}), {"MASTER_PORT=\"70000\"", "65535"}},
      {With(Torchrun(), {{"MASTER_PORT", "0"}}), {"MASTER_PORT=\"0\""}},
      {With(Torchrun(), {{"MASTER_ADDR", ""}}), {"RANK=\"5\"", "not MASTER_ADDR;"}},
      {{{"RANK", "0"}}, {"RANK=\"0\"", "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT"}},
      {{{"WORLD_SIZE", "2"}}, {"WORLD_SIZE=\"2\"", "not RANK"}},
      {With(Slurm(), {{"SLURM_LOCALID", ""}}), {"SLURM_PROCID=\"3\"", "not SLURM_LOCALID"}},
      {With(Slurm(), {{"SLURM_NTASKS", "3"}}), {"SLURM_PROCID=3", "SLURM_NTASKS=3"}},
      {With(Slurm(), {{"WORLD_SIZE", "8"}}), {"WORLD_SIZE=8", "SLURM_NTASKS=4"}},
      {With(Slurm(), {{"SLURM_JOB_NODELIST", "node[1-"}}), {"SLURM_JOB_NODELIST=\"node[1-\""}},
      {With(Slurm(), {{"SLURM_JOB_NODELIST", ""}}), {"SLURM_JOB_NODELIST", "MASTER_ADDR"}},
      {With(Slurm(), {{"SLURM_JOB_ID", ""}}), {"SLURM_JOB_ID", "MASTER_PORT"}},
      {OpenMpi(), {"OMPI_COMM_WORLD_RANK=2", "MASTER_ADDR=HOST", "MASTER_PORT=29500"}},
      {With(OpenMpi(), {{"MASTER_ADDR", "head"}}), {"MASTER_ADDR=head", "MASTER_PORT=29500"}},
      {With(OpenMpi(), {{"OMPI_COMM_WORLD_SIZE", ""}}), {"not OMPI_COMM_WORLD_SIZE"}},
      {With(OpenMpi(), {{"WORLD_SIZE", "2"}}), {"WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=4"}},
  };
  for (const auto& [variables, named] : cases) {
    try {
      ADD_FAILURE() << "accepted as " << Text(Read(variables)) << " in spite of " << named[0];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadLaunch);
      for (const std::string& part : named) {
        EXPECT_NE(error.message().find(part), std::string::npos)
            << part << " in: " << error.message();
      }
    }
  }
}

TEST(RankEnvironmentTest, ReadsTheEnvironmentOfTheProcess) {
  ASSERT_EQ(std::getenv("RANK"), nullptr);
  setenv("RANK", "7", 1);
  EXPECT_THROW(ReadRankEnvironment(), Error);
  unsetenv("RANK");
}

TEST(FirstSlurmHostTest, ExpandsTheFirstName) {
  const struct {
    std::string list;
    std::optional<std::string> expected;
  } cases[] = {
      {"node1", "node1"},
      {"node1,node2", "node1"},
      {"node[01-03,07],other5", "node01"},
      {"node[7,9]", "node7"},
      {"node[007]", "node007"},
      {"gpu-a[3-4].cluster", "gpu-a3.cluster"},
      {"rack[2-3]node[01-16]", "rack2node01"},
      {"other5,node[01-03]", "other5"},
      {"", std::nullopt},
      {",node1", std::nullopt},
      {"node[", std::nullopt},
      {"node[]", std::nullopt},
      {"node[-3]", std::nullopt},
      {"node[a-b]", std::nullopt},
      {"node]1", std::nullopt},
  };
  for (const auto& [list, expected] : cases) EXPECT_EQ(FirstSlurmHost(list), expected) << list;
}

}  // namespace
}  // namespace gt::environment_test
