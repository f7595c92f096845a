// What a plan says of a step: the layouts of its inputs, nodes and kept values, by pieces of their
// dimensions. Whatever does not fit the step is refused with BadPlan, naming the first difference.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/placement/dim_pieces.h"
#include "gt/placement/plan.h"

namespace gt {

// The layouts of a node's operands and results.
struct NodeLayouts {
  std::vector<placement::Layout> operands, results;
};

class PlanReader {
 public:
  // Numbers the nodes of the step, which, like the plan, must outlive this.
  PlanReader(Graph& whole, const placement::Plan& plan);

  const Graph& whole() const { return whole_; }
  const placement::DeviceMesh& mesh() const { return mesh_; }

  const placement::ClassPieces& PiecesOf(const Node& node) const;
  const placement::Pieces& PiecesOf(const Input& input) const;
  // Pieces (Piece::id) of inputs whose sizes are symbols.
  std::set<int32_t> OpenPieces() const;

  placement::Layout LayoutOf(const Input& input) const;
  NodeLayouts LayoutsOf(const Node& node) const;
  // How a value is kept for several uses; nothing: as it is made.
  std::optional<placement::Layout> KeptLayout(const Value& value,
                                              const placement::Pieces& pieces) const;
  // The way of sharding that a node with these layouts takes along an axis.
  const placement::PieceRow& RowAlong(const Node& node, const NodeLayouts& layouts, int axis) const;

 private:
  const placement::Plan::NodeLayouts* Find(std::string_view name) const;
  placement::Layout Parse(const std::string& text, const placement::Pieces& pieces,
                          const std::string& what) const;

  const Graph& whole_;
  const placement::Plan& plan_;
  const placement::DeviceMesh mesh_;
  const placement::Folding folding_;
  const std::vector<placement::ClassPieces> pieces_;  // by class
};

}  // namespace gt
