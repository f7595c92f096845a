// Times the operators of a step on the device they will run on, each on its own, so that schedules
// are made of what this machine does and not of what such machines are said to do.
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "gt/ir/graph.h"
#include "gt/sim/cost_model.h"

namespace gt {

// Adds what `table` does not know yet of the graph's nodes, at the hints of its symbols: one entry
// for all nodes that do the same work. Collectives, random operators and those whose time depends on
// what is in their operands (beyond indices) are left out; so is what does not fit into memory.
// `progress` hears of the share that is done. Returns how many were measured.
int64_t MeasureCosts(const Graph& graph, c10::Device device, CostTable* table,
                     const std::function<void(double)>& progress = {});

}  // namespace gt
