// The step that the flags of a command configure, for commands that look at steps and run none.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "gt/compile/compile.h"
#include "gt/compile/job_cluster.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/models/model.h"
#include "gt/report/job_summary.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/timeline.h"

namespace gt {

struct Config;

namespace cli {

// Nothing runs in these commands: one process represents all ranks.
//
// Commands that plan a job (info, memory, simulate, place): a device that is auto is a GPU of the configured
// cluster, whatever this machine has, and without --ranks there are as many as the degrees need.
void PlanForCluster(Config* config);
// Commands that show a step (trace, draw): auto is the device that gt train would choose here.
void ShowStepOfThisMachine(Config* config);

// Of a configuration whose device is not auto. A step for a GPU can be looked at on a machine without one.
c10::Device DeviceOf(const Config& config);

struct ConfiguredStep {
  Mesh mesh = Mesh();
  ModelPtr model = nullptr;  // null: the step comes from a file
  CompiledStep step = {};
};
// The step of this rank, without memory for its model.
ConfiguredStep CompileConfigured(const Config& config, World& world,
                                 const JobCluster& cluster = {});

// Of the flag --tokens, and what the help of a planning command ends with.
inline constexpr const char* kTokensHelp =
    "tokens to train on in all: says how many days and device hours that takes";
inline constexpr const char* kPlanningHelp =
    "A device that is auto is a GPU of --comm.cluster, whatever this machine has; with --device "
    "cpu up\n"
    "to 32 ranks count as threads of this machine, which is measured. Exit status 2: it does not "
    "fit.\n";

// The exit status of a command whose summary says that the job does not fit.
inline constexpr int kDoesNotFitStatus = 2;

// The summary of a planned step, with advice where it does not fit.
JobSummary Summarize(const Config& config, World& world, const ConfiguredStep& planned,
                     const MemoryCurve& memory, const Timeline& timeline, const JobCluster& cluster,
                     int64_t tokens);

}  // namespace cli
}  // namespace gt
