// What the ranks of a job must have in common, compared before the first step: an error at the start
// instead of a hang in the middle.
//
// Hashes are compared first; texts are sent only when they differ, to say where. Each rank reads one
// hash for each thing compared, so that the cost is linear in the number of ranks. All functions here
// are called by all ranks, and fail on all: with RanksDisagree where a rank differs, with RankFailed
// elsewhere.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gt/dist/world.h"
#include "gt/ir/graph.h"

namespace gt {

struct Config;

// Version of the program and every option. The message names the first line that differs.
void AgreeOnConfig(World& world, const Config& config);
// As a program of that version would.
void AgreeOnConfig(World& world, const Config& config, std::string_view version);

// The communication of the step. All ranks must launch the same collectives and wait for them in the
// same order (a backend may communicate in a wait: dist/ordered_gloo.h). Sizes must be equal within
// each process group; those of other groups may differ, as the shards that replicas sum do. Groups
// that the graph names must exist in `world`.
void AgreeOnCollectives(World& world, const Graph& graph);

// Compares any text by lines with that of the first rank; `what` says what it is and `advice` what to
// change, for the message.
void AgreeOnText(World& world, const std::string& what, const std::string& text,
                 std::string_view advice = "all ranks must come to the same");

// One line for each collective and each wait in the order of the graph, without sizes: what
// AgreeOnCollectives compares with the first rank of the job.
std::string CollectiveSequence(const Graph& graph);

// By process group: one line with the operands' sizes for each of its collectives. What
// AgreeOnCollectives compares with the first rank of the group.
std::map<std::string, std::string> CollectiveSizes(const Graph& graph);

}  // namespace gt
