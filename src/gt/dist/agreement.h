// What the ranks of a job must have in common, compared before the first step: an error at the start
// instead of a hang in the middle.
#pragma once

#include <string>
#include <string_view>

#include "gt/config/config.h"
#include "gt/dist/world.h"
#include "gt/ir/graph.h"

namespace gt {

// Version of the program and every option. Fails with RanksDisagree, naming the first line that
// differs, on every rank.
void AgreeOnConfig(World& world, const Config& config);
// As a program of that version would.
void AgreeOnConfig(World& world, const Config& config, std::string_view version);

// The collectives of the step, in order: kind, group, sizes, dtype. The same failure.
void AgreeOnCollectives(World& world, const Graph& graph);

// Compares any text by lines with that of the first rank; `what` says what it is, for the message.
void AgreeOnText(World& world, const std::string& what, const std::string& text);

// One line for each collective, as AgreeOnCollectives compares them.
std::string CollectiveSequence(const Graph& graph);

}  // namespace gt
