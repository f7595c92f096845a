// What to change when memory refuses a step or holds it back.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "gt/compile/job_cluster.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/passes/framework/manager.h"

namespace gt {

struct Config;

// The peak of the step with other options, each as a line with its command line flag, and whether that
// would be within `available` bytes. Captures the step once for each, which takes no memory to speak
// of. Ends in a newline.
std::string MemoryAdvice(const Config& config, World& world, const Mesh& mesh, c10::Device device,
                         int64_t available, const JobCluster& cluster = {});

// Of a schedule: what it could not do for lack of memory, and how much more would bring how much, as a
// line for people; empty if memory did not hold it back.
std::string WhatMemoryCosts(const PipelineReport& passes);

}  // namespace gt
