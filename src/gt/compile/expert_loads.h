// How many tokens the experts of a job are expected to get: what --debug.moe_load brings about.
#pragma once

#include "gt/compile/step_request.h"
#include "gt/passes/placement/apply_placement.h"
#include "gt/sim/routing_loads.h"

namespace gt {

// Makes the routers of the model bring about the given loads; nothing for loads that routers decide.
void ForceLoads(LanguageModel& model, const MoeLoad& load);

// Loads of the model's experts, for plans and predictions that are made before a step has run.
ExpectedRouting ConfiguredLoads(LanguageModel& model, const Config& config, const Mesh& mesh);

// Those of them that the step of this rank is planned for. One rank that represents all runs with
// its own; the ranks of a real job wait for the fullest.
RoutingLoads LoadsToPlanFor(const StepRequest& request);
// The same of a placed step, whose plan says along which axes the experts of each layer are spread.
RoutingLoads LoadsToPlanFor(const StepRequest& request, const PlacedStep& placed,
                            const placement::DeviceMesh& mesh);

}  // namespace gt
