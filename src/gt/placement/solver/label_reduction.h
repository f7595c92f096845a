// Makes a problem smaller without changing its optimum: drops labels that another label of the same
// variable is never worse than, and variables whose best label follows from at most two others.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "gt/placement/solver/deadline.h"
#include "gt/placement/solver/label_dominance.h"
#include "gt/placement/solver/label_graph.h"

namespace gt::placement {

class LabelReduction {
 public:
  // Reduces `graph`.
  LabelReduction(LabelGraph& graph, const Deadline& deadline);
  void Run();

  // Fills in the labels of the variables that were eliminated, given those of the others.
  void Restore(std::vector<int32_t>& labels) const;

  // How much labellings with each label cost above the least, at least: fills in the labels that were
  // dropped and variables that were eliminated, given those that are left. By variable and label; what
  // is not known yet is infinite, and so may be what is above `room`. Of problems without memory.
  // Returns the combinations of labels that it looked at.
  double FillExcesses(std::vector<std::vector<double>>& excess, double room) const;

 private:
  // How to find the label of an eliminated variable from those of the variables it depended on.
  struct Eliminated {
    int32_t variable;
    int32_t first = -1;                // -1: none
    std::vector<int32_t> choice = {};  // by label of the first; a single one if there is none
    // With a second one the choice is made when it is asked for: a table of choices would be larger
    // than the problem.
    int32_t second = -1;
    // Empty: the label of the first one allows no other.
    std::vector<double> cost = {};
    std::vector<int32_t> labels = {};
    GraphEdge to_first = {};
    GraphEdge to_second = {};
  };

  struct Dropped {
    int32_t variable;
    DominatedLabel label;
    size_t after;  // so many variables were eliminated
  };

  // The size of a vertex's neighbourhood when its labels were last compared.
  struct Compared {
    size_t labels = 0, edges = 0, around = 0;
  };

  static double ExcessesOfLeaf(const Eliminated& leaf, const std::vector<double>& first,
                               double room, std::vector<double>& excess);
  static double ExcessesOfSeries(const Eliminated& series, const std::vector<double>& first,
                                 const std::vector<double>& second, double room,
                                 std::vector<double>& excess);

  void Queue(int32_t v);
  void QueueNeighbours(int32_t v);
  void Visit(int32_t v);

  // Each returns whether the vertex is still there.
  bool DropImpossible(int32_t v);
  bool DropDominated(int32_t v);
  bool WorthComparing(int32_t v);
  bool FixSingle(int32_t v);
  bool EliminateLoose(int32_t v);
  bool EliminateLeaf(int32_t v);
  bool MergeFollower(int32_t v);
  bool MergeDetermined(int32_t v);
  bool EliminateSeries(int32_t v, size_t most);  // work

  // The label of `v` beside each label of `u`, which allows no other.
  void MergeInto(int32_t v, int32_t u, std::vector<int32_t> choice);
  void Infeasible() { graph_.feasible = false; }
  void TakeOutCommonUsage(int32_t v);
  bool Fits(const GraphVertex& vertex, int32_t label) const;
  void Eliminate(Eliminated eliminated);

  LabelGraph& graph_;
  const Deadline& deadline_;
  using Entry = std::pair<size_t, int32_t>;  // degree, vertex
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::vector<bool> queued_;
  std::vector<Eliminated> eliminated_;
  std::vector<Dropped> dropped_;
  std::vector<Compared> compared_;  // by vertex
};

}  // namespace gt::placement
