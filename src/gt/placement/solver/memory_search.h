// Local search among labellings that fit into the memory: small connected parts are relabelled
// together, as long as that saves something and everything still fits.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "gt/placement/solver/core_graph.h"
#include "gt/placement/solver/deadline.h"
#include "gt/placement/solver/forest_search.h"
#include "gt/placement/solver/moment_load.h"

namespace gt::placement {

class MemorySearch {
 public:
  MemorySearch(const CoreGraph& core, const Deadline& deadline);

  // Raises prices where memory is over-full until labels that are cheap at these prices fit. False:
  // they still do not after so many rounds.
  bool Repair(std::vector<int32_t>& x, std::vector<double> prices, int rounds);
  // Improves a labelling that fits; prices steer which parts give memory to others.
  void Improve(std::vector<int32_t>& x, const std::vector<double>& prices, int64_t rounds,
               double seconds);

 private:
  void RaisePrices(const std::vector<int64_t>& loads, std::vector<double>& prices) const;
  void SetCosts(const std::vector<double>& prices);
  void GrowPart();
  void TryPart(std::vector<int32_t>& x, double scale);
  double CostAround(const std::vector<int32_t>& x) const;
  void Move(const std::vector<int32_t>& x, int64_t sign);

  const CoreGraph& core_;
  const Deadline& deadline_;
  ForestSearch forest_;
  MomentLoad load_;
  std::mt19937_64 random_{2025};
  std::vector<double> label_prices_;  // by label of the core
  std::vector<double> costs_;         // by label, with prices
  std::vector<int32_t> part_;
  std::vector<int32_t> before_;  // labels of the part
  std::vector<char> in_part_;
};

}  // namespace gt::placement
