#include "gt/passes/placement/plan_reader.h"

#include "gt/base/error.h"
#include "gt/ir/describe.h"
#include "gt/passes/framework/recomputed_name.h"

namespace gt {

using placement::ClassPieces;
using placement::PieceRow;
using placement::Pieces;

PlanReader::PlanReader(Graph& whole, const placement::Plan& plan)
    : whole_(whole),
      plan_(plan),
      mesh_(plan.mesh),
      folding_(placement::Fold(whole)),
      pieces_(placement::FindPieces(folding_, whole.shapes().Hints())) {}

const ClassPieces& PlanReader::PiecesOf(const Node& node) const {
  const auto number = static_cast<size_t>(node.number());
  return pieces_[static_cast<size_t>(folding_.class_of_node[number])];
}

const Pieces& PlanReader::PiecesOf(const Input& input) const {
  const auto position = static_cast<size_t>(input.value.index());
  return pieces_[static_cast<size_t>(folding_.class_of_input[position])].results[0];
}

std::set<int32_t> PlanReader::OpenPieces() const {
  std::set<int32_t> open;
  for (const auto& input : whole_.inputs()) {
    const Shape& sizes = input->value.type().sizes;
    for (const placement::Piece& piece : PiecesOf(*input)) {
      if (!sizes[static_cast<size_t>(piece.dim)].is_const()) open.insert(piece.id);
    }
  }
  return open;
}

placement::Layout PlanReader::Parse(const std::string& text, const Pieces& pieces,
                                    const std::string& what) const {
  const std::optional<placement::Layout> layout = ParseLayout(text, pieces, mesh_);
  if (!layout) {
    Fail(ErrorCode::kBadPlan,
         "the plan is for another step: {} cannot be laid out as {} on mesh {}", what, text,
         mesh_.ToString());
  }
  return *layout;
}

placement::Layout PlanReader::LayoutOf(const Input& input) const {
  auto found = plan_.inputs.find(input.name);
  if (found == plan_.inputs.end()) {
    Fail(ErrorCode::kBadPlan, "the plan is for another step: it says nothing of input {}",
         input.name);
  }
  return Parse(found->second, PiecesOf(input), input.name);
}

// What a memory policy recomputes is computed like its original, if the plan was made without the policy.
const placement::Plan::NodeLayouts* PlanReader::Find(std::string_view name) const {
  auto found = plan_.nodes.find(std::string(name));
  if (found == plan_.nodes.end()) {
    found = plan_.nodes.find(std::string(OriginalName(name)));
  }
  return found == plan_.nodes.end() ? nullptr : &found->second;
}

NodeLayouts PlanReader::LayoutsOf(const Node& node) const {
  const ClassPieces& pieces = PiecesOf(node);
  NodeLayouts layouts;
  const auto computed_by_every_rank = [&] {
    layouts.operands.resize(static_cast<size_t>(node.operand_count()));
    layouts.results.resize(static_cast<size_t>(node.result_count()));
    return layouts;
  };
  if (node.result_count() == 0) return computed_by_every_rank();
  const std::string& name = node.result()->name();
  const placement::Plan::NodeLayouts* found = Find(name);
  // Draws that a memory policy repeats take the state of the generator, which a plan that was made
  // without the policy knows nothing of.
  if (found == nullptr && node.op().generator_state) return computed_by_every_rank();
  if (found == nullptr || found->operands.size() != pieces.operands.size() ||
      found->results.size() != pieces.results.size()) {
    Fail(ErrorCode::kBadPlan, "the plan is for another step: it says nothing of {}",
         DescribeNode(node));
  }
  for (size_t i = 0; i < pieces.operands.size(); ++i) {
    layouts.operands.push_back(Parse(found->operands[i], pieces.operands[i], name));
  }
  for (size_t i = 0; i < pieces.results.size(); ++i) {
    layouts.results.push_back(Parse(found->results[i], pieces.results[i], name));
  }
  return layouts;
}

std::optional<placement::Layout> PlanReader::KeptLayout(const Value& value,
                                                        const Pieces& pieces) const {
  std::string name = value.is_input() ? whole_.inputs()[static_cast<size_t>(value.index())]->name
                                      : value.producer()->result()->name();
  const std::string_view original = value.is_input() ? std::string_view() : OriginalName(name);
  const std::string result =
      !value.is_input() && value.index() > 0 ? fmt::format("#{}", value.index()) : "";
  auto found = plan_.kept.find(name + result);
  // Of a plan that was made without the policy: sums take the same way as those of the original.
  if (!plan_.nodes.contains(name) && !original.empty()) {
    found = plan_.kept.find(std::string(original) + result);
  }
  if (found == plan_.kept.end()) return std::nullopt;
  return Parse(found->second, pieces, name);
}

const PieceRow& PlanReader::RowAlong(const Node& node, const NodeLayouts& layouts, int axis) const {
  auto fits = [axis](const std::vector<placement::Layout>& all,
                     const std::vector<ShardState>& states) {
    for (size_t i = 0; i < states.size(); ++i) {
      if (all[i][axis] != states[i]) return false;
    }
    return true;
  };
  for (const PieceRow& row : PiecesOf(node).rows) {
    if (fits(layouts.operands, row.operands) && fits(layouts.results, row.results)) return row;
  }
  Fail(ErrorCode::kBadPlan, "the plan is for another step: {} cannot be sharded as it says",
       DescribeNode(node));
}

}  // namespace gt
