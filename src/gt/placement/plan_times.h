// What a step under a placement is made of: the time of every kernel, and of every move of a value from
// where it is made to where it is used. Their sum is what the step takes where nothing overlaps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gt/placement/place_problem.h"

namespace gt::placement {

// In microseconds.
struct NodeTime {
  double kernel_us = 0;
  double collective_us = 0;  // of what is exchanged within the operator
  // By operand. What is moved several times in a step, as a parameter that is gathered again for the
  // backward, counts as often.
  std::vector<double> moves_us = {};
  friend bool operator==(const NodeTime&, const NodeTime&) = default;
};

struct PlanTimes {
  // By the name of their first result; "gt::read_ints #7" for a node without results, number 7.
  std::map<std::string, NodeTime> nodes;
  std::map<std::string, double> kept;     // of a value to the layout in which it is kept
  std::map<std::string, double> updates;  // of gradients to their parameters' layouts, by parameter
  std::map<std::string, double> results;  // by name, to the layout in which they are returned

  double TotalUs() const;
  friend bool operator==(const PlanTimes&, const PlanTimes&) = default;
};

// The name by which plans list a value: "x", or "x#1" for the second result of the node of x.
std::string ValueName(const std::string& first, int32_t result);

PlanTimes TimesOf(const PlaceProblem& problem, const std::vector<int32_t>& labels);

}  // namespace gt::placement
