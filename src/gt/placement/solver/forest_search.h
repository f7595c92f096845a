// Local search with large neighbourhoods: vertices that form a forest are relabelled together, at
// the least cost beside the labels of all others. Single vertices, pairs and stars are the smallest
// of these forests; random ones usually hold most of a sparse graph.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "gt/placement/solver/core_graph.h"

namespace gt::placement {

class ForestSearch {
 public:
  explicit ForestSearch(const CoreGraph& core);

  // Relabels a random forest among `among` (all vertices if empty) at the least cost. `costs` are
  // those of all labels of the core, with prices of memory if there are any.
  void Relabel(std::vector<int32_t>& x, std::span<const double> costs,
               std::span<const int32_t> among = {});

  // What a labelling costs, with a large cost instead of an infinite one for what is forbidden.
  double CappedCost(const std::vector<int32_t>& x, std::span<const double> costs) const;
  double cap() const { return cap_; }

 private:
  struct Step {
    int32_t vertex;
    int32_t parent;  // -1: a root
    int32_t link;
  };

  void ChooseForest(std::span<const int32_t> among);
  void OrderForest();
  int32_t Root(int32_t v);
  // Adds to `sums`, by label of `v`, what a link costs beside the other end's label.
  void AddBeside(int32_t l, int32_t v, const std::vector<int32_t>& x, double* sums) const;

  const CoreGraph& core_;
  double cap_ = 1;
  std::vector<std::vector<double>> capped_;  // tables that forbid something
  std::vector<CoreTable> tables_;            // by link
  std::mt19937_64 random_{20060};
  std::vector<int32_t> candidates_;
  std::vector<int32_t> tree_;  // union-find; -1: not chosen
  std::vector<int32_t> chosen_;
  std::vector<char> visited_;
  std::vector<Step> steps_;
  std::vector<double> sums_;  // by label: own cost, fixed neighbours, subtrees
  std::vector<double> scratch_;
};

}  // namespace gt::placement
