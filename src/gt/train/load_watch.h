// Whether a step is still planned for the tokens that its experts get. Every run of a captured step
// reads how many rows arrive from each rank; this adds them up, and on steps that follow from their
// number alone all ranks compare what they have: mean and maximum of every layer. When that is far
// from what the step was planned for, it is worth a new plan. All ranks reach the same answer with
// the same loads, so their plans are identical.
//
// Between those steps it adds a few numbers that the run has read anyway: no communication, and
// nothing that waits for the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gt/dist/world.h"
#include "gt/ir/graph.h"
#include "gt/sim/routing_loads.h"

namespace gt {

class LoadWatch {
 public:
  // Share of the rows that exchanges move, by which loads may be off before a new plan pays. Loads of
  // a real router differ by a few percent from one stretch of steps to the next, and an exchange that
  // takes a tenth more or less than planned is still hidden by the same compute: schedules keep about
  // that much slack. Beyond it, what does not fit shows in the step.
  static constexpr double kTolerance = 0.10;

  // What the ranks agree on after a step.
  struct Agreement {
    RoutingLoads loads;  // mean over the steps since the last agreement, the same on every rank
    RoutingLoads planned;
    double drift = 0.0;  // LoadDrift(planned, loads)
    bool renew = false;  // the drift is beyond the tolerance
    double imbalance = 1.0;
    // "experts of the fullest rank get 1.84 x the even share of rows (layers.7.moe 2.31 x); the step
    // was planned for 1.00 x"
    std::string Describe() const;
  };

  // Ranks compare after the second and the fourth step of the run, and then every `interval` steps; 0:
  // never. `first_step` is the number of the run's first step: after a resume, not 1. The same on all
  // ranks. `world` must outlive this.
  LoadWatch(World& world, int64_t interval, int64_t first_step = 1);

  // From now on the step is this graph, and `loads` (empty: even ones) are what it was planned for. Call
  // at the start and after every new plan, whether the loads or the graph have changed or not.
  void SetPlan(const Graph& graph, RoutingLoads loads);

  // After each run of the graph, with the values of its symbols (Program::symbol_values). A step of
  // several batches has several runs.
  void Add(SymbolValues values);

  // After every step, on all ranks. Nothing on steps without a comparison, and for models without
  // exchanges of tokens. A rank that represents all ranks has only its own loads.
  std::optional<Agreement> AfterStep(int64_t step);

  // Whether ranks compare after this step.
  bool IsDue(int64_t step) const;

 private:
  World& world_;
  int64_t interval_;
  int64_t first_step_;
  RoutingLoads planned_;
  std::optional<CountReads> reads_;
  // By module of reads_: loads of the runs since the last comparison.
  std::vector<double> sums_;
  int64_t runs_ = 0;
};

}  // namespace gt
