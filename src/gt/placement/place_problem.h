// The placement of a step as a problem of labels: a variable for every class of nodes and inputs, whose
// labels are its strategies, and one for every value that several nodes use, whose labels are the
// layouts in which it is kept for all of them. Edges are what moves of tensors cost.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gt/placement/folding.h"
#include "gt/placement/search/step_problem.h"
#include "gt/placement/solver/label_problem.h"
#include "gt/placement/strategies.h"

namespace gt::placement {

// Why a variable exists.
struct PlacedVariable {
  int32_t class_index = 0;
  int32_t result = -1;                // of a kept value; -1: the class itself
  std::vector<Layout> layouts = {};   // of a kept value, by label
  std::vector<int32_t> members = {};  // of the class, whose value is kept
};

// Why an edge exists: where a tensor is moved.
struct PlacedEdge {
  int32_t from = 0;  // variables
  int32_t to = 0;
  int32_t class_index = 0;  // whose value it is
  int32_t result = 0;
  int32_t operand = -1;  // of `to`; -1: `to` is a kept value, or a parameter whose gradient this is
  int32_t count = 0;     // of such places in the step
  // How often the tensor is moved in each place: while nothing else can be done; in the forward, for
  // parameters; in the backward, for parameters and gradients. See RunsBesideKernels for the latter two.
  int32_t visible = 1, forward = 0, backward = 0;
  bool stays = false;  // nothing may be sent here: a cast comes first
  bool fixed = false;  // the layout may not change: rows that are with their experts
};

// A demand: the values that match a pattern are laid out like that.
struct Pin {
  // Of a parameter, an input, a module whose results are meant, or a result of the graph.
  std::string pattern;
  std::string layout;  // "S(0)R"; ? leaves an axis open: "S(0)?"
};

// What an axis of a hand-written layout is for.
enum class AxisUse : uint8_t {
  kAny,
  kReplicate,  // each rank has its part of the batch, and all parameters
  kShard,      // each rank has its part of the batch, and parameters may be cut (FSDP)
  kExperts,    // as kShard, and rows travel to their experts (EP)
  kModel,      // anything but the batch is cut (TP)
};

struct ProblemOptions {
  std::vector<AxisUse> axes = {};  // empty: any
  bool fold = true;
  // Gathered parameters are freed after the forward and gathered again: their moves count twice.
  bool reshard_after_forward = true;
  // Every parameter is cut as finely as its best layout allows, as AutoParallel's default demands.
  bool finest_parameters = false;
  // Means along a dimension that is cut are summed over ranks. A norm is then no longer one kernel, which
  // only AutoParallel's costs ignore: with them means are summed in any case.
  bool sum_means = false;
  std::vector<Pin> pins = {};
};

// Everything about the placement of one graph on one mesh. The graph and the pricing must outlive it.
class PlaceProblem {
 public:
  // `step`: the graph, folded as the options say, for a graph that is placed on several meshes.
  PlaceProblem(Graph& graph, const Pricing& pricing, ProblemOptions options,
               std::shared_ptr<const FoldedStep> step = nullptr);

  const Graph& graph() const { return graph_; }
  const Pricing& pricing() const { return pricing_; }
  const Folding& folding() const { return folding_; }
  const std::vector<ClassPieces>& pieces() const { return pieces_; }
  const std::vector<std::vector<Strategy>>& strategies() const { return strategies_; }
  const std::vector<PlacedVariable>& variables() const { return variables_; }
  const std::vector<PlacedEdge>& edges() const { return edges_; }
  // Made of parameters alone: may be made again whenever it is needed.
  bool made_of_parameters(int32_t class_index) const {
    return of_parameters_[static_cast<size_t>(class_index)];
  }
  // Whether some result of it is kept for several uses, by a variable of its own.
  bool keeps_value(int32_t class_index, int32_t member) const {
    return kept_.contains({class_index, member});
  }
  // Operators without a rule: every rank computes all of them.
  const std::vector<std::string>& without_rule() const { return without_rule_; }
  // How many classes of nodes have more ways than are looked at; bounds are over those that are.
  int32_t limited_classes() const { return limited_classes_; }

  // The layout that a label of a variable gives to the value that an edge moves away from it.
  const Layout& ResultLayout(int32_t variable, int32_t label, int32_t result) const;
  // The layout in which an edge delivers.
  const Layout& TargetLayout(const PlacedEdge& edge, int32_t label) const;
  Moved MovedBy(const PlacedEdge& edge) const;
  Move MoveOf(const PlacedEdge& edge, int32_t from_label, int32_t to_label) const;
  // Whether kernels run while the move is made, in the phases that the edge names. They wait for any other
  // move, each time.
  bool RunsBesideKernels(const PlacedEdge& edge, const Move& move) const;

  // What it takes to give every rank the step's outputs that are no gradients.
  double OutputCost(const std::vector<int32_t>& labels) const;
  // The same one by one. Outputs that are alike have the name of the first.
  std::vector<std::pair<std::string, double>> OutputCosts(const std::vector<int32_t>& labels) const;

  // Costs with factors: of kernels by phase, of what can be hidden by phase.
  struct Weights {
    double forward_kernels = 1, backward_kernels = 1;
    double forward_moves = 1, backward_moves = 1;
  };
  LabelProblem Labels(const Weights& weights) const;
  // The same with the times apart, for pricing them otherwise. Without memory.
  StepProblem Step() const;

 private:
  struct PlacedOutput {  // whole on every rank unless it is pinned
    int32_t variable = 0, class_index = 0, result = 0, count = 0;
    Layout layout = {};
    const Output* output = nullptr;  // the first
  };

  void MakeStrategies();
  void FindBatch();
  bool IsAllowed(AxisUse use, bool parameter, ShardState state, const Pieces& pieces) const;
  bool IsAllowed(size_t class_index, const PieceRow& row, int axis) const;
  bool IsKnown(const Node& node, const PieceRow& row) const;
  void ApplyPins();
  Layout PinnedLayout(const FoldedOutput& output) const;
  void KeepFinestParameters();
  void FollowParameters();
  void MakeVariables();
  void AddUses(const FoldedUses& alike);
  std::vector<Layout> KeptLayouts(int32_t class_index, int32_t result) const;
  void AddEdge(PlacedEdge edge);
  void MarkCasts();
  void MakeMatrices();
  // The edge's moves that run beside kernels, and those that do not.
  std::vector<StepEdge> StepEdgesOf(size_t edge) const;
  void AddLoop(const StepEdge& edge, StepProblem& problem) const;
  double OutputCost(const PlacedOutput& output, int32_t label) const;
  const FoldedClass& ClassAt(int32_t i) const { return folding_.classes[static_cast<size_t>(i)]; }

  Graph& graph_;
  const Pricing& pricing_;
  ProblemOptions options_;
  std::shared_ptr<const FoldedStep> step_;
  const Folding& folding_;
  const std::vector<ClassPieces>& pieces_;
  std::vector<std::vector<Strategy>> strategies_;
  std::vector<PlacedVariable> variables_;  // the first ones are the classes, in their order
  std::vector<PlacedEdge> edges_;
  std::vector<PlacedOutput> outputs_;
  int32_t batch_ = -1;                         // the piece that is the batch; -1: none
  std::vector<std::vector<FoldedEdge>> uses_;  // by class
  std::vector<bool> of_parameters_,
      of_gradients_;  // by class: made of them alone, leads to them alone
  std::vector<std::vector<bool>> gradient_operands_;  // by class and operand
  std::vector<uint8_t>
      phases_;  // of those made of parameters: who uses them, forward 1, backward 2
  std::set<std::pair<int32_t, int32_t>> kept_;  // classes and members
  std::vector<CostMatrix> matrices_;
  // By edge: of moves, and of those of parameters and gradients that kernels wait for; -1: there are none.
  std::vector<int32_t> matrix_of_edge_, waiting_matrix_of_edge_;
  std::vector<std::string> without_rule_;
  int32_t limited_classes_ = 0;
};

}  // namespace gt::placement
