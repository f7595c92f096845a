// Placement problems for tests and benchmarks: small random ones that can be enumerated, and ones
// shaped like a stack of transformer layers. The same seed gives the same problem.
#pragma once

#include <cstdint>
#include <string>

#include "gt/placement/search/step_problem.h"
#include "gt/placement/solver/label_problem.h"

namespace gt::testing {

// Up to 8 variables of up to 4 labels, with forbidden labels and pairs, parallel edges, ties.
placement::LabelProblem RandomLabelProblem(uint64_t seed, bool with_memory);

// Layers of an attention and a feed-forward block over a mesh of `axes` axes: every matmul and
// elementwise operator is a variable whose labels say how it is sharded along each axis (5 to the
// power of `axes`), parameters are variables of their own, edges cost redistribution.
placement::LabelProblem LayeredLabelProblem(int layers, int axes);

// A square grid of variables with random costs, which hardly anything reduces. With memory, what
// fits is a quarter of the way from the least that labels can use to the most.
placement::LabelProblem GridLabelProblem(uint64_t seed, int side, int labels, bool with_memory);

// The cheapest allowed cost, by trying everything; infinite if nothing is allowed.
double EnumeratedOptimum(const placement::LabelProblem& problem);

// A small random problem whose costs are shared out among what is visible, kernels and moves.
placement::StepProblem RandomStepProblem(uint64_t seed, bool with_memory);

// The least time of a step, with `over_price` for each byte above the limit (infinite: none may be), by
// trying everything; infinite if nothing is allowed.
double EnumeratedStep(const placement::StepProblem& problem, double over_price);

// The problem as an integer linear program in the LP format: a binary variable for each label, one
// between 0 and 1 for each pair of labels that costs something.
std::string LinearProgramText(const placement::StepProblem& problem);

}  // namespace gt::testing
