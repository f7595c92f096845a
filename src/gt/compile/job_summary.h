// Gathers what the summary of a planning command says (report/job_summary.h).
#pragma once

#include <c10/core/Device.h>

#include "gt/compile/job_cluster.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/models/model.h"
#include "gt/report/job_summary.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/timeline.h"

namespace gt {

struct Config;

// What a summary says of the job alone: ranks, batch, arithmetic, and the memory that a rank may use. A graph
// from a file has no model: null.
JobSummary SummaryOfJob(const Config& config, const Mesh& mesh, c10::Device device,
                        const LanguageModel* model, const JobCluster& cluster);

// Adds memory and time of its step.
void AddStep(JobSummary& summary, const Config& config, const MemoryCurve& memory,
             const Timeline& timeline, const JobCluster& cluster);

}  // namespace gt
